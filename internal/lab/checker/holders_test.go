package checker_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lock"
)

func TestHolders(t *testing.T) {
	apart := of(lease("a", 0, 10, 1), lease("b", 10, 20, 2))
	together := of(lease("a", 0, 30, 1), lease("b", 10, 20, 2), lease("c", 25, 100, 3))
	otherName, otherLock := lease("b", 0, 20, 2), lease("b", 0, 20, 2)
	otherName.Name, otherLock.Lock = "m", "etcd"
	lost := lease("a", 0, 30, 1)
	lost.Lost = at(10)
	killed := of(lease("a", 0, 0, 1), mark("a", 5, "killed in the critical section"), lease("b", 30, 40, 2))
	judge(t, []row{
		{"overlapping", checker.OverlappingHolders(), together, true, map[string]float64{"overlaps": 2, "longest_overlap_ms": 10, "leases": 3}},
		{"one after the other do not overlap", checker.OverlappingHolders(), apart, false, map[string]float64{"overlaps": 0}},
		{"no lease does not overlap", checker.OverlappingHolders(), of(), false, nil},
		{"two leases of one holder overlap", checker.OverlappingHolders(), of(lease("a", 0, 10, 1), lease("a", 5, 15, 2)), true, nil},
		{"two leases of one holder without tokens overlap", checker.OverlappingHolders(), of(lease("a", 0, 10, 0), lease("a", 5, 15, 0)), true, nil},
		{"an unknown end", checker.OverlappingHolders(), of(lease("a", 0, 0, 1), lease("b", 30, 40, 2)), true, map[string]float64{"longest_overlap_ms": 10}},
		{"an unknown end lasts to the last audit", checker.OverlappingHolders(), of(lease("a", 0, 0, 1), lease("b", 30, 0, 2), history.Audit{At: at(90)}, history.Audit{At: at(40)}), true, map[string]float64{"longest_overlap_ms": 60}},
		{"a lease of no time overlaps none", checker.OverlappingHolders(), of(lease("a", 0, 20, 1), lease("b", 10, 10, 2)), false, map[string]float64{"overlaps": 0}},
		{"two that overlap, beside a lease of no time", checker.OverlappingHolders(), of(lease("a", 0, 30, 1), lease("c", 5, 5, 9), lease("b", 10, 20, 2)), true, map[string]float64{"overlaps": 1}},
		{"two that overlap, behind one that gave up", checker.OverlappingHolders(), of(asks("c", 0, 1), lease("a", 0, 30, 1), lease("b", 10, 20, 2)), true, map[string]float64{"leases": 2}},
		{"reentered, beside another", checker.OverlappingHolders(), of(lease("a", 0, 30, 1), lease("b", 2, 30, 2), lease("a", 5, 8, 1)), true, map[string]float64{"overlaps": 2}},
		{"a crash of another replica", checker.OverlappingHolders(), of(lease("a", 0, 0, 1), mark("c", 5, "killed"), lease("b", 30, 40, 2)), true, nil},
		{"a crash before the lease", checker.OverlappingHolders(), of(mark("a", 0, "killed"), lease("a", 5, 0, 1), lease("b", 30, 40, 2)), true, nil},
		{"a pause does not end a lease", checker.OverlappingHolders(), of(lease("a", 0, 0, 1), mark("a", 5, "paused"), lease("b", 30, 40, 2)), true, nil},

		{"exclusive", checker.ExclusiveHolders(), apart, true, nil},
		{"overlapping are not exclusive", checker.ExclusiveHolders(), together, false, nil},
		{"a crash ends a lease", checker.ExclusiveHolders(), killed, true, nil},
		{"a kill ends a lease", checker.ExclusiveHolders(), of(lease("a", 0, 0, 1), mark("a", 5, "killed"), lease("b", 30, 40, 2)), true, nil},
		{"the first of two kills ends a lease", checker.ExclusiveHolders(), of(lease("a", 0, 0, 1), mark("a", 5, "killed"), mark("a", 50, "killed"), lease("b", 30, 40, 2)), true, nil},
		{"a known loss ends a lease", checker.ExclusiveHolders(), of(lost, lease("b", 15, 40, 2)), true, nil},
		{"reentered", checker.ExclusiveHolders(), of(lease("a", 0, 10, 1), lease("a", 5, 8, 1)), true, nil},
		{"the same token of another holder", checker.ExclusiveHolders(), of(lease("a", 0, 10, 1), lease("b", 5, 8, 1)), false, nil},
		{"one lease only", checker.ExclusiveHolders(), of(lease("a", 0, 10, 1)), false, nil},
		{"no lease granted", checker.ExclusiveHolders(), of(asks("a", 0, 1), asks("b", 0, 1)), false, nil},
		{"two of three together", checker.Together("b", "c"), of(lease("a", 0, 10, 1), lease("b", 10, 30, 2), lease("c", 20, 40, 3)), true, map[string]float64{"together": 1}},
		{"two of three apart, though another is with both", checker.Apart("b", "c"), of(lease("a", 0, 40, 1), lease("b", 10, 20, 2), lease("c", 20, 30, 3)), true, nil},
		{"together are not apart", checker.Apart("c", "b"), of(lease("b", 10, 30, 2), lease("c", 20, 40, 3)), false, nil},
		{"one after the other are not together", checker.Together("b", "a"), apart, false, nil},
		{"one that waited in vain is not apart", checker.Apart("a", "b"), of(lease("a", 0, 10, 1), asks("b", 0, 5)), false, nil},
		{"one of two, beside another", checker.Apart("a", "b"), of(lease("b", 10, 20, 1), lease("c", 20, 30, 2)), false, map[string]float64{"granted_of_two": 1}},
		{"the other of two, beside another", checker.Apart("b", "a"), of(lease("b", 10, 20, 1), lease("c", 20, 30, 2)), false, map[string]float64{"granted_of_two": 1}},
		{"granted at the second try", checker.GrantedTo("b"), of(asks("b", 0, 5), lease("b", 10, 20, 1)), true, map[string]float64{"granted_to_b": 1}},
		{"another's grant", checker.GrantedTo("b"), of(lease("a", 0, 10, 1), asks("b", 0, 5)), false, map[string]float64{"granted_to_b": 0}},
		{"asked in vain", checker.NeverGrantedTo("b"), of(lease("a", 0, 10, 1), asks("b", 0, 5)), true, nil},
		{"asked in vain once", checker.NeverGrantedTo("b"), of(asks("b", 0, 5), lease("b", 10, 20, 1)), false, nil},
		{"asked for nothing", checker.NeverGrantedTo("b"), of(lease("a", 0, 10, 1)), false, nil},
		{"as many granted as expected", checker.Granted(2), of(lease("a", 0, 10, 1), asks("b", 0, 5), lease("b", 10, 20, 2)), true, map[string]float64{"granted_leases": 2}},
		{"fewer granted", checker.Granted(3), of(lease("a", 0, 10, 1), asks("b", 0, 5), lease("b", 10, 20, 2)), false, nil},
		{"any grant, and there is none", checker.Granted(0), of(asks("b", 0, 5)), false, nil},
		{"all asked in vain", checker.NeverGranted(), of(asks("a", 0, 5), asks("b", 0, 5)), true, map[string]float64{"granted_leases": 0}},
		{"one granted", checker.NeverGranted(), of(asks("a", 0, 5), lease("b", 5, 6, 1)), false, nil},
		{"none asked for", checker.NeverGranted(), of(), false, nil},
		{"two names only", checker.ExclusiveHolders(), of(lease("a", 0, 10, 1), otherName), false, map[string]float64{"overlaps": 0, "leases": 2}},
		{"two locks do not exclude each other", checker.ExclusiveHolders(), of(lease("a", 0, 10, 1), otherLock, lease("c", 10, 20, 2)), true, nil},
	})
}

