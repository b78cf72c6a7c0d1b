package checker_test

import (
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/stock"
)

func TestTheBooks(t *testing.T) {
	clean := of(audit(0, 10, 10, 10))
	earlier := history.Audit{At: at(0), Audit: stock.NewAudit(7, 10, 10, 12, 12)}
	sample := history.Sample{At: at(1), GoodsID: 7, Stock: -1}
	of8 := func(left, initial, sold, orders int64) history.Audit {
		return history.Audit{At: at(1_000_000), Audit: stock.NewAudit(8, left, initial, sold, orders)}
	}
	belowZero := of8(-1, 5, 6, 6)
	judge(t, []row{
		{"oversold", checker.Oversold(), of(audit(0, 10, 12, 12)), true, map[string]float64{"oversold_units": 2, "initial_units": 10, "sold_units": 12}},
		{"oversold by one", checker.Oversold(), of(audit(0, 10, 11, 11)), true, map[string]float64{"oversold_units": 1}},
		{"not oversold", checker.Oversold(), clean, false, map[string]float64{"oversold_units": 0}},
		{"oversold, never audited", checker.Oversold(), of(sold(0, 1)), false, nil},
		{"oversold, by an audit that a later one overtook", checker.Oversold(), of(audit(0, 10, 10, 10), earlier), false, nil},

		{"updates lost", checker.LostUpdates(), of(audit(4, 10, 8, 8)), true, map[string]float64{"lost_units": 2}},
		{"one update lost", checker.LostUpdates(), of(audit(3, 10, 8, 8)), true, map[string]float64{"lost_units": 1}},
		{"no update lost", checker.LostUpdates(), clean, false, nil},
		{"stock gone is no lost update", checker.LostUpdates(), of(audit(1, 10, 8, 8)), false, map[string]float64{"gone_units": 1, "lost_units": 0}},

		{"below zero", checker.Oversold(), of(audit(-2, 10, 12, 12)), true, map[string]float64{"below_zero_units": 2, "lowest_units": -2}},
		{"below zero for a moment", checker.Oversold(), of(audit(0, 10, 10, 10), sample), false, map[string]float64{"lowest_units": -1}},

		{"sold out", checker.SoldOut(10), clean, true, map[string]float64{"left_units": 0}},
		{"not as much as was to be sold", checker.SoldOut(11), clean, false, nil},
		{"sold out and oversold", checker.SoldOut(10), of(audit(0, 10, 11, 11)), false, nil},
		{"one left", checker.SoldOut(10), of(audit(1, 10, 9, 9)), false, map[string]float64{"left_units": 1}},
		{"one rejected while it was there", checker.SoldOut(10), of(rejected(0, 1), audit(1, 10, 9, 9)), false, map[string]float64{"undersold_units": 1}},
		{"one rejected while another is below zero", checker.SoldOut(10), of(rejected(0, 1), audit(1, 5, 4, 4), belowZero), false, map[string]float64{"left_units": 0, "undersold_units": 1}},
		{"all sold, and one left in the row", checker.SoldOut(10), of(audit(1, 10, 10, 10)), false, map[string]float64{"left_units": 1}},
		{"all sold, and one gone", checker.SoldOut(10), of(audit(0, 11, 10, 10)), false, nil},
		{"two rejected one by one while they were there", checker.SoldOut(10), of(rejected(0, 1), rejected(1, 2), audit(2, 10, 8, 8)), false, map[string]float64{"undersold_units": 2}},
		{"two items sold out", checker.SoldOut(15), of(audit(0, 10, 10, 10), of8(0, 5, 5, 5)), true, nil},
		{"one oversold by what another has left", checker.SoldOut(15), of(audit(1, 10, 9, 9), of8(-1, 5, 6, 6)), false, map[string]float64{"oversold_units": 1}},
		{"one oversold by what another has lost", checker.SoldOut(15), of(audit(0, 10, 11, 11), of8(0, 5, 4, 4)), false, nil},
		{"none left, and one not sold", checker.SoldOut(10), of(audit(0, 10, 9, 9)), false, nil},
		{"one short by what another has left", checker.SoldOut(15), of(audit(1, 10, 10, 10), of8(-1, 5, 5, 5)), false, map[string]float64{"below_zero_units": 1}},
		{"two items wrong", checker.Oversold(), of(audit(-1, 10, 13, 13), of8(-2, 5, 9, 9)), true, map[string]float64{"oversold_units": 7, "lost_units": 4, "below_zero_units": 3}},
		{"two items short", checker.Oversold(), of(audit(1, 10, 7, 7), of8(1, 5, 3, 3)), false, map[string]float64{"gone_units": 3}},
		{"sold out, never audited", checker.SoldOut(0), of(sold(0, 1)), false, nil},
	})
}

