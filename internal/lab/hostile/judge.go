package hostile

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Check is one thing that must hold.
type Check struct {
	What     string `json:"what"`
	Baseline string `json:"baseline,omitempty"`
	Hostile  string `json:"hostile"`
	Bound    string `json:"bound"`
	Held     bool   `json:"held"`
	// Reported tells that the run does not fail by it.
	Reported bool `json:"reported,omitempty"`
}

// The bounds of a run.
const (
	// slowdown is how many times its baseline the honest p99 may be.
	slowdown = 5
	// honestRejected is the share of honest requests that may be rejected for load.
	honestRejected = 0.01
	// slowestPage is how many milliseconds a look at a page may take.
	slowestPage = 5000
	// rowsEachItem is how many rows of state an item may have in one table: an item has
	// a row for each bucket and for each lock.
	rowsEachItem = 64
	// logEach is how many bytes all replicas may log in logTime.
	logEach = 1 << 20
	logTime = 10 * time.Minute
	// logLeast is what a short run may log: an event of each kind and replica.
	logLeast = 64 << 10
	// largestOrder is deduct.max_quantity of production.yaml.
	largestOrder = 10
)

func (r *Report) judge() {
	r.Checks = slices.Concat(r.ledgerChecks(), r.serviceChecks(), r.stateChecks(), r.attackChecks())
}

func check(what string, n, most int64) Check {
	return Check{What: what, Hostile: humanize.Comma(n), Bound: atMost(most), Held: n <= most}
}

// given is a check that does not hold where there was nothing to look at.
func given(there bool, c Check) Check {
	c.Held = c.Held && there
	return c
}

func atMost(n int64) string {
	if n == 0 {
		return "0"
	}
	return "at most " + humanize.Comma(n)
}

func (r *Report) ledgerChecks() []Check {
	var oversold, lost, left, inconsistent int64
	audited := false // the hot item
	for _, audit := range r.Ledger.Audits {
		oversold += audit.Oversold
		lost += max(audit.Lost, -audit.Lost)
		if !audit.Clean {
			inconsistent++
		}
		if audit.GoodsID == hotItem {
			left, audited = audit.Stock, true
		}
	}
	l := r.Ledger
	return []Check{
		{What: "accepted honest orders", Hostile: humanize.Comma(int64(l.Honest)), Bound: "at least 1", Held: l.Honest > 0},
		check("units oversold", oversold, 0),
		check("units lost", lost, 0),
		check("items whose full audit fails", inconsistent, 0),
		given(audited, check("units of the hot item left after the sale", left, 0)),
		check("accepted honest orders missing in the ledger", int64(l.Missing), 0),
		check("accepted honest orders twice in the ledger", int64(l.Repeated), 0),
		check("accepted honest orders altered", int64(l.Altered), 0),
		check("honest orders that the attacker was given", int64(l.Revealed), 0),
		check("orders that were smuggled in", int64(l.Smuggled), 0),
	}
}

