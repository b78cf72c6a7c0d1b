package experiments

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/pkg/client"
)

// checkOf is the check of a part.
func checkOf(t *testing.T, experiment, part string) checker.Check {
	t.Helper()
	picked := must.Get(Pick([]string{experiment}))(t)
	i := slices.IndexFunc(picked[0].Parts, func(p Part) bool { return p.Name == part })
	if i < 0 {
		t.Fatalf("%s has no part %s", experiment, part)
	}
	return picked[0].Parts[i].Check
}

// judged is a history made by hand, and whether a part is then as expected.
type judged struct {
	experiment, part, name string
	history                *history.History
	holds                  bool
}

func assertJudged(t *testing.T, all ...judged) {
	t.Helper()
	for _, c := range all {
		f := checkOf(t, c.experiment, c.part)(c.history)
		should.Be(t, f.Holds, c.holds, c.experiment, c.part, c.name, f.Says)
	}
}

func figures(pairs map[string]float64) *history.History { return &history.History{Figures: pairs} }

func TestAMomentInWhichNoneIsPaidInTimeShowsNothing(t *testing.T) {
	moment := func(inTime, expired float64) *history.History {
		return figures(map[string]float64{paidAndBack: 0, unitsWrong: 0, paidInTime: inTime, expiredFirst: expired})
	}
	assertJudged(
		t,
		judged{"holds", "one-decides", "both", moment(9, 31), true},
		judged{"holds", "one-decides", "none in time", moment(0, 40), false},
		judged{"holds", "one-decides", "none expired", moment(40, 0), false},
	)
}

func at(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }

// buys is clients that bought a unit of 100 each, and the audit after it.
func buys(requests ...history.Request) *history.History {
	h := &history.History{Figures: map[string]float64{longestRead: 10}}
	sold := int64(0)
	for i, r := range requests {
		r.Client, r.GoodsID, r.Quantity = i, 1, 1
		if r.Outcome == history.Sold {
			sold++
			r.Order, r.Remaining = fmt.Sprint(sold), 100-sold
		}
		h.Requests = append(h.Requests, r)
	}
	h.Audits = []history.Audit{{At: at(10_000), Audit: stock.NewAudit(1, 100-sold, 100, sold, sold)}}
	return h
}

// answered is a request that was answered after so many milliseconds; a sale waited for so long.
func answered(outcome history.Outcome, problem string, after int) history.Request {
	return history.Request{Start: at(0), End: at(after), Outcome: outcome, Problem: problem, Wait: at(after).Sub(at(0))}
}

func TestAPoolThatServesOneBuyerIsNoRemedy(t *testing.T) {
	sold, busy := answered(history.Sold, "", 2000), answered(history.Failed, "busy", 1000)
	for _, part := range []string{"in-turns", "own-pool", "grouped"} {
		assertJudged(
			t,
			judged{"for-update", part, "all are sold", buys(slices.Repeat([]history.Request{sold}, 13)...), true},
			judged{"for-update", part, "one is sold", buys(slices.Concat([]history.Request{sold}, slices.Repeat([]history.Request{busy}, 12))...), false},
		)
	}
}

// leases are those of contenders 1, 2 and so on; a lease that was not granted was given up at its end.
func leases(list ...history.Lease) *history.History {
	h := &history.History{Figures: make(map[string]float64)}
	for i, l := range list {
		l.ID, l.Name, l.Lock = fmt.Sprint(i), "n", "lock"
		if l.Holder == "" {
			l.Holder = fmt.Sprintf("contender-%d", i+1)
		}
		h.Leases = append(h.Leases, l)
	}
	return h
}

func held(asked, granted, released int) history.Lease {
	return history.Lease{Asked: at(asked), Granted: at(granted), Released: at(released)}
}

func givenUp(asked, gaveUp int) history.Lease {
	return history.Lease{Asked: at(asked), GaveUp: at(gaveUp)}
}

func TestAFairLockIsHeldByEachContenderByItself(t *testing.T) {
	inTurn, together := make([]history.Lease, 24), make([]history.Lease, 24)
	for i := range inTurn {
		inTurn[i], together[i] = held(0, 2*i, 2*i+2), held(0, 2*i, 100)
	}
	one := slices.Concat([]history.Lease{held(0, 1, 3)}, slices.Repeat([]history.Lease{givenUp(0, 3000)}, 23))
	for _, lock := range []string{"redis-fair", "zk-sequential", "etcd"} {
		assertJudged(
			t,
			judged{"fairness", lock, "one after the other", leases(inTurn...), true},
			judged{"fairness", lock, "all at once", leases(together...), false},
			judged{"fairness", lock, "one, and the others give up", leases(one...), false},
		)
	}
}

