package walk

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/service/strategy"
)

// itemOp is what happened to the item, or what was seen of it.
type itemOp struct {
	do         Action // Buy, Restock, Correct or ReadItem
	rejected   bool   // a purchase found too few units
	units      int64
	left       *int64    // the stock after it; nil: not known
	start, end time.Time // the end is zero where no answer bounds it
	what       string
}

// apply tells whether the operation may happen to a stock, and what is left then.
func (o itemOp) apply(units int64) (may bool, left int64) {
	left = units
	switch {
	case o.rejected:
		return units < o.units, units
	case o.do == Buy:
		left -= o.units
	case o.do == Restock, o.do == Correct:
		left += o.units
	}
	return left >= 0 && (o.left == nil || *o.left == left), left
}

// itemModel is one item with so many units at first.
func itemModel(units int64) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return units },
		Step: func(state, input, _ any) (bool, any) {
			o, isOp := input.(itemOp)
			units, isStock := state.(int64)
			if !isOp || !isStock {
				return false, state
			}
			may, left := o.apply(units)
			return may, left
		},
		DescribeOperation: func(input, _ any) string {
			o, _ := input.(itemOp)
			return o.what
		},
	}
}

// linearWithin bounds the search for an order of one walk.
const linearWithin = 30 * time.Second

// linearize asks whether an order of the operations explains all answers.
func linearize(units int64, ops []itemOp) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	if len(ops) == 0 {
		return porcupine.Ok, porcupine.LinearizationInfo{}
	}
	first := slices.MinFunc(ops, func(a, b itemOp) int { return a.start.Compare(b.start) }).start
	events := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		events[i] = porcupine.Operation{ClientId: i, Input: o, Call: int64(o.start.Sub(first)), Return: math.MaxInt64}
		if !o.end.IsZero() {
			events[i].Return = int64(o.end.Sub(first))
		}
	}
	return porcupine.CheckOperationsVerbose(itemModel(units), events, linearWithin)
}

// orderFaults expects an order of what happened that explains all answers. What is not
// decided in time has not passed.
func (w *Run) orderFaults(happened []itemOp) []string {
	ops := w.observed(happened)
	for _, o := range ops {
		if o.start.IsZero() {
			return []string{fmt.Sprintf("no request asked for %s", o.what)}
		}
	}
	result, order := linearize(w.Units, ops)
	w.order = &order
	switch result {
	case porcupine.Ok:
		return nil
	case porcupine.Unknown:
		return []string{fmt.Sprintf("not decided within %s: whether an order of %d operations explains the answers", linearWithin, len(ops))}
	default:
		return []string{fmt.Sprintf("no order of %d operations explains the answers", len(ops))}
	}
}

// Draw writes porcupine's picture of the order of operations.
func (w *Run) Draw(path string) error {
	if w.order == nil {
		happened, _ := w.reconcile()
		w.orderFaults(happened)
	}
	return porcupine.VisualizePath(itemModel(w.Units), *w.order, path)
}

// observed adds what was seen of the item to what happened to it, as far as it binds:
//
//   - What a purchase left is the whole stock only where all units are in the row.
//   - A rejection says that units are missing, wherever they are, where it binds: that of a
//     reservation, too. A basket may be rejected for its other item.
//   - A read shows orders that are pending as stock.
func (w *Run) observed(happened []itemOp) (ops []itemOp) {
	for _, o := range happened {
		if w.movesUnits() {
			o.left = nil
		}
		ops = append(ops, o)
	}
	for _, r := range w.Records {
		asked := request{r.Step, []Record{r}}
		o := itemOp{do: asked.takes(), units: r.Quantity, start: r.Start, end: r.End, what: asked.String()}
		switch {
		case (r.Do == Buy || r.Do == Reserve) && r.Outcome == history.Rejected && w.binds(r):
			o.rejected = true
		case r.Do == ReadItem && r.Outcome == history.Sold && !slices.Contains(w.Strategies, hotStrategy):
			o.left = &r.Remaining
		default:
			continue
		}
		ops = append(ops, o)
	}
	return ops
}

// binds tells whether a rejection says that units are missing. The strategies that reserve
// units in Redis may reject while some are reserved for others, and redis-stock rejects
// without a key what it found sold out a moment ago, until the message of a restock has
// come: both are documented.
func (w *Run) binds(r Record) bool {
	if r.Strategy == hotStrategy {
		return r.Key != ""
	}
	return w.entries[r.Strategy].Damage != strategy.Undersells
}
