package checker_test

import (
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
)

func TestHolders(t *testing.T) {
	apart := of(lease("a", 0, 10, 1), lease("b", 10, 20, 2))
	together := of(lease("a", 0, 30, 1), lease("b", 10, 20, 2), lease("c", 25, 100, 3))
	otherName, otherLock := lease("b", 0, 20, 2), lease("b", 0, 20, 2)
	otherName.Name, otherLock.Lock = "m", "etcd"
	lost := lease("a", 0, 30, 1)
	lost.Lost = at(10)
	crashed := of(lease("a", 0, 0, 1), mark("a", 5, "crashed in the critical section"), lease("b", 30, 40, 2))
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
		{"a crash of another replica", checker.OverlappingHolders(), of(lease("a", 0, 0, 1), mark("c", 5, "crashed"), lease("b", 30, 40, 2)), true, nil},
		{"a crash before the lease", checker.OverlappingHolders(), of(mark("a", 0, "crashed"), lease("a", 5, 0, 1), lease("b", 30, 40, 2)), true, nil},
		{"a pause does not end a lease", checker.OverlappingHolders(), of(lease("a", 0, 0, 1), mark("a", 5, "paused"), lease("b", 30, 40, 2)), true, nil},

		{"exclusive", checker.ExclusiveHolders(), apart, true, nil},
		{"overlapping are not exclusive", checker.ExclusiveHolders(), together, false, nil},
		{"a crash ends a lease", checker.ExclusiveHolders(), crashed, true, nil},
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
	says(t, two, of(lease("a", 0, 20, 1), lease("b", 10, 30, 2)), "a and b held the name at the same time")
	says(t, two, of(lease("a", 0, 10, 1), lease("b", 10, 30, 2)), "a and b held the name one after the other")
	says(t, two, of(lease("a", 0, 10, 1), asks("b", 0, 5)), "1 of a and b held the name")
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