func TestALockThatHardlyAnyWasGrantedIsNoRemedy(t *testing.T) {
	measured := func(figure string, list ...history.Lease) *history.History {
		h := leases(list...)
		h.Figures[figure], h.Figures["holds_per_s"], h.Figures["redis_cpu_ms_per_hold"] = 0.5, 20, 1
		return h
	}
	inTurn := make([]history.Lease, 48)
	for i := range inTurn {
		inTurn[i] = held(0, 2*i, 2*i+2)
	}
	two := slices.Concat(inTurn[:2], slices.Repeat([]history.Lease{givenUp(0, 20_000)}, 46))
	for experiment, parts := range map[string][]string{"herd": {"zk-sequential", sourcelock.PreKey, "etcd-shared"}, "spinning": {sourcelock.SetNXPause}} {
		figure := map[string]string{"herd": "wakeups_per_release", "spinning": "tries_per_hold"}[experiment]
		for _, part := range parts {
			assertJudged(
				t,
				judged{experiment, part, "one after the other", measured(figure, inTurn...), true},
				judged{experiment, part, "two, and the others give up", measured(figure, two...), false},
			)
		}
	}
	first, second := held(0, 1, 100), held(10, 110, 200)
	first.Holder, second.Holder = "first", "second"
	gaveUp := givenUp(10, 1010)
	gaveUp.Holder = "second"
	assertJudged(
		t,
		judged{"late-watch", "zk-sequential", "the second has it soon", leases(first, second), true},
		judged{"late-watch", "zk-sequential", "the second gives up soon", leases(first, gaveUp), false},
	)
}

func TestAFreedLockThatSellsNothingIsNoRemedy(t *testing.T) {
	first, second := answered(history.Sold, "", 1000), answered(history.Sold, "", 1100)
	met := func(requests float64, h *history.History) *history.History {
		h.Figures["requests_held"] = requests
		return h
	}
	assertJudged(
		t,
		judged{"getset", "redis-lua-nil", "both are sold", met(1, buys(first, second)), true},
		judged{"getset", "redis-lua-nil", "no script was held", met(0, buys(first, second)), false},
		judged{"getset", "redis-lua-nil", "the second fails", met(1, buys(first, answered(history.Failed, "backend-unavailable", 900))), false},
	)
}

func TestAWaitWithoutALimitEndsInASale(t *testing.T) {
	slow := answered(history.Sold, "", 3000)
	ten := slices.Repeat([]history.Request{slow}, 10)
	assertJudged(
		t,
		judged{"try-lock", "no-limit", "all are sold", buys(append(ten, slow)...), true},
		judged{"try-lock", "no-limit", "one is not", buys(append(ten, answered(history.Failed, "busy", 3000))...), false},
	)
}

func TestTheLockOfADeadHolderIsFreeOneTTLLater(t *testing.T) {
	second := func(l history.Lease) *history.History {
		l.Holder = "second"
		return leases(held(0, 0, 0), l)
	}
	for _, part := range []string{"set-nx-px", "script"} {
		assertJudged(
			t,
			judged{"holder-crashes", part, "after a TTL", second(held(10, 1000, 1100)), true},
			judged{"holder-crashes", part, "at once", second(held(10, 11, 1100)), false},
			judged{"holder-crashes", part, "much later", second(held(10, 2500, 2600)), false},
			judged{"holder-crashes", part, "given up", second(givenUp(10, 1000)), false},
		)
	}
}

func TestASplitVoteGrantsNoLease(t *testing.T) {
	all := []history.Lease{givenUp(0, 4000), givenUp(0, 4000), givenUp(0, 4000)}
	none, late := leases(all...), leases(all[0], all[1], held(0, 3999, 4000))
	none.Figures["first_grant_ms"], late.Figures["first_grant_ms"] = 4000, 4000
	soon := leases(all[0], givenUp(0, 900), held(0, 900, 901))
	soon.Figures["first_grant_ms"] = 900
	assertJudged(
		t,
		judged{"split-vote", "redlock-in-step", "none in four seconds", none, true},
		judged{"split-vote", "redlock-in-step", "one in the end", late, false},
		judged{"split-vote", "redlock-in-step", "given up at once", leases(givenUp(0, 1), givenUp(0, 1), givenUp(0, 1)), false},
		judged{"split-vote", "redlock", "one soon", soon, true},
		judged{"split-vote", "redlock", "none", leases(all...), false},
	)
}

// Units that are missing do not make up for units that were oversold.
func TestUnitsAreWrongWhicheverWay(t *testing.T) {
	for _, c := range []struct {
		oversold, lost int64
		want           float64
	}{{0, 0, 0}, {3, 0, 3}, {0, 3, 3}, {0, -3, 3}, {3, -3, 6}} {
		should.Be(t, wrongUnits(client.Audit{Oversold: c.oversold, Lost: c.lost}), c.want, "of … oversold and … lost units are wrong", c.oversold, c.lost)
	}
}

// A sale that no buyer was answered is as wrong as an answer without a sale.
func TestAnswersThatDifferFromTheSalesAreCountedWhicheverWay(t *testing.T) {
	for _, c := range []struct {
		answered, sold int64
		want           float64
	}{{7, 7, 0}, {7, 5, 2}, {5, 7, 2}} {
		should.Be(t, paidWrongly(c.answered, c.sold), c.want, "of … answered and … sold differ", c.answered, c.sold)
	}
}
