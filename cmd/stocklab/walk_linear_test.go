package main

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/service/strategy"
)

// itemOp is what happened to the item, or what was seen of it.
type itemOp struct {
	do         action // buy, restock or readItem
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
	case o.do == buy:
		left -= o.units
	case o.do == restock:
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
const linearWithin = 10 * time.Second

// linearize asks whether an order of the operations explains all answers.
func linearize(units int64, ops []itemOp) (porcupine.CheckResult, porcupine.LinearizationInfo) {
	if len(ops) == 0 {
		return porcupine.Ok, porcupine.LinearizationInfo{}
	}
	first := slices.MinFunc(ops, func(a, b itemOp) int { return a.start.Compare(b.start) }).start
	last := slices.MaxFunc(ops, func(a, b itemOp) int { return a.end.Compare(b.end) }).end
	events := make([]porcupine.Operation, len(ops))
	for i, o := range ops {
		if o.end.IsZero() {
			o.end = last.Add(1)
		}
		events[i] = porcupine.Operation{ClientId: i, Input: o, Call: int64(o.start.Sub(first)), Return: int64(o.end.Sub(first))}
	}
	return porcupine.CheckOperationsVerbose(itemModel(units), events, linearWithin)
}

// checkLinearizable expects an order of what happened that explains all answers. What
// is not decided in time has not passed.
func (w *walkRun) checkLinearizable(t *testing.T, happened []itemOp) {
	t.Helper()
	ops := w.observed(happened)
	result, info := linearize(w.units, ops)
	switch result {
	case porcupine.Ok:
	case porcupine.Unknown:
		t.Errorf("not decided within %s: whether an order of %d operations explains the answers", linearWithin, len(ops))
	default:
		path := filepath.Join(t.ArtifactDir(), "walk.html")
		if err := porcupine.VisualizePath(itemModel(w.units), info, path); err != nil {
			t.Error(err)
		}
		t.Errorf("no order of %d operations explains the answers; with -artifacts they are drawn in %s", len(ops), path)
	}
}

// observed adds what was seen of the item to what happened to it, as far as it binds:
//
//   - What a purchase left is the whole stock only where all units are in the row.
//   - A rejection says that units are missing, wherever they are. The strategies that
//     reserve units in Redis may reject while some are reserved for others, and
//     redis-stock rejects without a key what it knew to be sold out a moment ago, until
//     the message of a restock has come: both are documented.
//   - A read shows orders that are pending as stock.
func (w *walkRun) observed(happened []itemOp) (ops []itemOp) {
	for _, o := range happened {
		if w.movesUnits() {
			o.left = nil
		}
		ops = append(ops, o)
	}
	for _, r := range w.records {
		o := itemOp{do: r.do, units: r.quantity, start: r.start, end: r.end, what: request{r.step, []record{r}}.String()}
		switch {
		case r.do == buy && r.outcome == history.Rejected && entryOf(r.strategy).Damage != strategy.Undersells && (r.strategy != hotStrategy || r.key != ""):
			o.rejected = true
		case r.do == readItem && r.outcome == history.Sold && !w.pending():
			o.left = &r.remaining
		default:
			continue
		}
		ops = append(ops, o)
	}
	return ops
}
