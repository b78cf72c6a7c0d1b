// Package verdict compares a sale with what its strategy guarantees: the figures, the
// verdict over them, and both as a table and as JSON.
package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/stock"
)

// Verdict says whether a run came out as its strategy guarantees. Its values are in the JSON
// and relied upon.
type Verdict string

// The verdicts.
const (
	Expected   Verdict = "as claimed"
	Unexpected Verdict = "not as claimed"
	NotRun     Verdict = "not run"
)

// Run is one sale. Its JSON fields are relied upon: they are added to and not
// renamed.
type Run struct {
	Strategy string `json:"strategy"`
	Replicas int    `json:"replicas"` // 0: not known
	Group    bool   `json:"group"`
	Fence    bool   `json:"fence"`
	Clients  int    `json:"clients"`
	Requests int    `json:"requests"`
	// Stock is what there was to sell, Sold what the ledger says was sold, Left
	// what the row says is left.
	Stock int64 `json:"stock"`
	Sold  int64 `json:"sold"`
	Left  int64 `json:"left"`
	// Oversold, Lost and Undersold are three different failures; see
	// stock.Audit.
	Oversold  int64 `json:"oversold"`
	Lost      int64 `json:"lost"`
	Undersold int64 `json:"undersold"`
	Rejected  int   `json:"refused"`
	Errors    int   `json:"errors"`
	Unknown   int   `json:"unknown"`
	// Clean: the run was consistent. ExpectedClean: the strategy guarantees that.
	Clean         bool    `json:"clean"`
	ExpectedClean bool    `json:"expected_clean"`
	Verdict       Verdict `json:"verdict"`
	Reason        string  `json:"reason"`
	PerSecond     float64 `json:"per_second"`
	// SalesPerSecond is how fast units were sold while there were any: the rejections that follow the last sale
	// have no part in it.
	SalesPerSecond float64 `json:"sales_per_second"`
	// The latency, in milliseconds.
	Min float64 `json:"min_ms"`
	P50 float64 `json:"p50_ms"`
	P90 float64 `json:"p90_ms"`
	P95 float64 `json:"p95_ms"`
	P99 float64 `json:"p99_ms"`
	Max float64 `json:"max_ms"`
	// ErrorPercent is the part of all requests that are in Errors or Unknown; a rejection
	// for want of stock is no error.
	ErrorPercent float64 `json:"error_percent"`
	// KilobytesPerSecond is of all answers, in 1,024 bytes.
	KilobytesPerSecond float64 `json:"kb_per_second"`

	// Orders counts the sales in the ledger, Answered those that clients got an answer to.
	Orders   int64 `json:"orders"`
	Answered int   `json:"answered"`
	// Duplicates counts orders that were given to more than one buyer.
	Duplicates int            `json:"duplicates"`
	ErrorTypes map[string]int `json:"error_types,omitempty"`
	// Tries is how often the run was made; only the last one is shown.
	Tries   int     `json:"tries"`
	Seconds float64 `json:"seconds"`
	// SalesOnly tells that PerSecond and the latencies are of sales alone, and not of
	// all requests.
	SalesOnly bool `json:"sales_only,omitempty"`
	// Restocked is how many units were added during the run.
	Restocked int64 `json:"restocked,omitempty"`
	// LedgerAfter is how many seconds after the last answer the ledger had every
	// order, where that was waited for.
	LedgerAfter float64 `json:"ledger_after_seconds,omitempty"`
	// Shorter tells that the run had fewer units and requests than the plan has,
	// and a bound on its time: its strategy takes several round trips a sale.
	Shorter bool `json:"shorter,omitempty"`
	// Note is what the database does to the strategy, in words.
	Note string `json:"note,omitempty"`
}

// Name is the strategy with its modifiers, such as "etcd, grouped".
func (r *Run) Name() string {
	name := r.Strategy
	if r.Group {
		name += ", grouped"
	}
	if r.Fence {
		name += ", fenced"
	}
	return name
}

