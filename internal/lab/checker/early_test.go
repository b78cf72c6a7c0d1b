package checker_test

import (
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

func TestTakenEarly(t *testing.T) {
	const ttl = 100 * millisecond
	early := of(lease("a", 0, 300, 1), lease("b", 50, 60, 2))
	expired := of(lease("a", 0, 300, 1), lease("b", 95, 120, 2))
	released := of(lease("a", 0, 40, 1), lease("b", 50, 60, 2))
	another := lease("b", 50, 60, 2)
	another.Name = "m"
	judge(t, []row{
		{"while the lease was good", checker.TakenEarly(ttl), early, true, map[string]float64{"leases_taken_early": 1}},
		{"after it had run out", checker.TakenEarly(ttl), expired, false, nil},
		{"after it was given back", checker.TakenEarly(ttl), released, false, nil},
		{"no lease", checker.TakenEarly(ttl), of(), false, nil},
		{"never early, since it had run out", checker.NeverTakenEarly(ttl), expired, true, nil},
		{"never early, since it was given back", checker.NeverTakenEarly(ttl), released, true, nil},
		{"early after all", checker.NeverTakenEarly(ttl), early, false, nil},
		{"one lease only", checker.NeverTakenEarly(ttl), of(lease("a", 0, 300, 1)), false, nil},
		{"one lease of each of two names", checker.NeverTakenEarly(ttl), of(lease("a", 0, 300, 1), another), false, nil},
	})
	if says, want := checker.TakenEarly(ttl)(early).Says, "1 of 2 leases began while another was held"; !strings.HasPrefix(says, want) {
		t.Errorf("it says %q, want %q", says, want)
	}
}

func TestReentering(t *testing.T) {
	again := lease("a", 5, 8, 1)
	again.ID = "a again"
	in, out := of(lease("a", 0, 10, 1), again), of(lease("a", 0, 300, 1), func() history.Lease { l := asks("a", 5, 200); l.ID = "a again"; return l }())
	third := asks("a", 6, 200)
	third.ID = "a, a third time"
	stranger := of(lease("a", 0, 300, 1), asks("b", 5, 200))
	afterwards := of(lease("a", 0, 4, 1), again)
	judge(t, []row{
		{"asked for twice and granted", checker.Reentered(), in, true, map[string]float64{"reentered": 1}},
		{"asked for twice and not granted", checker.Reentered(), out, false, map[string]float64{"locked_out": 1}},
		{"granted, and then not", checker.Reentered(), of(in.Leases[0], again, third), false, map[string]float64{"reentered": 1, "locked_out": 1}},
		{"asked for after the release", checker.Reentered(), afterwards, false, nil},
		{"locked itself out", checker.LockedItselfOut(), out, true, nil},
		{"let itself in", checker.LockedItselfOut(), in, false, nil},
		{"locked out another client", checker.LockedItselfOut(), stranger, false, nil},
	})
}

func TestFaster(t *testing.T) {
	var h history.History
	for i := range 10 {
		r := sold(i*100, i*100+100)
		r.Strategy = "sql-conditional"
		h.Requests = append(h.Requests, r)
		if i%2 == 0 {
			r.Strategy = "mutex"
			h.Requests = append(h.Requests, r)
		}
	}
	judge(t, []row{
		{"faster", checker.Faster("sql-conditional", "mutex", 1.5), &h, true, map[string]float64{"sql_conditional_sales_per_s": 10}},
		{"not so much faster", checker.Faster("sql-conditional", "mutex", 2), &h, false, nil},
		{"slower", checker.Faster("mutex", "sql-conditional", 1), &h, false, nil},
		{"than what was not there", checker.Faster("mutex", "other", 0), &h, false, nil},
	})
}