func TestWhatIsSaidOfTwoHolders(t *testing.T) {
	two := checker.Together("a", "b")
	says(t, two, of(lease("a", 0, 20, 1), lease("b", 10, 30, 2)), checker.Say("together", "a", "b"))
	says(t, two, of(lease("a", 0, 10, 1), lease("b", 10, 30, 2)), checker.Say("apart", "a", "b"))
	says(t, two, of(lease("a", 0, 10, 1), asks("b", 0, 5)), checker.Say("not-both", 1, "a", "b"))
}

func TestOverlapsForTheTimeline(t *testing.T) {
	got := checker.Overlaps(of(lease("c", 25, 100, 3), lease("a", 0, 30, 1), lease("b", 10, 20, 2)))
	want := []struct {
		a, b     string
		from, to int
	}{{"a", "b", 10, 20}, {"a", "c", 25, 30}}
	if len(got) != len(want) {
		t.Fatalf("%d overlaps, want %d: %v", len(got), len(want), got)
	}
	for i, w := range want {
		if o := got[i]; o.A.Holder != w.a || o.B.Holder != w.b || !o.From.Equal(at(w.from)) || !o.To.Equal(at(w.to)) {
			t.Errorf("%s and %s from %v to %v, want %v", o.A.Holder, o.B.Holder, o.From, o.To, w)
		}
	}
}

