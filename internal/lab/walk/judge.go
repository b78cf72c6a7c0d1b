package walk

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/stock"
)

// Run is what happened in a walk over an item: what its actors saw, and what the database
// has once all of them have ended and nothing is pending.
type Run struct {
	Plan

	Item    int64
	Records []Record
	// SoldOut tells that nothing may be left.
	SoldOut bool
	Ledger  []Row
	// Beside is the ledger of the other item of the baskets, which may be on another shard than the item.
	Beside      []Row
	Sharded     bool
	Audit, Full stock.Audit

	mu    sync.Mutex
	order *porcupine.LinearizationInfo // of the operations; nil: none was searched for
}

// Record is a step as its actor saw it; a step that is sent again has several.
type Record struct {
	Step

	Start, End time.Time
	Outcome    history.Outcome // of a restock or a look that succeeded: sold
	Problem    string          // the last part of the problem's type
	Order      string
	Remaining  int64 // after a purchase, or the stock that was read
	Audit      stock.Audit
	Starts     time.Time // what a delay has set
}

// Add adds a record. Actors may call it at the same time.
func (w *Run) Add(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Records = append(w.Records, r)
}

// FullKey is a key of this run's alone.
func (w *Run) FullKey(key string) string {
	if key == "" {
		return ""
	}
	return fmt.Sprintf("walk-%d-%d-%s", w.Seed, w.Item, key)
}

// Tally counts the answers.
func (w *Run) Tally() string {
	counts := make(map[string]int)
	for _, r := range w.Records {
		counts[strings.TrimSpace(fmt.Sprint(r.Do, " ", r.Outcome, " ", r.Problem))]++
	}
	return fmt.Sprint(counts)
}

// Faults are what must not be, in words.
func (w *Run) Faults() []string {
	happened, faults := w.reconcile()
	faults = slices.Concat(faults, w.limitFaults(), w.auditFaults(), w.reservationFaults(), w.returnFaults(), w.basketFaults(), w.saleFaults(happened))
	for _, r := range w.Records {
		if fault := w.recordFault(r); fault != "" {
			faults = append(faults, fault)
		}
	}
	if w.Kind != Lossy {
		faults = append(faults, w.orderFaults(happened)...)
	}
	return faults
}

// limitFaults finds the buyers who have more than the highest limit that there was.
func (w *Run) limitFaults() (faults []string) {
	if len(w.Limits) == 0 || slices.Contains(w.Limits, 0) {
		return nil
	}
	bought := make(map[string]int64)
	for _, row := range w.Ledger {
		if row.Kind == string(stock.Deduction) || row.Kind == string(stock.Confirmation) {
			bought[row.User] += row.Quantity
		}
		if row.Kind == string(stock.Return) {
			bought[row.User] -= row.Quantity
		}
	}
	for user, units := range bought {
		if user == "" || units > slices.Max(w.Limits) {
			faults = append(faults, fmt.Sprintf("%q bought %d, and the limits were %v", user, units, w.Limits))
		}
	}
	return faults
}

// auditFaults judges the stock at the end.
func (w *Run) auditFaults() (faults []string) {
	audit, full := w.Audit, w.Full
	if full.Buyers != nil && *full.Buyers != (stock.Buyers{}) {
		faults = append(faults, fmt.Sprintf("buyers: the full audit finds %+v", *full.Buyers))
	}
	if fault := w.auditFault(audit); fault != "" {
		faults = append(faults, "at the end "+fault)
	}
	if w.SoldOut && audit.Stock != 0 {
		faults = append(faults, fmt.Sprintf("%d units are stranded: %+v", audit.Stock, audit))
	}
	full.Buyers, full.Clean = nil, audit.Clean
	if full != audit {
		faults = append(faults, fmt.Sprintf("the audit by totals is %+v, and by all rows %+v", audit, full))
	}
	return faults
}

// auditFault judges the stock at any time. With strategies that lose updates
//
//	lost = stock - (restocked - sold) = sales that were overwritten
//
// which is 0 to sold. Restocks and moves come in units so coarse that one which is lost
// takes it below 0, and one which is doubled above sold.
func (w *Run) auditFault(a stock.Audit) string {
	switch {
	case w.Kind != Lossy && (a.Lost != 0 || a.Oversold != 0 || a.Stock < 0):
		return fmt.Sprintf("the audit is not exact: %+v", a)
	case w.Kind == Lossy && a.Lost < 0:
		return fmt.Sprintf("%d units are gone that came beside the sale: %+v", -a.Lost, a)
	case w.Kind == Lossy && a.Lost > a.Sold:
		return fmt.Sprintf("%d units are there that did not come, beside the %d that were sold: %+v", a.Lost-a.Sold, a.Sold, a)
	default:
		return ""
	}
}

