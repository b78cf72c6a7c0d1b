package checker_test

import (
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

const millisecond = time.Millisecond

func TestWaits(t *testing.T) {
	h := of(
		sold(0, 100, waited(10), client(1)), sold(0, 100, waited(20), client(2)), sold(0, 100, waited(80), client(3)),
		failed("busy", 0, 300, client(4)),
	)
	sales, all := checker.OfClients(1, 2, 3), checker.OfClients()
	granted := lease("a", 0, 10, 1)
	granted.Asked = at(-50)
	leases := of(granted, asks("b", 0, 40), asks("c", 5, 0), asks("d", 0, 0), mark("d", 7, "killed"), mark("", 100, "the end"))
	asked := func(from, granted int) history.Lease {
		l := lease("a", granted, granted+1, 1)
		l.Asked = at(from)
		return l
	}
	other := asked(1, 10)
	other.Name = "another"
	otherLock := asked(1, 10)
	otherLock.Lock = "etcd"
	turns := of(asked(0, 20), asked(1, 9), asked(2, 5), asked(3, 30))
	judge(t, []row{
		{"one waited so long", checker.WaitedAtLeast(80*millisecond, sales), h, true, map[string]float64{"longest_wait_ms": 80, "p50_wait_ms": 20, "p99_wait_ms": 80, "waits": 3, "longest_to_median": 4}},
		{"none waited so long", checker.WaitedAtLeast(81*millisecond, sales), h, false, nil},
		{"a request that got busy waited to the end", checker.WaitedAtLeast(300*millisecond, all), h, true, nil},
		{"none waited longer", checker.WaitedAtMost(80*millisecond, sales), h, true, nil},
		{"one waited longer", checker.WaitedAtMost(79*millisecond, sales), h, false, nil},
		{"waited between", checker.WaitedBetween(80*millisecond, 80*millisecond, sales), h, true, nil},
		{"waited for less", checker.WaitedBetween(81*millisecond, 90*millisecond, sales), h, false, nil},
		{"waited for more", checker.WaitedBetween(70*millisecond, 79*millisecond, sales), h, false, nil},
		{"of one client", checker.WaitedAtMost(10*millisecond, checker.OfClients(1)), h, true, map[string]float64{"waits": 1}},
		{"of no client, at least", checker.WaitedAtLeast(0, checker.OfClients(9)), h, false, nil},
		{"of an empty history", checker.Waited(all), of(), false, nil},

		{"unfair", checker.Unfair(4, sales), h, true, nil},
		{"not so unfair", checker.Unfair(4.1, sales), h, false, nil},
		{"none waited at all", checker.Waited(all), of(sold(0, 1), sold(0, 1)), true, map[string]float64{"longest_to_median": 0}},

		{"for a lease until the grant", checker.WaitedAtLeast(50*millisecond, checker.OfHolders("a")), leases, true, map[string]float64{"longest_wait_ms": 50}},
		{"until it was given up", checker.WaitedAtLeast(40*millisecond, checker.OfHolders("b")), leases, true, map[string]float64{"longest_wait_ms": 40}},
		{"to the end of the history", checker.Waited(checker.OfHolders("c")), leases, true, map[string]float64{"longest_wait_ms": 95}},
		{"until death", checker.Waited(checker.OfHolders("d")), leases, true, map[string]float64{"longest_wait_ms": 7}},
		{"of all holders", checker.Waited(checker.OfHolders()), leases, true, map[string]float64{"waits": 4}},

		{"overtaken twice", checker.InTurn(2), turns, true, map[string]float64{"most_overtakers": 2}},
		{"more than once", checker.InTurn(1), turns, false, nil},
		{"by those who came later alone", checker.InTurn(0), of(asked(0, 20), asked(1, 21), asked(2, 22)), true, map[string]float64{"most_overtakers": 0}},
		{"while it waited", checker.InTurn(0), of(asked(0, 20), asked(1, 20)), true, nil},
		{"who is never granted a name", checker.InTurn(1), of(asks("a", 0, 0), asked(1, 20), asked(2, 22), mark("", 100, "the end")), false, map[string]float64{"most_overtakers": 2}},
		{"of another name", checker.InTurn(0), of(asked(0, 20), other), true, nil},
		{"of another lock", checker.InTurn(0), of(asked(0, 20), otherLock), true, nil},
		{"by one that was never granted", checker.InTurn(0), of(asked(0, 20), asks("b", 1, 5)), true, nil},
		{"none asked", checker.InTurn(9), of(), false, nil},
	})
}

func TestDistribution(t *testing.T) {
	waits := make([]time.Duration, 200)
	for i := range waits {
		waits[i] = time.Duration(200-i) * millisecond
	}
	want := checker.Distribution{Waits: 200, P50: 100 * millisecond, P99: 198 * millisecond, Longest: 200 * millisecond}
	should.Be(t, checker.Distribute(waits), want, "the distribution")
	if waits[0] != 200*millisecond {
		t.Error("the waits were sorted where they stand")
	}
}

func TestFailures(t *testing.T) {
	h := of(failed("busy", 0, 200), failed("busy", 0, 300), failed("fenced", 0, 900), sold(0, 1), unknown(0, 999))
	judge(t, []row{
		{"busy", checker.Busy(2, 300*millisecond), h, true, map[string]float64{"busy_requests": 2, "longest_busy_ms": 300}},
		{"too few busy", checker.Busy(3, time.Second), h, false, nil},
		{"busy too late", checker.Busy(2, 299*millisecond), h, false, nil},
		{"none busy, where none was asked for", checker.Busy(0, time.Second), of(sold(0, 1)), false, nil},
		{"an outcome", checker.Outcomes(history.Unknown, 1), h, true, map[string]float64{"unknown_requests": 1}},
		{"an outcome too rare", checker.Outcomes(history.Unknown, 2), h, false, nil},
		{"an outcome that never was", checker.Outcomes(history.Rejected, 0), h, false, nil},
	})
}

func TestDeadlock(t *testing.T) {
	end := mark("", 5000, "the end")
	crash := mark("a", 100, "killed")
	second := func(granted int) history.Lease {
		l := lease("b", granted, granted+10, 2)
		l.Asked = at(50)
		return l
	}
	taken := of(lease("a", 0, 0, 1), asks("b", 0, 3000), end)
	judge(t, []row{
		{"the holder died, and all wait for ever", checker.Deadlocked(4 * time.Second), of(lease("a", 0, 0, 1), crash, asks("b", 50, 0), end), true, map[string]float64{"longest_deadlock_ms": 4900}},
		{"they ask again and again", checker.Deadlocked(4 * time.Second), of(lease("a", 0, 0, 1), crash, asks("b", 50, 2500), asks("c", 2000, 3000), asks("b", 3000, 4500), end), true, map[string]float64{"longest_deadlock_ms": 4400}},
		{"the holder took it, and waits for itself", checker.Deadlocked(3 * time.Second), of(lease("a", 0, 3100, 1), asks("a", 1, 3050), end), true, map[string]float64{"longest_deadlock_ms": 3049}},
		{"not so long", checker.Deadlocked(3001 * millisecond), taken, false, nil},
		{"none asked", checker.Deadlocked(time.Second), of(lease("a", 0, 0, 1), crash, end), false, map[string]float64{"longest_deadlock_ms": 0}},
		{"another name was asked for", checker.Deadlocked(time.Second), of(lease("a", 0, 0, 1), crash, func() history.Lease { l := asks("b", 0, 0); l.Name = "m"; return l }(), end), false, nil},
		{"who asked died as well", checker.Deadlocked(time.Second), of(lease("a", 0, 0, 1), crash, asks("b", 50, 0), mark("b", 200, "killed"), end), false, nil},
		{"granted after the expiry", checker.Deadlocked(2 * time.Second), of(lease("a", 0, 0, 1), crash, second(1100), end), false, map[string]float64{"longest_deadlock_ms": 1000}},
		{"no lease", checker.Deadlocked(0), of(end), false, nil},

		{"freed in time", checker.Freed(time.Second), of(lease("a", 0, 0, 1), crash, second(1100), end), true, map[string]float64{"longest_freed_ms": 1000, "died_holders": 1, "freed_holders": 1}},
		{"two freed in time", checker.Freed(time.Second), of(lease("a", 0, 0, 1), crash, lease("b", 1100, 0, 2), mark("b", 1200, "killed"), lease("c", 1500, 1600, 3), end), true, map[string]float64{"soonest_freed_ms": 300, "longest_freed_ms": 1000, "freed_holders": 2}},
		{"freed too late", checker.Freed(999 * millisecond), of(lease("a", 0, 0, 1), crash, second(1100), end), false, nil},
		{"never freed", checker.Freed(time.Hour), of(lease("a", 0, 0, 1), crash, asks("b", 50, 0), end), false, map[string]float64{"freed_holders": 0}},
		{"none died", checker.Freed(time.Hour), of(lease("a", 0, 10, 1), second(20), end), false, nil},
		{"died after it had been granted to the next", checker.Freed(time.Hour), of(lease("a", 0, 0, 1), second(90), crash, end), false, nil},
		{"only another held it up by dying", checker.Freed(time.Second), of(lease("a", 0, 0, 1), second(90), crash, lease("c", 200, 0, 3), mark("c", 300, "killed"), lease("d", 400, 410, 4)), true, map[string]float64{"died_holders": 1}},
		{"freed after one TTL", checker.FreedBetween(900*millisecond, 1100*millisecond), of(lease("a", 0, 0, 1), crash, second(1100), end), true, nil},
		{"freed before the TTL", checker.FreedBetween(1001*millisecond, 1100*millisecond), of(lease("a", 0, 0, 1), crash, second(1100), end), false, nil},
	})
}

func TestFigures(t *testing.T) {
	h := of(history.Figure{Name: "wakeups_per_release", Value: 10})
	const name = "wakeups_per_release"
	judge(t, []row{
		{"at least", checker.AtLeast(name, 10), h, true, map[string]float64{name: 10}},
		{"not at least", checker.AtLeast(name, 10.5), h, false, map[string]float64{name: 10}},
		{"at most", checker.AtMost(name, 10), h, true, nil},
		{"not at most", checker.AtMost(name, 9.5), h, false, nil},
		{"never measured", checker.AtMost("other", 10), h, false, nil},
	})
}

func TestDuplicates(t *testing.T) {
	blind := []history.Request{unknown(0, 1), sold(2, 3, order("b"))}
	keyed := []history.Request{unknown(0, 1, key("k")), sold(2, 3, key("k"), order("a"))}
	judge(t, []row{
		{"sent again blindly", checker.DeductedTwice(), of(blind, audit(8, 10, 2, 2)), true, map[string]float64{"deducted_twice": 1, "purchases": 1, "orders": 2, "repeated_purchases": 1}},
		{"sent again with a key that is not looked at", checker.DeductedTwice(), of(keyed, audit(8, 10, 2, 2)), true, nil},
		{"sent again, and done once", checker.DeductedTwice(), of(blind, audit(9, 10, 1, 1)), false, nil},
		{"two purchases of one client", checker.DeductedTwice(), of(sold(0, 1), sold(2, 3), audit(8, 10, 2, 2)), false, map[string]float64{"purchases": 2}},
		{"another item's purchase", checker.DeductedTwice(), of(unknown(0, 1), sold(2, 3, goods(8)), audit(8, 10, 2, 2)), false, map[string]float64{"purchases": 2}},
		{"another item's purchase under the same key", checker.DeductedTwice(), of(unknown(0, 1, key("k")), sold(2, 3, key("k"), goods(8)), audit(8, 10, 2, 2)), false, map[string]float64{"purchases": 2}},
		{"a purchase under another key", checker.DeductedTwice(), of(unknown(0, 1, key("k")), sold(2, 3, key("l")), audit(8, 10, 2, 2)), false, map[string]float64{"purchases": 2}},
		{"a purchase of more", checker.DeductedTwice(), of(unknown(0, 1), sold(2, 3, quantity(2)), audit(8, 10, 2, 2)), false, map[string]float64{"purchases": 2}},
		{"sent again blindly, beside an item that is not sold", checker.DeductedTwice(), of(blind, audit(8, 10, 2, 2), history.Audit{At: at(1_000_000), Audit: stock.NewAudit(8, 5, 5, 0, 0)}), true, map[string]float64{"orders": 2}},
		{"another client's purchase", checker.DeductedTwice(), of(unknown(0, 1), sold(2, 3, client(1)), audit(8, 10, 2, 2)), false, nil},
		{"more in the ledger, and nothing sent again", checker.DeductedTwice(), of(sold(0, 1), audit(8, 10, 2, 2)), false, nil},
		{"twice, never audited", checker.DeductedTwice(), of(blind), false, nil},

		{"with a key", checker.DeductedOnce(), of(keyed, audit(9, 10, 1, 1)), true, map[string]float64{"deducted_twice": 0}},
		{"done twice", checker.DeductedOnce(), of(keyed, audit(8, 10, 2, 2)), false, nil},
		{"sold, and not in the ledger", checker.DeductedOnce(), of(keyed, audit(10, 10, 0, 0)), false, nil},
		{"sold, asked again, and one of two not in the ledger", checker.DeductedOnce(), of(sold(0, 1, key("k"), order("a")), unknown(2, 3, key("k")), sold(4, 5, client(1), order("b")), audit(9, 10, 1, 1)), false, nil},
		{"unknown, and then failed", checker.DeductedOnce(), of(unknown(0, 1, key("k")), failed("busy", 2, 3, key("k")), audit(9, 10, 1, 1)), true, nil},
		{"nothing was sent again", checker.DeductedOnce(), of(sold(0, 1), audit(9, 10, 1, 1)), false, nil},
		{"nothing was done", checker.DeductedOnce(), of(unknown(0, 1, key("k")), unknown(0, 1, key("k")), audit(10, 10, 0, 0)), false, nil},
		{"two orders under one key", checker.DeductedOnce(), of(sold(0, 1, key("k"), order("a")), sold(2, 3, key("k"), order("b")), sold(4, 5, key("l")), audit(8, 10, 2, 2)), false, map[string]float64{"deducted_twice": 1}},
		{"once, never audited", checker.DeductedOnce(), of(keyed), false, nil},
	})
}
