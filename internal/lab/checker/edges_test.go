package checker_test

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// says checks the facts of a finding where they are the evidence.
func says(t *testing.T, c checker.Check, h *history.History, want ...checker.Fact) {
	t.Helper()
	if f := c(h); !reflect.DeepEqual(f.Facts, want) {
		t.Errorf("the facts are %v, want %v", f.Facts, want)
	}
}

func TestAFigureThatIsNoNumberWasNotMeasured(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		h := of(history.Figure{Name: "a", Value: v})
		judge(t, []row{
			{"at least", checker.AtLeast("a", 0), h, false, nil},
			{"at most", checker.AtMost("a", 0), h, false, nil},
			{"reported", checker.Reported("a"), h, false, nil},
		})
	}
	if f := checker.Reported("a", "b")(of(history.Figure{Name: "b", Value: 1})); len(f.Facts) != 2 || len(f.Numbers) != 1 {
		t.Errorf("%+v", f)
	}
}

func TestAFigureIsComparedWithAnother(t *testing.T) {
	more := of(history.Figure{Name: "a", Value: 2}, history.Figure{Name: "b", Value: 1})
	judge(t, []row{
		{"more", checker.Exceeds("a", "b"), more, true, map[string]float64{"a": 2}},
		{"less", checker.Exceeds("b", "a"), more, false, nil},
		{"as much", checker.Exceeds("a", "a"), more, false, nil},
		{"the other was not measured", checker.Exceeds("a", "c"), more, false, nil},
		{"it was not measured", checker.Exceeds("c", "a"), more, false, nil},
	})
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		h := of(history.Figure{Name: "a", Value: 2}, history.Figure{Name: "other_figure", Value: v})
		judge(t, []row{{"the other is no number", checker.Exceeds("a", "other_figure"), h, false, nil}})
		says(t, checker.Exceeds("a", "other_figure"), h, checker.Say("not-measured", "other figure"))
	}
}

func TestTheRatioOfTwoStrategies(t *testing.T) {
	of := func(strategy string, sales int) (list []history.Request) {
		for i := range sales {
			r := sold(i, 1000-i) // the first to begin is the last to end
			r.Strategy = strategy
			list = append(list, r)
		}
		list[0].Start = at(0)
		return list
	}
	h := &history.History{Requests: append(of("a", 6), of("b", 3)...)}
	judge(t, []row{{"twice as fast", checker.Faster("a", "b", 1.99), h, true, map[string]float64{"ratio": 2, "a_sales_per_s": 6, "b_sales_per_s": 3}}})
	judge(t, []row{{"no more than twice as fast", checker.Faster("a", "b", 2), h, false, nil}})
}

func TestTimesAndCountsAreReadable(t *testing.T) {
	for want, took := range map[string]time.Duration{
		"0 ms": 0, "0.50 ms": 500 * time.Microsecond, "9.99 ms": 9990 * time.Microsecond, "10 ms": 10 * time.Millisecond,
		"999 ms": 999 * time.Millisecond, "1.00 s": time.Second, "2.50 s": 2500 * time.Millisecond,
	} {
		r := failed("busy", 0, 0)
		r.End = r.Start.Add(took)
		if f := checker.Busy(1, time.Minute)(of(r)); !strings.Contains(f.Says, "1 of 1 request failed") || !strings.Contains(f.Says, " "+want+";") {
			t.Errorf("%s: %q", want, f.Says)
		}
	}
	should.Contain(t, checker.Busy(1, time.Minute)(of(failed("busy", 0, 1), sold(0, 1))).Says, "1 of 2 requests failed")
}