// recordFault judges what can be said of one answer by itself.
func (w *Run) recordFault(r Record) string {
	if (r.Do == ReadAudit || r.Do == Close) && r.Outcome == history.Sold {
		if fault := w.auditFault(r.Audit); fault != "" {
			return "during the sale " + fault
		}
	}
	expected := []string{"", "no-answer", "outcome-unknown", "insufficient-stock", "busy", "fenced", "lease-lost", "backend-unavailable"}
	if len(w.Limits) > 0 {
		expected = append(expected, "user-limit")
		if r.User == "" {
			expected = append(expected, "invalid-request")
		}
	}
	if slices.Contains([]Action{Buy, Reserve, Order}, r.Do) && slices.ContainsFunc(slices.Concat(w.Actors...), Step.turnsSale) {
		expected = append(expected, "sale-closed", "sale-not-started")
	}
	if r.Do == Order && w.Sharded {
		expected = append(expected, "items-apart")
	}
	if r.Do == Correct {
		expected = append(expected, "below-zero")
	}
	if slices.Contains([]Action{Confirm, Release, Extend}, r.Do) {
		expected = append(expected, "reservation-expired")
	}
	if slices.Contains([]Action{Buy, Reserve, Order, Confirm, Release, Extend, Return, Restock, Correct, Close, Delay, Reopen}, r.Do) && !slices.Contains(expected, r.Problem) {
		return fmt.Sprintf("%s by %s is answered with %s", r.Do, r.Strategy, r.Problem)
	}
	return ""
}

// Row is a row of the ledger as the database has it.
type Row struct {
	Order, Kind, Request, User, Strategy string
	Quantity                             int64
	Remaining                            *int64
}

// matches tells whether the row is what a step asks for.
func (row Row) matches(s Step) bool {
	if s.ByAdmin() {
		return row.Kind == string(s.Do) && row.Quantity == s.Quantity
	}
	kind := stock.Deduction
	if s.Do == Reserve || s.Do == Order {
		kind = stock.Hold
	}
	return row.Kind == string(kind) && row.Quantity == s.Quantity && row.Strategy == s.Strategy && row.User == s.User
}

// request is a purchase or a restock, with every answer to it.
type request struct {
	Step

	answers []Record
}

// requests groups the answers to some actions by their keys. A request without a key has one.
func (w *Run) requests(of ...Action) (list []request) {
	byKey := make(map[string]int)
	for _, r := range w.Records {
		i, known := byKey[r.Key]
		switch {
		case !slices.Contains(of, r.Do):
		case known:
			list[i].answers = append(list[i].answers, r)
		default:
			list = append(list, request{r.Step, []Record{r}})
			if r.Key != "" {
				byKey[r.Key] = len(list) - 1
			}
		}
	}
	return list
}

// reconcile compares the answers with the rows of the ledger, row for row, and
// returns what has happened.
func (w *Run) reconcile() (happened []itemOp, faults []string) {
	baskets := w.baskets()
	byName := make(map[string]Row) // request ids and orders
	unexplained := make(map[string]Row)
	held := make(map[string]time.Time) // when each reservation was first asked for, also where no answer had its order
	for _, row := range w.Ledger {
		if row.isStep() {
			continue
		}
		if line, found := baskets[row.Order]; found {
			happened = append(happened, line.operation(row))
			if !row.matches(line.Step) {
				faults = append(faults, fmt.Sprintf("%s is in the ledger as %s", line, row))
			}
			continue
		}
		byName[row.Request], byName[row.Order], unexplained[row.Request] = row, row, row
	}
	delete(unexplained, w.FullKey("create"))
	for _, r := range w.Records {
		if r.Damaged {
			delete(unexplained, w.returnKey(r.Order))
		}
	}
	var open []request
	for _, r := range w.requests(Buy, Reserve, Restock, Correct) {
		row, found := byName[w.nameOf(r)]
		if fault := r.fault(row, found); fault != "" {
			faults = append(faults, fault)
		}
		switch {
		case found:
			// Only an order that was given to two buyers explains two requests.
			if _, first := unexplained[row.Request]; !first {
				faults = append(faults, fmt.Sprintf("%s was answered with the order of another request: %s", r, row))
			}
			delete(unexplained, row.Request)
			happened = append(happened, r.operation(row))
			held[row.Order] = r.operation(row).start
		case r.Key == "" && r.answers[0].Outcome == history.Unknown:
			open = append(open, r)
		}
	}
	// Of requests without a key that are alike, those that began first can have
	// happened at any time at which a later one can.
	slices.SortFunc(open, func(a, b request) int { return a.answers[0].Start.Compare(b.answers[0].Start) })
	for _, row := range unexplained {
		i := slices.IndexFunc(open, func(r request) bool { return row.matches(r.Step) })
		if i < 0 {
			faults = append(faults, fmt.Sprintf("the ledger has %s, which was not asked for", row))
			continue
		}
		happened = append(happened, open[i].operation(row))
		open = slices.Delete(open, i, i+1)
	}
	return append(happened, w.cameBack(baskets, held)...), faults
}