func (r *Report) serviceChecks() []Check {
	ratio := r.Hostile.P99 / max(r.Baseline.P99, 0.001)
	share := Check{
		What: "honest requests rejected for load", Baseline: percent(r.Baseline.RejectedShare()), Hostile: percent(r.Hostile.RejectedShare()),
		Bound: "at most " + percent(honestRejected), Held: r.Hostile.RejectedShare() <= honestRejected, Reported: !r.plan.Timed,
	}
	return []Check{
		{
			What: "honest p99", Baseline: fmt.Sprintf("%.1f ms", r.Baseline.P99), Hostile: fmt.Sprintf("%.1f ms (%.1f×)", r.Hostile.P99, ratio),
			Bound: fmt.Sprintf("under %d×", slowdown), Held: ratio < slowdown, Reported: !r.plan.Timed,
		},
		share,
		check("honest purchases given up", int64(r.Hostile.Failed+r.SellOut.Failed), 0),
		none("restocks by the shop that failed", r.RestockFailures),
		given(r.Pages.Asked > 0, check("looks at the stock page and the audit without an answer", int64(r.Pages.Failed), 0)),
		{
			What: "slowest of them", Hostile: fmt.Sprintf("%.0f ms", r.Pages.Slowest), Bound: fmt.Sprintf("at most %d ms", slowestPage),
			Held: r.Pages.Slowest <= slowestPage, Reported: !r.plan.Timed,
		},
		check("replicas that ended", int64(len(r.Ended)), 0),
		check("panics and races in the log", int64(r.Log.Panics), 0),
		r.logCheck(),
		r.memoryCheck(),
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

func (r *Report) logCheck() Check {
	bound := max(int64(float64(logEach)*r.Hostile.Seconds/logTime.Seconds()), logLeast)
	return Check{
		What: "log of all replicas", Hostile: humanize.IBytes(uint64(r.Log.Bytes)), //nolint:gosec // it is no negative
		Bound: "at most " + humanize.IBytes(uint64(bound)), Held: r.Log.Bytes <= bound,
	}
}

func (r *Report) memoryCheck() Check {
	first, all := most(r.Samples[:min(1, len(r.Samples))]), most(r.Samples)
	return Check{
		What: "largest memory of a replica", Baseline: humanize.IBytes(uint64(first)), //nolint:gosec // it is no negative
		Hostile: humanize.IBytes(uint64(all)), Bound: "at most " + humanize.IBytes(uint64(r.plan.Memory)), //nolint:gosec // they are no negatives
		Held: all > 0 && all <= r.plan.Memory,
	}
}

// stateChecks bound what each table and Redis have gained: by the orders for what is
// written with an order, and by the items for everything else.
func (r *Report) stateChecks() (list []Check) {
	orders, items := int64(0), int64(len(r.Ledger.Audits))
	for _, audit := range r.Ledger.Audits {
		orders += audit.Orders
	}
	for _, table := range slices.Sorted(maps.Keys(r.After.Rows)) {
		bound := items * rowsEachItem
		if table == "tb_stock_ledger" || table == "tb_stock_user" {
			bound = orders + items + int64(r.Restocks)
		}
		c := check("rows of "+table, r.After.Rows[table], bound)
		c.Baseline = humanize.Comma(r.Before.Rows[table])
		list = append(list, c)
	}
	c := check("keys in Redis", r.After.Keys, items*rowsEachItem+orders)
	c.Baseline = humanize.Comma(r.Before.Keys)
	invented := make([]string, 0, len(r.After.Invented))
	for where, n := range r.After.Invented {
		invented = append(invented, fmt.Sprintf("%d %s", n, where))
	}
	return append(list, c, none("state of items that do not exist", invented))
}

// attackChecks look at every attack: it was seen, and got no answer that it must not.
func (r *Report) attackChecks() []Check {
	var unseen, allowed, tooLarge, greedy []string
	var internal, redirects int64
	for i, attack := range Attacks() {
		f := &r.Attacks[i]
		if f.Reached() == 0 {
			unseen = append(unseen, f.Attack)
		}
		if n := f.Statuses["2xx"]; attack.Denied && n > 0 {
			allowed = append(allowed, fmt.Sprintf("%s: %d", f.Attack, n))
		}
		if attack.Largest > 0 && f.LargestAnswer > attack.Largest {
			tooLarge = append(tooLarge, fmt.Sprintf("%s: %d bytes", f.Attack, f.LargestAnswer))
		}
		if f.LargestOrder > largestOrder {
			greedy = append(greedy, fmt.Sprintf("%s: %d units", f.Attack, f.LargestOrder))
		}
		internal += int64(f.Problems["internal"])
		redirects += int64(f.Statuses["3xx"])
	}
	internal += int64(r.Hostile.Rejected["internal"] + r.SellOut.Rejected["internal"])
	return []Check{
		check("answers of an internal error", internal, 0),
		check("redirects", redirects, 0),
		none("attacks that no server has seen", unseen),
		none("attacks that were allowed what they must not be", allowed),
		none("attacks with an answer that is too large", tooLarge),
		none(fmt.Sprintf("attacks that bought more than %d units at once", largestOrder), greedy),
	}
}

func none(what string, list []string) Check {
	c := Check{What: what, Hostile: "0", Bound: "0", Held: len(list) == 0}
	if !c.Held {
		c.Hostile = fmt.Sprintf("%d (%s)", len(list), strings.Join(list, ", "))
	}
	return c
}

// kindOf is level and message of a line above INFO, or empty.
func kindOf(line []byte) string {
	var l struct {
		Level   string `json:"level"`
		Message string `json:"msg"`
	}
	if json.Unmarshal(line, &l) != nil || l.Level == "INFO" || l.Level == "DEBUG" {
		return ""
	}
	return l.Level + " " + l.Message
}