func TestRepeatedTokens(t *testing.T) {
	judge(t, []row{
		{"granted to two holders", checker.RepeatedTokens(), of(lease("a", 0, 10, 5), lease("b", 5, 20, 5)), true, map[string]float64{"repeated_tokens": 1}},
		{"granted to one holder twice", checker.RepeatedTokens(), of(lease("a", 0, 10, 5), lease("a", 1, 9, 5), lease("b", 10, 20, 6)), false, map[string]float64{"repeated_tokens": 0}},
		{"no token", checker.RepeatedTokens(), of(lease("a", 0, 10, 0), lease("b", 5, 20, 0)), false, nil},
	})
}

func TestStaleWrites(t *testing.T) {
	// The first was paused over its read of 10, and wrote 9 over the others' 8.
	overwritten := []history.Request{sold(0, 100, token(1), left(9)), sold(10, 30, token(2), left(9)), sold(30, 40, token(3), left(8))}
	// The first read and wrote when the second was through.
	late := []history.Request{sold(0, 100, token(1), left(7)), sold(10, 30, token(2), left(9)), sold(30, 40, token(3), left(8))}
	inOrder := []history.Request{sold(0, 10, token(1), left(9)), sold(5, 30, token(2), left(8))}
	// The counter of tokens began anew, which is no stale write.
	anew := []history.Request{sold(0, 10, token(50), left(9)), sold(11, 20, token(1), left(8))}
	rejected := failed("fenced", 0, 100)
	judge(t, []row{
		{"overwritten", checker.StaleWritesRejected(), of(overwritten, rejected), false, map[string]float64{"stale_writes": 1, "sales_with_token": 3}},
		{"late", checker.StaleWritesRejected(), of(late, rejected), false, map[string]float64{"stale_writes": 1}},
		{"another quantity", checker.StaleWritesRejected(), of(sold(0, 100, token(1), left(9)), sold(10, 30, token(2), left(5), quantity(5)), rejected), false, nil},
		{"a batch under one token", checker.StaleWritesRejected(), of(sold(0, 10, token(1), left(8)), sold(0, 10, token(1), left(9)), rejected), true, nil},
		{"one of a batch under one token", checker.StaleWritesRejected(), of(sold(0, 100, token(1), left(10)), sold(0, 100, token(1), left(5)), sold(10, 30, token(2), left(9)), rejected), false, map[string]float64{"stale_writes": 1}},
		{"a failure is no write", checker.StaleWritesRejected(), of(failed("busy", 0, 100, token(1), left(9)), sold(10, 30, token(2), left(9)), rejected), true, map[string]float64{"sales_with_token": 1}},
		{"in order, of two items", checker.StaleWritesRejected(), of(inOrder, sold(0, 10, token(1), left(9), goods(8)), sold(5, 30, token(2), left(8), goods(8)), rejected), true, map[string]float64{"sales_with_token": 4}},
		{"tokens that began anew", checker.StaleWritesRejected(), of(anew, rejected), true, nil},
		{"other goods", checker.StaleWritesRejected(), of(sold(0, 100, token(1), left(9)), sold(10, 30, token(2), left(9), goods(8)), rejected), true, nil},

		{"fenced off", checker.StaleWritesRejected(), of(inOrder, failed("fenced", 0, 100)), true, map[string]float64{"fenced_requests": 1}},
		{"the loss was signalled", checker.StaleWritesRejected(), of(inOrder, failed("lease-lost", 0, 100)), true, map[string]float64{"lease_lost_requests": 1}},
		{"no late write", checker.StaleWritesRejected(), of(inOrder), false, nil},
		{"busy is not fenced off", checker.StaleWritesRejected(), of(inOrder, failed("busy", 0, 100)), false, nil},
		{"no tokens to tell by", checker.StaleWritesRejected(), of(sold(0, 1), failed("fenced", 0, 100)), false, nil},
	})
}

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
	says(t, checker.TakenEarly(ttl), early, checker.Say("taken-early", 1, 2, ttl))
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