func TestClean(t *testing.T) {
	two := []history.Request{sold(0, 1, order("a")), sold(1, 2, order("b"))}
	overReturned := history.Audit{At: at(1_000_000), Audit: stock.AuditOf(7, 9, stock.Sums{Restocked: 10, Sold: 2, Orders: 2, Held: -1})}
	counted, miscounted := audit(8, 10, 2, 2), audit(8, 10, 2, 2)
	counted.Audit, miscounted.Audit = counted.With(stock.Buyers{}), miscounted.With(stock.Buyers{Miscounted: 1})
	judge(t, []row{
		{"clean", checker.Clean(), of(two, audit(8, 10, 2, 2)), true, map[string]float64{"orders": 2, "sold_answers": 2}},
		{"an unknown outcome that did not happen", checker.Clean(), of(two, unknown(0, 9), audit(8, 10, 2, 2)), true, map[string]float64{"unknown_answers": 1}},
		{"an unknown outcome that happened", checker.Clean(), of(two, unknown(0, 9), audit(7, 10, 3, 3)), true, nil},
		{"a sale that is replayed under its key", checker.Clean(), of(sold(0, 1, order("a"), key("k")), sold(2, 3, order("a"), key("k")), audit(9, 10, 1, 1)), true, nil},
		{"an unknown outcome that its key cleared up", checker.Clean(), of(unknown(0, 1, key("k")), sold(2, 3, order("a"), key("k")), audit(9, 10, 1, 1)), true, map[string]float64{"unknown_answers": 0}},
		{"an item without a sale", checker.Clean(), of(two, audit(8, 10, 2, 2), history.Audit{At: at(1_000_000), Audit: stock.NewAudit(8, 5, 5, 0, 0)}), true, nil},
		{"an item without a sale, and is short", checker.Clean(), of(two, audit(8, 10, 2, 2), history.Audit{At: at(1_000_000), Audit: stock.NewAudit(8, 4, 5, 1, 1)}), false, nil},
		{"counted buyers", checker.Clean(), of(two, counted), true, nil},
		{"two items", checker.Clean(), of(two, sold(0, 1, goods(8)), audit(8, 10, 2, 2), history.Audit{At: at(1_000_000), Audit: stock.NewAudit(8, 4, 5, 1, 1)}), true, map[string]float64{"orders": 3, "sold_answers": 3}},
		{"two unknown outcomes that happened", checker.Clean(), of(two, unknown(0, 9), unknown(0, 9), audit(6, 10, 4, 4)), true, map[string]float64{"unknown_answers": 2}},
		{"an unknown outcome behind one that its key cleared up", checker.Clean(), of(unknown(0, 1, key("k")), sold(2, 3, order("a"), key("k")), unknown(4, 5), audit(8, 10, 2, 2)), true, map[string]float64{"unknown_answers": 1}},
		{"all rejected", checker.Clean(), of(rejected(0, 1), audit(0, 0, 0, 0)), true, nil},

		{"a sale without an answer", checker.Clean(), of(two, audit(7, 10, 3, 3)), false, nil},
		{"more than the unknown outcomes explain", checker.Clean(), of(two, unknown(0, 9), audit(6, 10, 4, 4)), false, nil},
		{"as many orders and more units", checker.Clean(), of(two, audit(7, 10, 3, 2)), false, nil},
		{"as many units and more orders", checker.Clean(), of(two, audit(8, 10, 2, 3)), false, nil},
		{"as many units and fewer orders", checker.Clean(), of(two, audit(8, 10, 2, 1)), false, nil},
		{"more given back than was held", checker.Clean(), of(two, overReturned), false, nil},
		{"a buyer is miscounted", checker.Clean(), of(two, miscounted), false, nil},
		{"never audited", checker.Clean(), of(two), false, nil},
		{"no requests", checker.Clean(), of(audit(10, 10, 0, 0)), false, nil},
		{"nothing decided", checker.Clean(), of(failed("busy", 0, 1), audit(10, 10, 0, 0)), false, nil},
	})
}

func TestItemsThatShareANumberOrAKey(t *testing.T) {
	twoItems := of(sold(0, 1, order("1")), sold(1, 2, order("1"), goods(8)), sold(2, 3, order("2")))
	twoKeys := of(sold(0, 1, order("1"), key("a")), sold(1, 2, order("2"), key("a"), goods(8)))
	again := failed("key-reused", 1, 2, key("a"), goods(8))
	one := of(sold(0, 1, order("1"), key("a")), again, sold(2, 3, order("1"), key("a")), sold(3, 4, order("2")), sold(4, 5, order("3"), goods(8)))
	busy := of(sold(0, 1, order("1"), key("a")), again, failed("busy", 2, 3, key("a"), goods(8)))
	judge(t, []row{
		{"a number of two items", checker.SharedNumbers(), twoItems, true, map[string]float64{"numbers_of_two_items": 1, "keys_of_two_items": 0}},
		{"a key of two items", checker.SharedKeys(), twoKeys, true, map[string]float64{"numbers_of_two_items": 0, "keys_of_two_items": 1}},
		{"no number of two items", checker.SharedNumbers(), twoKeys, false, nil},
		{"no key of two items", checker.SharedKeys(), twoItems, false, nil},
		{"a key that was rejected for another item", checker.SharedKeys(), one, false, nil},
		{"nothing is shared", checker.NothingShared(), one, true, map[string]float64{"numbers_of_two_items": 0, "keys_of_two_items": 0}},
		{"a number is shared", checker.NothingShared(), of(again, twoItems.Requests, one.Requests), false, nil},
		{"a key is shared", checker.NothingShared(), of(twoKeys.Requests, again), false, nil},
		{"a key was not rejected each time", checker.NothingShared(), busy, false, nil},
		{"no key was sent again", checker.NothingShared(), of(sold(0, 1, order("1"), key("a"))), false, nil},
		{"nothing was sold", checker.NothingShared(), of(failed("busy", 0, 1, key("a")), again), false, nil},
	})
	says(t, checker.NothingShared(), busy, checker.Say("over-items", 1, 0, 2, 0, 1))
}