// Each row is a fault that an audit or the answers show; the words name it.
func TestEachFaultIsNamed(t *testing.T) {
	for name, c := range map[string]struct {
		h    *history.History
		want checker.Fact
	}{
		"oversold":                    {of(sold(0, 1), sold(1, 2), audit(0, 1, 2, 2)), checker.Say("units-oversold", 1)},
		"lost":                        {of(sold(0, 1), audit(5, 5, 1, 1)), checker.Say("updates-lost", 1)},
		"gone":                        {of(sold(0, 1), audit(2, 5, 1, 1)), checker.Say("units-gone", 2)},
		"below zero":                  {of(sold(0, 1), sold(1, 2), audit(-1, 1, 2, 2)), checker.Say("below-zero", -1)},
		"an order for two keys":       {of(sold(0, 1, order("1"), key("a")), sold(1, 2, order("1"), key("b")), audit(4, 5, 1, 1)), checker.Say("orders-twice", 1)},
		"two orders for a key":        {of(sold(0, 1, order("1"), key("a")), sold(1, 2, order("2"), key("a")), audit(3, 5, 2, 2)), checker.Say("orders-twice", 1)},
		"an order too few":            {of(sold(0, 1, order("1")), sold(1, 2, order("2")), audit(4, 5, 1, 1)), checker.Say("orders-differ", 1, 2, 0)},
		"an order too many":           {of(sold(0, 1, order("1")), audit(3, 5, 2, 2)), checker.Say("orders-differ", 2, 1, 0)},
		"a key that is unknown twice": {of(unknown(0, 1, key("a")), unknown(1, 2, key("a")), sold(2, 3, order("1")), audit(2, 5, 3, 3)), checker.Say("orders-differ", 3, 1, 1)},
		"units too few":               {of(sold(0, 1, order("1"), quantity(2)), audit(4, 5, 1, 1)), checker.Say("units-differ", 1, 2, 0)},
		"audited too early":           {of(sold(0, 1_000_500), sold(1, 2), audit(3, 5, 2, 2)), checker.Say("audited-early", 500*millisecond)},
		"another item":                {of(sold(0, 1), sold(0, 1, goods(8)), audit(4, 5, 1, 1)), checker.Say("item-never-audited", 8)},
	} {
		f := checker.Clean()(c.h)
		if f.Holds || !slices.ContainsFunc(f.Facts, func(one checker.Fact) bool { return reflect.DeepEqual(one, c.want) }) {
			t.Errorf("%s: holds %v and says %q, want %v", name, f.Holds, f.Says, c.want)
		}
	}
	says(t, checker.Clean(), of(sold(0, 1, order("1")), unknown(1, 2), audit(3, 5, 2, 2)),
		checker.Say("consistent", 2, 1, 1))
	anonymous := of(sold(0, 1, order("")), sold(1, 2, order("")), audit(3, 5, 2, 2))
	judge(t, []row{{"answers without an order are sales of their own", checker.Clean(), anonymous, true, map[string]float64{"sold_answers": 2, "orders_given_twice": 0}}})
	replayed := of(sold(0, 1, order("1"), key("a")), sold(1, 2, order("1"), key("a")), audit(4, 5, 1, 1))
	judge(t, []row{{"an answer that is repeated is one sale", checker.Clean(), replayed, true, map[string]float64{"sold_answers": 1, "orders_given_twice": 0}}})
}

func TestTheLastAuditOfEachItemCounts(t *testing.T) {
	early := history.Audit{At: at(10), Audit: stock.NewAudit(7, 1, 5, 9, 9)}
	other := history.Audit{At: at(10), Audit: stock.NewAudit(8, -2, 4, 6, 6)}
	sample := history.Sample{GoodsID: 7, Stock: -5}
	for _, h := range []*history.History{of(early, audit(4, 5, 1, 1), other), of(audit(4, 5, 1, 1), early, other)} {
		judge(t, []row{{"oversold", checker.Oversold(), h, true, map[string]float64{
			"initial_units": 9, "sold_units": 7, "left_units": 2, "oversold_units": 2, "below_zero_units": 2, "lowest_units": -2, "lost_units": 0, "gone_units": 0,
		}}})
	}
	judge(t, []row{
		{"the lowest of the samples", checker.Oversold(), of(audit(4, 5, 1, 1), sample), false, map[string]float64{"lowest_units": -5}},
		{"the lowest of the audits", checker.Oversold(), of(audit(4, 5, 1, 1)), false, map[string]float64{"lowest_units": 4}},
	})
}

func TestASaleThatRejectedWhatWasLeftIsNotSoldOut(t *testing.T) {
	h := of(sold(0, 1, quantity(3)), rejected(1, 2, quantity(4)), audit(2, 5, 3, 1))
	judge(t, []row{{"rejected while left", checker.SoldOut(3), h, false, map[string]float64{"undersold_units": 2}}})
	says(t, checker.SoldOut(3), h, checker.Say("sold-out", 5, 3, 2, 3), checker.Say("undersold", 2))
	says(t, checker.SoldOut(11), of(audit(1, 10, 9, 9)), checker.Say("sold-out", 10, 9, 1, 11))
	judge(t, []row{{"rejected once it was sold out", checker.SoldOut(3), of(sold(0, 1, quantity(3)), rejected(1, 2, quantity(2)), history.Audit{At: at(9), Audit: stock.Audit{GoodsID: 7, Initial: 3, Sold: 3, Orders: 1}}), true, nil}})
	// The row agrees, and the ledger does not.
	hidden := of(rejected(0, 1), history.Audit{At: at(9), Audit: stock.Audit{GoodsID: 7, Stock: 0, Initial: 5, Sold: 5, Orders: 5}})
	judge(t, []row{{"sold out", checker.SoldOut(5), hidden, true, nil}})
	late := of(rejected(0, 1), history.Audit{At: at(9), Audit: stock.Audit{GoodsID: 7, Stock: 0, Initial: 6, Sold: 5, Orders: 5}})
	judge(t, []row{{"not all of them", checker.SoldOut(5), late, false, map[string]float64{"undersold_units": 1}}})
}

