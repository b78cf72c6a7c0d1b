package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/stock"
)

// Clean expects that nothing went wrong with the stock of any item, and that the
// ledger has what the buyers received: no fewer orders than sales that were
// answered, and no more than these and those whose outcome is unknown. The audit
// must have been made after the last answer. A history in which no purchase was
// decided does not hold.
func Clean() Check {
	return func(h *history.History) Finding {
		if len(h.Audits) == 0 {
			return inconclusive("never-audited")
		}
		answers := reportedOf(h)
		if !slices.ContainsFunc(slices.Collect(maps.Values(answers)), (*reported).decided) {
			return inconclusive("nothing-decided")
		}
		numbers := booksOf(h).numbers()
		var wrong []Fact
		var all reported
		for _, a := range lastAudits(h) {
			t := answers[a.GoodsID]
			delete(answers, a.GoodsID)
			if t == nil {
				t = &reported{}
			}
			all.sold, all.unknown, all.twice = all.sold+t.sold, all.unknown+t.unknown, all.twice+t.twice
			wrong = append(wrong, faults(a, t)...)
			numbers["orders"] += float64(a.Orders)
		}
		for _, item := range slices.Sorted(maps.Keys(answers)) {
			wrong = append(wrong, Say("item-never-audited", item))
		}
		numbers["sold_answers"] = float64(all.sold)
		numbers["unknown_answers"] = float64(all.unknown)
		numbers["orders_given_twice"] = float64(all.twice)
		if len(wrong) > 0 {
			return Found(false, numbers, append([]Fact{Say("inconsistent")}, wrong...)...)
		}
		return Found(true, numbers, Say("consistent", numbers["orders"], all.sold, all.unknown))
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

// faults are the inconsistencies of an item.
func faults(a history.Audit, t *reported) (wrong []Fact) {
	add := func(wrongHere bool, code string, args ...any) {
		if wrongHere {
			wrong = append(wrong, Say(code, args...))
		}
	}
	add(a.Oversold != 0, "units-oversold", a.Oversold)
	add(a.Lost > 0, "updates-lost", a.Lost)
	add(a.Lost < 0, "units-gone", -a.Lost)
	add(a.Stock < 0, "below-zero", a.Stock)
	add(t.twice > 0, "orders-twice", t.twice)
	add(a.Orders < t.sold || a.Orders > t.sold+t.unknown, "orders-differ", a.Orders, t.sold, t.unknown)
	add(a.Sold < t.soldUnits || a.Sold > t.soldUnits+t.unknownUnits, "units-differ", a.Sold, t.soldUnits, t.unknownUnits)
	add(a.Held < 0, "not-held", -a.Held)
	if a.Buyers != nil {
		add(*a.Buyers != (stock.Buyers{}), "buyers-wrong", fmt.Sprintf("%+v", *a.Buyers))
	}
	add(a.At.Before(t.last), "audited-early", t.last.Sub(a.At))
	return wrong
}

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

func byItem(requests []history.Request) map[int64][]history.Request {
	all := make(map[int64][]history.Request)
	for _, r := range requests {
		all[r.GoodsID] = append(all[r.GoodsID], r)
	}
	return all
}

// books is the sum of the last audits of all items, in units.
type books struct{ initial, sold, left, oversold, lost, gone, below, lowest int64 }

// Oversold expects that more was sold than there was.
func Oversold() Check {
	return audited(func(b books) (bool, Fact) {
		return b.oversold > 0, Say("oversold", b.initial, b.sold, b.oversold)
	})
}

// LostUpdates expects that the row shows more than the ledger has left of it.
func LostUpdates() Check {
	return audited(func(b books) (bool, Fact) {
		return b.lost > 0, Say("lost-updates", b.initial, b.sold, b.left, b.lost)
	})
}

// SoldOut expects that exactly so many units were sold, and that none is left: a surplus of one item
// does not make up for the lack of another.
func SoldOut(units int64) Check {
	return func(h *history.History) Finding {
		f := audited(func(b books) (bool, Fact) {
			holds := b.sold == units && b.initial == units && b.left == 0 && b.oversold == 0 && b.below == 0
			return holds, Say("sold-out", b.initial, b.sold, b.left, units)
		})(h)
		if early := undersold(h); early > 0 { // something is left, then, and it does not hold
			f.add(Say("undersold", early))
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
func audited(judge func(b books) (holds bool, says Fact)) Check {
	return func(h *history.History) Finding {
		if len(h.Audits) == 0 {
			return inconclusive("never-audited")
		}
		b := booksOf(h)
		holds, says := judge(b)
		return Found(holds, b.numbers(), says)
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

func lastAudits(h *history.History) []history.Audit {
	last := make(map[int64]history.Audit)
	for _, a := range h.Audits {
		if known, seen := last[a.GoodsID]; !seen || !a.At.Before(known.At) {
			last[a.GoodsID] = a
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b history.Audit) int { return cmp.Compare(a.GoodsID, b.GoodsID) })
}

// DeductedTwice expects that the ledger has more orders than there were purchases
// meant, where some were sent more than once.
//
// Requests mean the same purchase where they carry the same key, and where one
// without a key repeats the client's last one, of the same item and quantity,
// because nothing is known of its outcome.
func DeductedTwice() Check {
	return duplicates(func(d meant) bool { return d.repeated > 0 && d.orders > d.possible })
}

// DeductedOnce expects that purchases were sent more than once, and that the
// ledger has each that was sold once: no fewer orders than purchases that were
// answered as sold, and no more than these and those of unknown outcome.
func DeductedOnce() Check {
	return duplicates(func(d meant) bool {
		return d.repeated > 0 && d.sold <= d.orders && d.orders <= d.possible && d.orders > 0 && d.twice == 0
	})
}

// meant counts purchases as their buyers meant them.
type meant struct {
	purchases int64
	repeated  int64 // were sent more than once
	sold      int64
	possible  int64 // sold, or perhaps
	twice     int64 // have two orders, by their answers
	orders    int64 // that the ledger has
}

func duplicates(judge func(d meant) bool) Check {
	return func(h *history.History) Finding {
		if len(h.Audits) == 0 {
			return inconclusive("never-audited")
		}
		d := meantOf(h)
		return Found(judge(d), map[string]float64{
			"purchases": float64(d.purchases), "repeated_purchases": float64(d.repeated), "orders": float64(d.orders),
			"deducted_twice": float64(max(d.twice, d.orders-d.possible, 0)),
		}, Say("duplicates", d.purchases, d.repeated, d.orders, d.sold, d.possible))
	}
}

func meantOf(h *history.History) (d meant) {
	for _, sent := range purchases(h.Requests) {
		orders := make(map[string]bool)
		sold, unknown := false, false
		for _, r := range sent {
			sold = sold || r.Outcome == history.Sold
			unknown = unknown || r.Outcome == history.Unknown
			if r.Outcome == history.Sold && r.Order != "" {
				orders[r.Order] = true
			}
		}
		d.purchases++
		d.repeated += int64(OneIf(len(sent) > 1))
		d.sold += int64(OneIf(sold))
		d.possible += int64(OneIf(sold || unknown))
		d.twice += int64(OneIf(len(orders) > 1))
	}
	for _, a := range lastAudits(h) {
		d.orders += a.Orders
	}
	return d
}

// SharedNumbers expects that sales of different items have an order number in common.
func SharedNumbers() Check { return shared(func(s sharing) bool { return s.numbers > 0 }) }

// SharedKeys expects that several items were sold under one key.
func SharedKeys() Check { return shared(func(s sharing) bool { return s.keys > 0 }) }

// NothingShared expects that neither is so, and that a key was sent again for another item, and rejected each time.
func NothingShared() Check {
	return shared(func(s sharing) bool {
		return s.sold > 0 && s.numbers == 0 && s.keys == 0 && s.again > 0 && s.again == s.rejected
	})
}

// sharing counts sales whose order number, or key, a sale of another item has had, and requests whose key another item was
// asked for with.
type sharing struct{ sold, numbers, keys, again, rejected int }

func shared(judge func(s sharing) bool) Check {
	return func(h *history.History) Finding {
		var s sharing
		asked, soldUnder, numbered := make(map[string]int64), make(map[string]int64), make(map[string]int64)
		for _, r := range h.Requests {
			if ofAnother(asked, r.Key, r.GoodsID) {
				s.again++
				s.rejected += int(OneIf(r.Problem == "key-reused"))
			}
			if r.Outcome == history.Sold {
				s.sold++
				s.keys += int(OneIf(ofAnother(soldUnder, r.Key, r.GoodsID)))
				s.numbers += int(OneIf(ofAnother(numbered, r.Order, r.GoodsID)))
			}
		}
		return Found(judge(s), map[string]float64{"numbers_of_two_items": float64(s.numbers), "keys_of_two_items": float64(s.keys)},
			Say("over-items", s.sold, s.numbers, s.again, s.keys, s.rejected))
	}
}

// ofAnother tells whether something was first that of another item.
func ofAnother(first map[string]int64, what string, item int64) bool {
	if _, known := first[what]; !known {
		first[what] = item
	}
	return what != "" && first[what] != item
}

// OneIf is the figure of what is so, or else is not.
func OneIf(so bool) float64 {
	if so {
		return 1
	}
	return 0
}

func purchases(requests []history.Request) [][]history.Request {
	inOrder := slices.Clone(requests)
	slices.SortStableFunc(inOrder, func(a, b history.Request) int { return a.Start.Compare(b.Start) })
	var all [][]history.Request
	last := make(map[sender]int) // where the sender's last purchase stands
	for _, r := range inOrder {
		from := sender{goods: r.GoodsID, key: r.Key}
		if r.Key == "" {
			from.quantity, from.client = r.Quantity, r.Client
		}
		i, known := last[from]
		if !known || r.Key == "" && all[i][len(all[i])-1].Outcome != history.Unknown {
			i = len(all)
			all = append(all, nil)
		}
		all[i] = append(all[i], r)
		last[from] = i
	}
	return all
}

// sender is what two requests for the same purchase have in common: the key, or
// where they have none the client and the quantity.
type sender struct {
	goods, quantity int64
	key             string
	client          int
}