// reads is a lease that is shared.
func reads(holder string, granted, end int) history.Lease {
	l := lease(holder, granted, end, 0)
	l.Shared = true
	return l
}

func TestSharedLeases(t *testing.T) {
	shared := of(reads("a", 0, 10), reads("b", 5, 15), lease("w", 15, 20, 0))
	apart := of(reads("a", 0, 10), reads("b", 10, 15), lease("w", 15, 20, 0))
	judge(t, []row{
		{"two readers at once", checker.ReadersShare(), shared, true, map[string]float64{"shared_leases": 2, "shared_overlaps": 1}},
		{"two readers one after the other", checker.ReadersShare(), apart, false, map[string]float64{"shared_overlaps": 0}},
		{"two leases of one reader", checker.ReadersShare(), of(reads("a", 0, 10), reads("a", 5, 15)), false, nil},
		{"a reader and a writer are not two readers", checker.ReadersShare(), of(reads("a", 0, 10), lease("w", 5, 15, 0)), false, nil},
		{"a writer and a reader are not two readers", checker.ReadersShare(), of(lease("w", 0, 10, 0), reads("a", 5, 15)), false, nil},
		{"two readers are together", checker.Together("a", "b"), shared, true, map[string]float64{"together": 1}},
		{"two readers at once are not apart", checker.Apart("a", "b"), shared, false, nil},
		{"two readers do not exclude each other", checker.ExclusiveHolders(), shared, true, map[string]float64{"overlaps": 0}},
		{"a writer within a reader", checker.ExclusiveHolders(), of(reads("a", 0, 10), lease("w", 5, 15, 0)), false, map[string]float64{"overlaps": 1}},
		{"a reader within a writer", checker.ExclusiveHolders(), of(lease("w", 0, 10, 0), reads("a", 5, 15)), false, nil},
		{"a reader and a writer together", checker.Together("a", "w"), of(reads("a", 0, 10), lease("w", 5, 15, 0)), true, nil},
	})
}

func TestPages(t *testing.T) {
	page := func(stock, sold int64) history.Sample { return history.Sample{At: at(1), Stock: stock, Sold: sold} }
	judge(t, []row{
		{"whole", checker.WholePages(10), of(page(10, 0), page(9, 1)), true, map[string]float64{"pages": 2, "half_made_pages": 0}},
		{"a single whole one", checker.WholePages(10), of(page(9, 1)), true, nil},
		{"half made", checker.WholePages(10), of(page(10, 0), page(9, 0)), false, map[string]float64{"half_made_pages": 1}},
		{"no page is not a whole one", checker.WholePages(10), of(), false, nil},
		{"half made, as expected", checker.HalfMadePages(10), of(page(10, 0), page(9, 0)), true, nil},
		{"whole, where a half was expected", checker.HalfMadePages(10), of(page(10, 0)), false, nil},
	})
}

