package walk

import (
	"fmt"
	"slices"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

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