// Each row has what was sent, in whatever order it was recorded, and what is right of it.
func TestPurchasesAreCountedAsTheyWereMeant(t *testing.T) {
	for name, c := range map[string]struct {
		h           *history.History
		once, twice bool
		want        map[string]float64
	}{
		"one that was repeated under its key": {
			of(unknown(0, 1, key("a")), sold(1, 2, key("a"), order("1")), audit(4, 5, 1, 1)), true, false,
			map[string]float64{"purchases": 1, "repeated_purchases": 1, "orders": 1},
		},
		"one that stays unknown": {
			of(unknown(0, 1, key("a")), unknown(1, 2, key("a")), sold(2, 3, order("1")), audit(3, 5, 2, 2)), true, false,
			map[string]float64{"purchases": 2, "repeated_purchases": 1, "orders": 2},
		},
		"one that was sold twice": {
			of(unknown(0, 1), sold(1, 2, order("2")), audit(3, 5, 2, 2)), false, true,
			map[string]float64{"purchases": 1, "repeated_purchases": 1, "orders": 2},
		},
		"recorded the other way round": {
			of(sold(1, 2, order("2")), unknown(0, 1), audit(3, 5, 2, 2)), false, true,
			map[string]float64{"purchases": 1, "repeated_purchases": 1},
		},
		"another one after an answer": {
			of(sold(0, 1, order("1")), unknown(1, 2), audit(3, 5, 2, 2)), false, false,
			map[string]float64{"purchases": 2, "repeated_purchases": 0},
		},
		"two orders under one key": {
			of(sold(0, 1, key("a"), order("1")), sold(1, 2, key("a"), order("2")), audit(4, 5, 1, 1)), false, false,
			map[string]float64{"purchases": 1, "repeated_purchases": 1, "orders": 1},
		},
		"a failure that names an order": {
			of(failed("busy", 0, 1, key("a"), order("1")), sold(1, 2, key("a"), order("2")), audit(4, 5, 1, 1)), true, false, map[string]float64{"purchases": 1},
		},
		"one without an order": {
			of(sold(0, 1, key("a"), order("")), sold(1, 2, key("a"), order("2")), audit(4, 5, 1, 1)), true, false, map[string]float64{"purchases": 1},
		},
	} {
		judge(t, []row{
			{name + ", once", checker.DeductedOnce(), c.h, c.once, c.want},
			{name + ", twice", checker.DeductedTwice(), c.h, c.twice, c.want},
		})
	}
}

func TestAStaleWriteIsDescribed(t *testing.T) {
	stale := of(sold(0, 100, token(1), left(5)), sold(50, 90, token(2), left(9)))
	judge(t, []row{{"accepted", checker.StaleWritesRejected(), stale, false, map[string]float64{"stale_writes": 1, "sales_with_token": 2}}})
	says(t, checker.StaleWritesRejected(), stale, checker.Say("stale-accepted", 1, 1, 5, 2, 10), checker.Say("fenced-off", 0, 0))
	// The later holder read what the earlier one had left.
	fresh := of(sold(0, 100, token(1), left(5)), sold(50, 90, token(2), left(4)), failed("fenced", 0, 1), failed("lease-lost", 0, 1))
	judge(t, []row{{"none accepted", checker.StaleWritesRejected(), fresh, true, map[string]float64{"fenced_requests": 1, "lease_lost_requests": 1}}})
	says(t, checker.StaleWritesRejected(), fresh, checker.Say("none-stale", 2), checker.Say("fenced-off", 1, 1))
	says(t, checker.StaleWritesRejected(), of(sold(0, 1)), checker.Say("no-token"), checker.Say("fenced-off", 0, 0))
	// Of several later ones only one that was not over before counts.
	anew := of(sold(500, 600, token(1), left(5)), sold(0, 100, token(2), left(9)), sold(450, 550, token(3), left(4)))
	judge(t, []row{{"tokens that began anew", checker.StaleWritesRejected(), anew, false, map[string]float64{"stale_writes": 0}}})
}

