package checker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// Clean expects that nothing went wrong with the stock of any item, and that the
// ledger has what the buyers received: no fewer orders than sales that were
// answered, and no more than these and those whose outcome is unknown. The audit
// must have been made after the last answer. A history in which no purchase was
// decided does not hold.
func Clean() Check {
	return func(h *history.History) Finding {
		if len(h.Audits) == 0 {
			return inconclusive("the stock was never audited")
		}
		answers := reportedOf(h)
		if !slices.ContainsFunc(slices.Collect(maps.Values(answers)), (*reported).decided) {
			return inconclusive("no purchase was sold or rejected: there is nothing to audit")
		}
		f := Finding{Numbers: booksOf(h).numbers()}
		var wrong []string
		var all reported
		for _, a := range lastAudits(h) {
			t := answers[a.GoodsID]
			delete(answers, a.GoodsID)
			if t == nil {
				t = &reported{}
			}
			all.sold, all.unknown, all.twice = all.sold+t.sold, all.unknown+t.unknown, all.twice+t.twice
			wrong = append(wrong, faults(a, t)...)
			f.Numbers["orders"] += float64(a.Orders)
		}
		for _, item := range slices.Sorted(maps.Keys(answers)) {
			wrong = append(wrong, fmt.Sprintf("item %d was never audited", item))
		}
		f.Numbers["sold_answers"] = float64(all.sold)
		f.Numbers["unknown_answers"] = float64(all.unknown)
		f.Numbers["orders_given_twice"] = float64(all.twice)
		f.Holds = len(wrong) == 0
		f.Says = "inconsistent: " + strings.Join(wrong, ", ")
		if f.Holds {
			f.Says = fmt.Sprintf("consistent: the row agrees with %.0f orders in the ledger, %s answered as sold and %d unknown",
				f.Numbers["orders"], count(all.sold, "purchase"), all.unknown)
		}
		return f
	}
}

// reported is what the buyers of one item received.
type reported struct {
	sold, soldUnits       int64 // a sale whose answer is repeated under its key is one sale
	unknown, unknownUnits int64 // where no other answer under the key says more
	rejected              int64
	twice                 int64 // orders given to two purchases, and keys given two orders
	last                  time.Time
}

func (t *reported) decided() bool { return t.sold+t.rejected > 0 }

// faults are the inconsistencies of an item, in words.
func faults(a history.Audit, t *reported) (wrong []string) {
	add := func(is bool, format string, args ...any) {
		if is {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	add(a.Oversold != 0, "%s oversold", count(a.Oversold, "unit"))
	add(a.Lost > 0, "updates of %s lost", count(a.Lost, "unit"))
	add(a.Lost < 0, "%s gone without a sale", count(-a.Lost, "unit"))
	add(a.Stock < 0, "%d in stock", a.Stock)
	add(t.twice > 0, "%s assigned twice", count(t.twice, "order"))
	add(a.Orders < t.sold || a.Orders > t.sold+t.unknown,
		"%s in the ledger for %d answered as sold and %d unknown", count(a.Orders, "order"), t.sold, t.unknown)
	add(a.Sold < t.soldUnits || a.Sold > t.soldUnits+t.unknownUnits,
		"%s in the ledger for %d answered as sold and %d unknown", count(a.Sold, "unit"), t.soldUnits, t.unknownUnits)
	add(a.At.Before(t.last), "audited %s before the last answer", span(t.last.Sub(a.At)))
	return wrong
}

// reportedOf sums up the answers, by item.
func reportedOf(h *history.History) map[int64]*reported {
	all := make(map[int64]*reported)
	for item, requests := range byItem(h.Requests) {
		t := &reported{}
		all[item] = t
		settled := t.addSold(requests)
		for _, r := range requests {
			if r.End.After(t.last) {
				t.last = r.End
			}
			switch r.Outcome {
			case history.Rejected:
				t.rejected++
			case history.Unknown:
				if r.Key != "" && settled[r.Key] {
					continue
				}
				settled[r.Key] = true
				t.unknown++
				t.unknownUnits += r.Quantity
			case history.Sold, history.Failed:
			}
		}
	}
	return all
}

// addSold counts the sales, and tells which keys were sold under.
func (t *reported) addSold(requests []history.Request) (keys map[string]bool) {
	keys = make(map[string]bool)
	keyOf := make(map[string]string) // by order
	for _, r := range requests {
		if r.Outcome != history.Sold {
			continue
		}
		key, known := keyOf[r.Order]
		known = known && r.Order != ""
		replayed := known && r.Key != "" && r.Key == key
		if known && !replayed || !replayed && r.Key != "" && keys[r.Key] {
			t.twice++
		}
		keys[r.Key] = true
		if !known {
			keyOf[r.Order] = r.Key
			t.sold++
			t.soldUnits += r.Quantity
		}
	}
	return keys
}

// byItem groups requests by item.
func byItem(requests []history.Request) map[int64][]history.Request {
	all := make(map[int64][]history.Request)
	for _, r := range requests {
		all[r.GoodsID] = append(all[r.GoodsID], r)
	}
	return all
}