// Add puts the figures of a load and the audit after it into the run.
func (r *Run) Add(l *load.Result, a stock.Audit) {
	r.Requests = l.Sent
	r.Stock, r.Sold, r.Left, r.Orders = a.Initial, a.Sold, a.Stock, a.Orders
	r.Oversold, r.Lost = a.Oversold, a.Lost
	if r.Restocked == 0 { // else there are units that came after the rejections
		r.Undersold = a.Undersold(int64(l.Rejected))
	}
	r.Rejected, r.Unknown, r.Answered, r.Duplicates = l.Rejected, l.Unknown, l.Sold, l.Duplicates
	r.Errors, r.ErrorTypes = 0, l.Errors
	for _, n := range l.Errors {
		r.Errors += n
	}
	r.Clean = a.Clean && r.Undersold == 0 && r.Duplicates == 0
	r.Seconds = l.Elapsed.Seconds()
	count, latency := l.Sent, l.Latency
	if r.SalesOnly {
		count, latency = l.Sold, l.SaleLatency
	}
	r.PerSecond = float64(count) / r.Seconds
	r.SalesPerSecond = 0
	if l.Selling > 0 {
		r.SalesPerSecond = float64(l.Sold) / l.Selling.Seconds()
	}
	r.Min, r.P50, r.P90 = load.Milliseconds(latency, 0), load.Milliseconds(latency, 50), load.Milliseconds(latency, 90)
	r.P95, r.P99, r.Max = load.Milliseconds(latency, 95), load.Milliseconds(latency, 99), load.Milliseconds(latency, 100)
	r.ErrorPercent, r.KilobytesPerSecond = 100*float64(l.Failed())/float64(max(1, l.Sent)), l.KilobytesPerSecond()
}

// Judge sets the verdict from the evidence in the run, against ExpectedClean.
func (r *Run) Judge() {
	r.Verdict, r.Reason = Unexpected, r.contradiction()
	if r.Reason == "" {
		r.Verdict, r.Reason = Expected, r.state()
	}
}

// contradiction is the evidence against the guarantee, or empty.
func (r *Run) contradiction() string {
	answered, unknown := int64(r.Answered), int64(r.Unknown)
	switch {
	case r.Orders < answered || r.Orders > answered+unknown:
		return fmt.Sprintf("the ledger has %d sales, clients got answers to %d, and %d outcomes are unknown", r.Orders, answered, unknown)
	case r.Sold != r.Orders: // every request is for one unit
		return fmt.Sprintf("the ledger has %d units in %d sales of one unit each", r.Sold, r.Orders)
	case r.unexpectedErrors() != "":
		return "requests failed: " + r.unexpectedErrors()
	case r.Answered == 0 && r.Rejected == 0:
		return "no purchase was sold or rejected: nothing is shown"
	case r.ExpectedClean && !r.Clean:
		return "guarantees consistency and was not consistent: " + r.state()
	case r.ExpectedClean && r.soldOut() && r.Sold != r.Stock:
		return fmt.Sprintf("had enough purchases to sell out and sold %d of %d", r.Sold, r.Stock)
	case !r.ExpectedClean && r.Clean:
		return "is known to fail here and was consistent"
	default:
		return ""
	}
}

// soldOut reports whether there were enough purchases: one was rejected, and no units were
// added afterwards.
func (r *Run) soldOut() bool { return r.Rejected > 0 && r.Restocked == 0 }

// Words is the verdict as a person reads it, such as "oversold by 4,000 — expected".
func (r *Run) Words() string {
	switch {
	case r.Verdict == NotRun:
		return "not run"
	case r.Verdict != Expected:
		return r.state() + " — not expected"
	case r.Clean:
		return r.state()
	default:
		return r.state() + " — expected"
	}
}

// Remark is what does not fit into a cell: why a run was not made or not expected, or what the
// database does to the strategy. It may be empty.
func (r *Run) Remark() string {
	switch r.Verdict {
	case NotRun:
		return "not run: " + r.Reason
	case Unexpected:
		return "not expected: " + r.Reason
	default:
		return r.Note
	}
}

// state is "consistent", or what is not.
func (r *Run) state() string {
	if r.Clean {
		return "consistent"
	}
	var list []string
	for _, d := range []struct {
		count int64
		words string
	}{
		{r.Oversold, "oversold by %s"},
		{r.Lost, "%s updates lost"},
		{-r.Lost, "%s units gone without a sale"},
		{-r.Left, "%s below zero"},
		{r.Undersold, "%s rejected with stock left"},
		{int64(r.Duplicates), "%s orders given twice"},
	} {
		if d.count > 0 {
			list = append(list, fmt.Sprintf(d.words, comma(d.count)))
		}
	}
	return cmp.Or(strings.Join(list, ", "), "inconsistent")
}

// unexpectedErrors lists errors other than busy, which is a correct answer under load.
func (r *Run) unexpectedErrors() string { return strings.Join(kinds(r.ErrorTypes, "busy"), ", ") }

// errorKinds lists all errors by their kinds.
func (r *Run) errorKinds() string {
	list := kinds(r.ErrorTypes, "")
	if r.Unknown > 0 {
		list = append(list, comma(int64(r.Unknown))+" unknown")
	}
	return strings.Join(list, ", ")
}

// kinds lists errors by their kinds, but for one.
func kinds(counts map[string]int, but string) (list []string) {
	for _, problem := range slices.SortedFunc(maps.Keys(counts), cmp.Compare) {
		if problem != but && counts[problem] > 0 {
			list = append(list, fmt.Sprintf("%s %s", comma(int64(counts[problem])), problem))
		}
	}
	return list
}