func TestNoticedLosses(t *testing.T) {
	lost := reads("a", 0, 50)
	lost.Lost = at(30)
	atRelease := reads("a", 0, 20)
	atRelease.Lost = at(21)
	gone := mark("redis", 10, "forgotten: a key")
	judge(t, []row{
		{"soon enough", checker.LossNoticed("a", "forgotten", 20*time.Millisecond), of(lost, gone), true, map[string]float64{"loss_noticed_ms": 20}},
		{"too late", checker.LossNoticed("a", "forgotten", 19*time.Millisecond), of(lost, gone), false, nil},
		{"never", checker.LossNoticed("a", "forgotten", time.Second), of(reads("a", 0, 50), gone), false, nil},
		{"by its release", checker.LossNoticed("a", "forgotten", time.Second), of(atRelease, gone), false, nil},
		{"of another holder", checker.LossNoticed("b", "forgotten", time.Second), of(lost, reads("b", 0, 50), gone), false, nil},
		{"beside another holder", checker.LossNoticed("a", "forgotten", time.Second), of(reads("b", 0, 50), lost, gone), true, nil},
		{"before the mark", checker.LossNoticed("a", "forgotten", time.Second), of(lost, mark("redis", 40, "forgotten")), false, nil},
		{"another mark before", checker.LossNoticed("a", "forgotten", 20*time.Millisecond), of(lost, mark("redis", 5, "paused"), gone), true, map[string]float64{"loss_noticed_ms": 20}},
		{"without the mark", checker.LossNoticed("a", "forgotten", time.Second), of(lost), false, nil},
	})
}

// The first dies with the lock, beside the second and the third; the third waits for it, and is woken by the second.
func TestWhatOthersHadToDoWithALease(t *testing.T) {
	first, second, third, other := lease("a", 0, 0, 1), lease("b", 10, 30, 2), lease("c", 31, 50, 3), lease("d", 5, 45, 1)
	other.Name = "m"
	third.Asked = at(20)
	third.Notes = []history.Event{
		{At: at(15), What: history.Woken, By: lock.ByTimeout}, {At: at(30), What: history.Woken, By: "watch"}, {At: at(30), What: history.Woken, By: "watch"},
	}
	h := of(first, second, third, other, mark("a", 40, "killed"))
	want := map[string]checker.Contention{
		"a": {Died: at(40)},
		"b": {Ahead: "a", Beside: []checker.Beside{{Holder: "a", From: at(10), To: at(30)}}, Woke: 2},
		"c": {Ahead: "a", Beside: []checker.Beside{{Holder: "a", From: at(31), To: at(40)}}},
		"d": {},
	}
	for i, c := range checker.Contentions(h) {
		if holder := h.Leases[i].Holder; !reflect.DeepEqual(c, want[holder]) {
			t.Errorf("%s: %+v, want %+v", holder, c, want[holder])
		}
	}
}

// A holder that had the lock twice is one beside another, and readers are beside none.
func TestEachOtherHolderIsBesideALeaseOnce(t *testing.T) {
	reader := func(holder string, from, to int) history.Lease {
		l := lease(holder, from, to, 0)
		l.Shared = true
		return l
	}
	h := of(reader("a", 0, 20), reader("a", 5, 30), lease("b", 10, 50, 7))
	for i, c := range checker.Contentions(h) {
		want := []checker.Beside(nil)
		if h.Leases[i].Holder == "b" {
			want = []checker.Beside{{Holder: "a", From: at(10), To: at(30)}}
		}
		if !reflect.DeepEqual(c.Beside, want) {
			t.Errorf("beside %s are %+v, want %+v", h.Leases[i].Holder, c.Beside, want)
		}
	}
}