// nameOf is what the ledger has of a request: its key, or its order where it has none.
func (w *Run) nameOf(r request) string { return cmp.Or(w.FullKey(r.Key), r.answers[0].Order) }

// fault judges the answers to a request by its row of the ledger.
func (r request) fault(row Row, found bool) string {
	for _, a := range r.answers {
		if found && a.Outcome == history.Sold && !r.ByAdmin() && a.Order != row.Order {
			return fmt.Sprintf("%s was answered with order %s, and the ledger has %s", r, a.Order, row)
		}
	}
	accepted := r.answeredWith(history.Sold)
	switch {
	case accepted && !found:
		return fmt.Sprintf("%s was accepted, and the ledger does not have it", r)
	case found && !row.matches(r.Step):
		return fmt.Sprintf("%s is in the ledger as %s", r, row)
	case found && !accepted && !r.answeredWith(history.Unknown):
		return fmt.Sprintf("%s was rejected, and the ledger has %s", r, row)
	default:
		return ""
	}
}

func (r request) answeredWith(outcome history.Outcome) bool {
	return slices.ContainsFunc(r.answers, func(a Record) bool { return a.Outcome == outcome })
}

// operation is the request as it has happened: after it was first sent, and before
// its first acceptance, or any time where there was none.
func (r request) operation(row Row) itemOp {
	op := itemOp{do: r.takes(), units: r.Quantity, left: row.Remaining, start: r.answers[0].Start, what: r.String()}
	for _, a := range r.answers {
		if a.Start.Before(op.start) {
			op.start = a.Start
		}
		if a.Outcome == history.Sold && (op.end.IsZero() || a.End.Before(op.end)) {
			op.end = a.End
			if r.Do == Buy {
				op.left = &a.Remaining
			}
		}
	}
	return op
}

func (r request) String() string {
	outcomes := make([]string, len(r.answers))
	for i, a := range r.answers {
		outcomes[i] = strings.TrimSpace(fmt.Sprint(a.Outcome, " ", a.Problem))
	}
	return fmt.Sprintf("%s %s of %d by %s (group %t, fence %t, answers %v)", r.Do, r.Key, r.Quantity, r.Strategy, r.Group, r.Fence, outcomes)
}

func (row Row) String() string {
	return fmt.Sprintf("row %s: %s of %d by %s, request %s", row.Order, row.Kind, row.Quantity, row.Strategy, row.Request)
}

func (s Step) turnsSale() bool { return s.Do == Close || s.Do == Delay || s.Do == Reopen }

// offSale is when an item was certainly not on sale: from the answer to a close or a delay until the start that was set, or
// until the next turn of the sale was asked for. After a turn whose outcome is unknown nothing is certain: it may happen
// later.
func (w *Run) offSale() (times []itemOp) {
	for _, r := range w.Records {
		if !r.turnsSale() || r.Do == Reopen || r.Outcome != history.Sold {
			continue
		}
		off, certain := itemOp{start: r.End, end: r.Starts, what: fmt.Sprintf("%+v", r.Step)}, true
		for _, other := range w.Records {
			switch {
			case !other.turnsSale() || other.Do == Close:
			case other.Start.Before(r.End):
				certain = certain && other.Outcome != history.Unknown
			case off.end.IsZero() || other.Start.Before(off.end):
				off.end = other.Start
			}
		}
		if certain {
			times = append(times, off)
		}
	}
	return times
}

// saleFaults expects that nothing is sold or held while the item is not on sale. The clock of the database may be a step off.
func (w *Run) saleFaults(happened []itemOp) (faults []string) {
	for _, off := range w.offSale() {
		for _, o := range happened {
			if o.do == Buy && o.start.After(off.start) && !o.end.IsZero() && o.end.Add(clockStep).Before(off.end) {
				faults = append(faults, fmt.Sprintf("%s was accepted from %s to %s, between %s at %s and %s", o.what,
					o.start.Format(time.StampMicro), o.end.Format(time.StampMicro), off.what, off.start.Format(time.StampMicro), off.end.Format(time.StampMicro)))
			}
		}
	}
	return faults
}
