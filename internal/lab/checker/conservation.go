package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/stockd/stockd/internal/lab/history"
)

// books is the sum of the last audits of all items, in units.
type books struct{ initial, sold, left, oversold, lost, gone, below, lowest int64 }

// Oversold expects that more was sold than there was.
func Oversold() Check {
	return audited(func(b books) (bool, string) {
		return b.oversold > 0, fmt.Sprintf("of %s, %d were sold: %d more than there were", count(b.initial, "unit"), b.sold, b.oversold)
	})
}

// LostUpdates expects that the row shows more than the ledger has left of it.
func LostUpdates() Check {
	return audited(func(b books) (bool, string) {
		return b.lost > 0, fmt.Sprintf("of %s, %d were sold and the row shows %d: updates of %s were lost",
			count(b.initial, "unit"), b.sold, b.left, count(b.lost, "unit"))
	})
}

// BelowZero expects that the stock was seen below zero, by an audit or by a
// sample.
func BelowZero() Check {
	return audited(func(b books) (bool, string) {
		return b.lowest < 0, fmt.Sprintf("the lowest stock that was seen is %d", b.lowest)
	})
}

// SoldOut expects that exactly so many units were sold, and that none is left.
func SoldOut(units int64) Check {
	return func(h *history.History) Finding {
		f := audited(func(b books) (bool, string) {
			holds := b.sold == units && b.initial == units && b.left == 0
			return holds, fmt.Sprintf("of %s, %d were sold and %d are left, where all of %d were to be sold",
				count(b.initial, "unit"), b.sold, b.left, units)
		})(h)
		if early := undersold(h); early > 0 {
			f.Holds = false
			f.Says += fmt.Sprintf("; %s rejected while they were in stock", count(early, "unit"))
			f.Numbers["undersold_units"] = float64(early)
		}
		return f
	}
}

// undersold is how many units were rejected although they were there to the end.
func undersold(h *history.History) (units int64) {
	rejected := make(map[int64]int64)
	for _, r := range h.Requests {
		if r.Outcome == history.Rejected {
			rejected[r.GoodsID] += r.Quantity
		}
	}
	for _, a := range lastAudits(h) {
		units += a.Undersold(rejected[a.GoodsID])
	}
	return units
}

// audited is a check of the books. It does not hold where there are none.
func audited(judge func(b books) (holds bool, says string)) Check {
	return func(h *history.History) Finding {
		if len(h.Audits) == 0 {
			return inconclusive("the stock was never audited")
		}
		b := booksOf(h)
		f := Finding{Numbers: b.numbers()}
		f.Holds, f.Says = judge(b)
		return f
	}
}

func booksOf(h *history.History) (b books) {
	for i, a := range lastAudits(h) {
		b.initial += a.Initial
		b.sold += a.Sold
		b.left += a.Stock
		b.oversold += a.Oversold
		b.lost += max(0, a.Lost)
		b.gone += max(0, -a.Lost)
		b.below += max(0, -a.Stock)
		if i == 0 || a.Stock < b.lowest {
			b.lowest = a.Stock
		}
	}
	for _, s := range h.Samples {
		b.lowest = min(b.lowest, s.Stock)
	}
	return b
}

func (b books) numbers() map[string]float64 {
	return map[string]float64{
		"initial_units":    float64(b.initial),
		"sold_units":       float64(b.sold),
		"left_units":       float64(b.left),
		"oversold_units":   float64(b.oversold),
		"lost_units":       float64(b.lost),
		"gone_units":       float64(b.gone),
		"below_zero_units": float64(b.below),
		"lowest_units":     float64(b.lowest),
	}
}

// lastAudits are the latest audits, by item.
func lastAudits(h *history.History) []history.Audit {
	last := make(map[int64]history.Audit)
	for _, a := range h.Audits {
		if known, seen := last[a.GoodsID]; !seen || !a.At.Before(known.At) {
			last[a.GoodsID] = a
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b history.Audit) int { return cmp.Compare(a.GoodsID, b.GoodsID) })
}
