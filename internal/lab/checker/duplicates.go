package checker

import (
	"fmt"
	"slices"

	"github.com/stockd/stockd/internal/lab/history"
)

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
			return inconclusive("the stock was never audited")
		}
		d := meantOf(h)
		return Finding{
			Holds: judge(d),
			Says: fmt.Sprintf("%s meant, %d of them sent more than once, came to %s in the ledger, where %d to %d are right",
				count(d.purchases, "purchase"), d.repeated, count(d.orders, "order"), d.sold, d.possible),
			Numbers: map[string]float64{
				"purchases": float64(d.purchases), "repeated_purchases": float64(d.repeated), "orders": float64(d.orders),
				"deducted_twice": float64(max(d.twice, d.orders-d.possible, 0)),
			},
		}
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
		d.repeated += one(len(sent) > 1)
		d.sold += one(sold)
		d.possible += one(sold || unknown)
		d.twice += one(len(orders) > 1)
	}
	for _, a := range lastAudits(h) {
		d.orders += a.Orders
	}
	return d
}

func one(is bool) int64 {
	if is {
		return 1
	}
	return 0
}

// purchases sorts requests by the purchase that was meant.
func purchases(requests []history.Request) [][]history.Request {
	inOrder := slices.Clone(requests)
	slices.SortStableFunc(inOrder, func(a, b history.Request) int { return a.Start.Compare(b.Start) })
	var all [][]history.Request
	last := make(map[sender]int) // where the sender's last purchase stands
	for _, r := range inOrder {
		from := senderOf(r)
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

func senderOf(r history.Request) sender {
	if r.Key != "" {
		return sender{goods: r.GoodsID, key: r.Key}
	}
	return sender{goods: r.GoodsID, quantity: r.Quantity, client: r.Client}
}
