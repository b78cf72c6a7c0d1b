package walk

import (
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/stock"
)

// takes is what a request does to the stock: a reservation is a purchase, until units of it come
// back.
func (r request) takes() Action {
	if r.Do == Reserve {
		return Buy
	}
	return r.Do
}

// isFinal tells of the row that ends a reservation.
func (row Row) isFinal() bool {
	return slices.Contains([]string{string(stock.Confirmation), string(stock.Release), string(stock.Expiry)}, row.Kind)
}

// cameBack is what the end of a reservation does to the stock: nothing where it was
// confirmed. Units that were released are back between the question and the answer; those that
// have expired at any time from then on.
func (w *Run) cameBack(row Row) []itemOp {
	back := itemOp{do: Restock, units: row.Quantity, what: row.String()}
	asked, after := Release, time.Duration(0)
	switch row.Kind {
	case string(stock.Confirmation):
		return nil
	case string(stock.Expiry):
		asked, after = Reserve, ReserveTTL-clockStep
	}
	for _, r := range w.Records {
		if r.Order != row.Order || r.Do != asked {
			continue
		}
		if from := r.Start.Add(after); back.start.IsZero() || from.Before(back.start) {
			back.start = from
		}
		if asked == Release && r.Outcome == history.Sold && (back.end.IsZero() || r.End.Before(back.end)) {
			back.end = r.End
		}
	}
	return []itemOp{back}
}

// clockStep is how far the clock of the database may move against that of the walk while units are
// held.
const clockStep = 10 * time.Millisecond

// reservationFaults expects that each reservation has ended once, as its client was answered.
func (w *Run) reservationFaults() (faults []string) {
	held, ended := make(map[string]bool), make(map[string][]string)
	for _, row := range w.Ledger {
		if row.Kind == string(stock.Hold) {
			held[row.Order] = true
		}
		if row.isFinal() {
			ended[row.Order] = append(ended[row.Order], row.Kind)
		}
	}
	for order := range held {
		if len(ended[order]) != 1 {
			faults = append(faults, fmt.Sprintf("reservation %s has ended %d times: %v", order, len(ended[order]), ended[order]))
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