func TestARepeatedTokenNamesItsHolders(t *testing.T) {
	h := of(lease("a", 0, 10, 7), lease("b", 20, 30, 7))
	judge(t, []row{{"twice", checker.RepeatedTokens(), h, true, map[string]float64{"repeated_tokens": 1}}})
	says(t, checker.RepeatedTokens(), h, checker.Say("same-token", "a", "b", 7, "n"))
	says(t, checker.RepeatedTokens(), of(lease("a", 0, 10, 7), lease("b", 20, 30, 8)), checker.Say("no-same-token"))
}

// Only another holder of the same name by the same lock, at that very time, is a reason to give up.
func TestAContenderIsRejectedByAnotherHolder(t *testing.T) {
	gaveUp, elsewhere, otherLock := asks("b", 10, 15), lease("a", 0, 100, 1), lease("a", 0, 100, 1)
	elsewhere.Name, otherLock.Lock = "m", "etcd"
	never := asks("a", 0, 0)
	judge(t, []row{
		{"held", checker.RejectedWithin(5 * millisecond), of(lease("a", 0, 100, 1), gaveUp), true, map[string]float64{"refused_tries": 1, "longest_refused_try_ms": 5}},
		{"held, and too late", checker.RejectedWithin(4 * millisecond), of(lease("a", 0, 100, 1), gaveUp), false, nil},
		{"held to the end", checker.RejectedWithin(5 * millisecond), of(lease("a", 0, 0, 1), gaveUp), true, nil},
		{"held until then", checker.RejectedWithin(time.Second), of(lease("a", 0, 15, 1), gaveUp), false, nil},
		{"another name is held", checker.RejectedWithin(time.Second), of(elsewhere, gaveUp), false, nil},
		{"another lock is held", checker.RejectedWithin(time.Second), of(otherLock, gaveUp), false, nil},
		{"held by itself", checker.RejectedWithin(time.Second), of(lease("b", 0, 100, 1), gaveUp), false, nil},
		{"waited for by another", checker.RejectedWithin(time.Second), of(never, gaveUp), false, nil},
		{"given up after its end", checker.RejectedWithin(time.Second), of(lease("a", 0, 12, 1), gaveUp), false, nil},
		{"free", checker.RejectedWithin(time.Second), of(gaveUp), false, nil},
		{"not given up", checker.RejectedWithin(time.Second), of(lease("a", 0, 100, 1)), false, nil},
		{"granted later", checker.RejectedWithin(time.Second), of(lease("a", 20, 100, 1), gaveUp), false, nil},
	})
	says(t, checker.RejectedWithin(4*millisecond), of(lease("a", 0, 100, 1), gaveUp), checker.Say("gave-up", 1, 1, 4*millisecond), checker.Say("longest-took", 5*millisecond))
}

func TestHoldersAreNamedWithTheirOverlap(t *testing.T) {
	says(t, checker.OverlappingHolders(), of(lease("a", 0, 30, 1), lease("b", 10, 20, 2)), checker.Say("overlaps", 1, 2, "a", "b", "n", 10*millisecond))
	says(t, checker.ExclusiveHolders(), of(lease("a", 0, 10, 1), lease("b", 10, 20, 2)), checker.Say("no-overlap", 2))
	says(t, checker.ExclusiveHolders(), of(lease("a", 0, 10, 1)), checker.Say("too-few-leases", 1))
	first, second := lease("c", 50, 90, 1), lease("d", 60, 80, 2)
	first.Name, second.Name = "m", "m"
	overlaps := checker.Overlaps(of(first, second, lease("a", 0, 30, 1), lease("b", 10, 20, 2)))
	if len(overlaps) != 2 || overlaps[0].A.Holder != "a" || overlaps[1].A.Holder != "c" {
		t.Errorf("the overlaps are not in the order of time: %v", overlaps)
	}
	const ttl = 100 * millisecond
	judge(t, []row{
		{"within a tenth of the TTL from its end", checker.TakenEarly(ttl), of(lease("a", 0, 300, 1), lease("b", 90, 120, 2)), false, nil},
		{"just before", checker.TakenEarly(ttl), of(lease("a", 0, 300, 1), lease("b", 89, 120, 2)), true, nil},
	})
}

