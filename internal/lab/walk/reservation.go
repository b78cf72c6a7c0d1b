package walk

import (
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// takes is what a request does to the stock: a reservation is a purchase, until units of it come
// back.
func (r request) takes() Action {
	if r.Do == Reserve || r.Do == Order {
		return Buy
	}
	return r.Do
}

// isStep tells of a row that follows on a reservation.
func (row Row) isStep() bool { return row.isFinal() || row.Kind == string(stock.Return) }

// isFinal tells of the row that ends a reservation.
func (row Row) isFinal() bool {
	return slices.Contains([]string{string(stock.Confirmation), string(stock.Release), string(stock.Expiry)}, row.Kind)
}

// cameBack is what the steps of orders do to the stock: nothing where one was confirmed. Units
// that were released or returned are back between the question and the answer. Those that have
// expired are back at any time from then on, and lines that a basket gives back after it began.
func (w *Run) cameBack(baskets map[string]request, held map[string]time.Time) (happened []itemOp) {
	for _, row := range w.Ledger {
		back := itemOp{do: Restock, units: row.Quantity, what: row.String()}
		basket, isLine := baskets[row.Order]
		switch kind := stock.Kind(row.Kind); {
		case !row.isStep(), kind == stock.Confirmation, kind == stock.Return && w.damaged(row.Order):
			continue
		case kind == stock.Return:
			back.start, back.end = w.span(Return, row.Order)
		case isLine:
			back.start = basket.operation(row).start
		case kind == stock.Release:
			back.start, back.end = w.span(Release, row.Order)
		default:
			back.start = w.overFrom(row.Order, held[row.Order])
		}
		happened = append(happened, back)
	}
	return happened
}

// span is from when a step of an order was asked for first to when it was first accepted; zero: it was
// not.
func (w *Run) span(do Action, order string) (from, to time.Time) {
	for _, r := range w.Records {
		if r.Do != do || r.Order != order {
			continue
		}
		if from.IsZero() || r.Start.Before(from) {
			from = r.Start
		}
		if r.Outcome == history.Sold && (to.IsZero() || r.End.Before(to)) {
			to = r.End
		}
	}
	return from, to
}

// overFrom is when a reservation may have expired that was first asked for at a time.
func (w *Run) overFrom(order string, from time.Time) time.Time {
	for _, r := range w.Records {
		if r.Do == Extend && r.Order == order && r.Outcome == history.Sold && r.Start.After(from) {
			from = r.Start
		}
	}
	return from.Add(ReserveTTL - clockStep)
}

// clockStep is how far the clock of the database may move against that of the walk while units are
// held.
const clockStep = 10 * time.Millisecond

// reservationFaults expects that each reservation has ended once, as its client was answered.
func (w *Run) reservationFaults() (faults []string) {
	held, ended := make(map[string]bool), make(map[string][]string)
	units := make(map[string]int64) // that were held and have not ended
	for _, row := range w.Ledger {
		if row.Kind == string(stock.Hold) {
			held[row.Order] = true
			units[row.Order] += row.Quantity
		}
		if row.isFinal() {
			ended[row.Order] = append(ended[row.Order], row.Kind)
			units[row.Order] -= row.Quantity
		}
	}
	for order := range held {
		switch {
		case len(ended[order]) != 1:
			faults = append(faults, fmt.Sprintf("reservation %s has ended %d times: %v", order, len(ended[order]), ended[order]))
		case units[order] != 0:
			faults = append(faults, fmt.Sprintf("of reservation %s %d units have not ended: %v", order, units[order], ended[order]))
		}
	}
	for order, how := range ended {
		if !held[order] {
			faults = append(faults, fmt.Sprintf("%s of %s, which was never held", how, order))
		}
	}
	for _, r := range w.Records {
		if fault := r.endFault(ended[r.Order]); fault != "" {
			faults = append(faults, fault)
		}
	}
	return faults
}

// endFault compares the answer to a confirmation or a release with how the ledger has it.
func (r Record) endFault(ended []string) string {
	done := map[Action]stock.Kind{Confirm: stock.Confirmation, Release: stock.Release}[r.Do]
	is := slices.Contains(ended, string(done))
	switch {
	case done == "":
		return ""
	case r.Outcome == history.Sold && !is:
		return fmt.Sprintf("%s of %s was answered as done, and the ledger has %v", r.Do, r.Order, ended)
	case r.Problem == "reservation-expired" && !slices.Contains(ended, string(stock.Expiry)):
		return fmt.Sprintf("%s of %s was answered as expired, and the ledger has %v", r.Do, r.Order, ended)
	}
	return ""
}

// damaged tells whether units of an order come back that cannot be sold again. The same transaction takes them off.
func (w *Run) damaged(order string) bool {
	return slices.ContainsFunc(w.Records, func(r Record) bool { return r.Damaged && r.Order == order })
}

// returnKey is the key of the return of units of an order.
func (w *Run) returnKey(order string) string { return w.FullKey("return-" + order) }

// returnFaults expects that units come back of what was sold, as the client was answered, and that those which were damaged
// are taken off.
func (w *Run) returnFaults() (faults []string) {
	sold, returned, off := make(map[string]int64), make(map[string]int64), make(map[string]int64)
	for _, row := range w.Ledger {
		switch row.Kind {
		case string(stock.Confirmation):
			sold[row.Order] += row.Quantity
		case string(stock.Return):
			returned[row.Order] += row.Quantity
		case string(stock.Correct):
			off[row.Request] -= row.Quantity
		}
	}
	for order, units := range returned {
		if from, _ := w.span(Return, order); from.IsZero() || units > sold[order] {
			faults = append(faults, fmt.Sprintf("%d units of order %s came back, asked for from %s on, and %d were sold", units, order, from, sold[order]))
		}
		if w.damaged(order) && off[w.returnKey(order)] != units {
			faults = append(faults, fmt.Sprintf("%d units of order %s came back damaged, and %d were taken off", units, order, off[w.returnKey(order)]))
		}
	}
	for _, r := range w.Records {
		if r.Do == Return && r.Outcome == history.Sold && returned[r.Order] != r.Quantity {
			faults = append(faults, fmt.Sprintf("the return of %d of order %s was answered as done, and the ledger has %d", r.Quantity, r.Order, returned[r.Order]))
		}
	}
	return faults
}

// A basket of a walk has two lines, the item and one unit of another one, whose id is higher. It is
// held under a number of its own each time that it is tried.

// numbersOf are all numbers that a basket may have had.
func (w *Run) numbersOf(r request) (numbers []string) {
	id := stock.BuyerKey(w.FullKey(r.Key), r.User)
	for try := range service.BasketTries {
		numbers = append(numbers, service.BasketNumber(id, try))
	}
	return numbers
}

const (
	lineOfItem   = "-1-2"
	lineOfBeside = "-2-2"
)

// baskets are those of the walk, by each order that their line of the item may be.
func (w *Run) baskets() map[string]request {
	byOrder := make(map[string]request)
	for _, r := range w.requests(Order) {
		for _, number := range w.numbersOf(r) {
			byOrder[number+lineOfItem] = r
		}
	}
	return byOrder
}

// basketFaults expects that each basket was sold whole or not at all, and once, as its client was
// answered.
func (w *Run) basketFaults() (faults []string) {
	item, beside := confirmed(w.Ledger), confirmed(w.Beside)
	for _, r := range w.requests(Order) {
		var sold []string
		for _, number := range w.numbersOf(r) {
			mine, other := item[number+lineOfItem], beside[number+lineOfBeside]
			if mine != other {
				faults = append(faults, fmt.Sprintf("%s is sold by half: %t and %t", r, mine, other))
			}
			if mine {
				sold = append(sold, number)
			}
		}
		for _, a := range r.answers {
			if a.Outcome == history.Sold && !slices.Equal(sold, []string{a.Order}) {
				faults = append(faults, fmt.Sprintf("%s was answered with order %s, and the ledger has %v", r, a.Order, sold))
			}
		}
		if len(sold) > 0 && !r.answeredWith(history.Sold) && !r.answeredWith(history.Unknown) {
			faults = append(faults, fmt.Sprintf("%s was rejected, and the ledger has %v", r, sold))
		}
	}
	return faults
}

// confirmed are the orders of a ledger that were held and are sold.
func confirmed(ledger []Row) map[string]bool {
	orders := make(map[string]bool)
	for _, row := range ledger {
		if row.Kind == string(stock.Confirmation) {
			orders[row.Order] = true
		}
	}
	return orders
}