func TestAWaitIsMeasuredToItsEdges(t *testing.T) {
	end, crash := mark("", 5000, "the end"), mark("a", 100, "killed")
	next := lease("b", 1100, 1200, 2)
	next.Asked = at(50)
	freed := of(lease("a", 0, 0, 1), crash, next, end)
	waits := of(lease("a", 0, 0, 1), crash, asks("c", 2000, 3000), asks("b", 50, 2500), end)
	judge(t, []row{
		{"so long, and no longer", checker.Deadlocked(2900 * millisecond), waits, true, map[string]float64{"longest_deadlock_ms": 2900}},
		{"a nanosecond less", checker.Deadlocked(2900*millisecond + 1), waits, false, nil},
		{"waited beyond the next grant", checker.Deadlocked(time.Second), of(lease("a", 0, 0, 1), crash, next, asks("c", 50, 4000), end), true, map[string]float64{"longest_deadlock_ms": 2900}},
		{"freed as soon as allowed", checker.FreedBetween(1000*millisecond, 2000*millisecond), freed, true, map[string]float64{"soonest_freed_ms": 1000}},
	})
	says(t, checker.Deadlocked(time.Second), freed, checker.Say("stalled-by-death", "n", time.Second, "a", time.Second), checker.Say("exactly", time.Second))
	says(t, checker.Deadlocked(time.Second), of(lease("a", 0, 0, 1), asks("b", 0, 3000), end),
		checker.Say("stalled-by-holder", "n", 5*time.Second, "a", 3*time.Second), checker.Say("exactly", time.Second))
	slow := of(sold(0, 100, waited(20)), sold(0, 100, waited(20)), sold(0, 100, waited(80)))
	says(t, checker.Unfair(4, checker.OfClients()), slow, checker.Say("waits", 3, 80*millisecond, "4.0", 20*millisecond), checker.Say("at-least-times", "4.0"))
	says(t, checker.InTurn(3), of(lease("a", 0, 0, 1)), checker.Say("overtaken", 0), checker.Say("at-most", 3))
	says(t, checker.Waited(checker.OfClients()), slow, checker.Say("waits", 3, 80*millisecond, "4.0", 20*millisecond))
}

// Each row has five units, and requests under one key beside a sale.
func TestRequestsUnderOneKeyAreOnePurchase(t *testing.T) {
	five := audit(3, 5, 2, 2)
	for name, c := range map[string]struct {
		h     *history.History
		legal bool
	}{
		"it took effect when it was first sent":         {of(unknown(0, 1, key("k")), sold(50, 60, key("k"), order("a"), left(4)), sold(10, 20, order("b"), left(3)), five), true},
		"a try that failed did nothing":                 {of(failed("busy", 0, 1, key("k")), sold(50, 60, key("k"), order("a"), left(4)), sold(10, 20, order("b"), left(3)), five), false},
		"it took effect before its first answer":        {of(sold(0, 100, key("k"), order("a"), left(3)), sold(0, 10, key("k"), order("a"), left(3)), sold(20, 30, order("b"), left(4)), five), false},
		"it may take effect until its only answer":      {of(sold(0, 100, key("k"), order("a"), left(3)), sold(20, 30, order("b"), left(4)), five), true},
		"what was sold took no other unit":              {of(unknown(0, 1, key("k")), sold(2, 3, key("k"), order("a"), left(4)), sold(4, 5, order("b"), left(2)), five), false},
		"what is unknown took one unit at most":         {of(unknown(0, 1, key("k")), unknown(2, 3, key("k")), sold(4, 5, order("a"), left(2)), sold(6, 7, order("b"), left(1)), five), false},
		"two that are unknown may have taken two units": {of(unknown(0, 1), unknown(2, 3), sold(4, 5, order("a"), left(2)), sold(6, 7, order("b"), left(1)), five), true},
	} {
		f := checker.Linearizable()(c.h)
		should.Be(t, f.Holds, c.legal, name, "linearizable", f.Says)
		if f := checker.NotLinearizable()(c.h); f.Holds == c.legal {
			t.Errorf("%s: not linearizable %v, want %v: %s", name, f.Holds, !c.legal, f.Says)
		}
	}
}

func TestAnOrderOfPurchasesIsDescribed(t *testing.T) {
	five := audit(3, 5, 2, 2)
	says(t, checker.Linearizable(), of(sold(0, 1, left(4)), sold(2, 3, left(3)), five), checker.Say("linearizable", 2, 2, 1))
	says(t, checker.Linearizable(), of(sold(0, 1, left(4)), audit(4, 5, 1, 1)), checker.Say("too-few-sold"))
	says(t, checker.Linearizable(), of(sold(0, 1, left(4)), sold(2, 3, left(3))), checker.Say("undecided"), checker.Say("unknown-stock", 7))
	again := lease("a", 5, 8, 1)
	again.ID = "a again"
	out := asks("a", 6, 200)
	out.ID = "a, a third time"
	says(t, checker.Reentered(), of(lease("a", 0, 10, 1), again, out), checker.Say("reentered", 2, 1))
}
