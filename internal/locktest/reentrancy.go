package locktest

import (
	"context"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/should"
)

// isReentrant has an owner take again what it holds; or shows that it locks itself out.
func isReentrant(t *testing.T, s *subject) {
	l, other, name := s.replica(t), s.replica(t), unique()
	me := lock.WithOwner(t.Context(), unique())
	first := HoldUnder(me, t, l, name)
	if !s.lock.Guarantees.Reentrant {
		if isGranted(me, t, l, name, aWhile) {
			t.Error("does not guarantee Reentrant, and granted its owner the name again")
		}
		Release(t, first)
		return
	}
	second, third := HoldUnder(me, t, l, name), HoldUnder(me, t, l, name)
	if first.Token() != second.Token() || first.Token() != third.Token() {
		t.Errorf("one holder has the tokens %d, %d and %d", first.Token(), second.Token(), third.Token())
	}
	assertNotGrantedTo(lock.WithOwner(t.Context(), unique()), t, l, name)
	assertNotGrantedTo(t.Context(), t, l, name) // without an owner
	holdsEachNameByItself(me, t, s, l)
	countsNoEntryThatIsCancelled(me, t, l, name)

	Release(t, second)
	Release(t, second) // counts once
	assertHeld(t, third, other, name)
	Release(t, first)
	should.Be(t, third.Context().Err(), nil, "the last of three leases ended with another")
	if s.lock.Guarantees.Renews {
		time.Sleep(s.site.at.TTL)
	}
	assertHeld(t, third, other, name)
	assertNotGrantedTo(t.Context(), t, l, name)
	Release(t, third)
	s.assertClean(t, name)
	losesAll(t, s, l, name)
}

// holdsEachNameByItself has an owner that holds one name take another one.
func holdsEachNameByItself(me context.Context, t *testing.T, s *subject, l lock.Locker) {
	t.Helper()
	beside := unique()
	lease := HoldUnder(me, t, l, beside)
	assertHeld(t, lease, s.replica(t), beside)
	Release(t, lease)
	s.assertClean(t, beside)
}

// countsNoEntryThatIsCancelled has an owner take again what it holds, for requests that have ended. An
// entry that is counted although it failed would keep the name after the last release.
func countsNoEntryThatIsCancelled(me context.Context, t *testing.T, l lock.Locker, name string) {
	t.Helper()
	const requests = 20 // an Acquire may find the end of its context first, or the name
	gone, cancel := context.WithCancelCause(me)
	cancel(errHungUp)
	for range requests {
		if lease, err := attempt(gone, t, l, name, soon); err == nil {
			Release(t, lease)
		} else {
			assertGaveUp(t, err, errHungUp)
		}
	}
}

// losesAll drops a name that its owner holds twice.
func losesAll(t *testing.T, s *subject, l lock.Locker, name string) {
	t.Helper()
	me := lock.WithOwner(t.Context(), unique())
	leases := []lock.Lease{HoldUnder(me, t, l, name), HoldUnder(me, t, l, name)}
	broken := time.Now()
	s.take(t, name)
	for _, lease := range leases {
		if !endsWithin(lease, s.site.at.TTL+grace-time.Since(broken)) {
			t.Fatal("the loss of a name that was held twice was not signalled to both")
		}
		assertLost(t, lease)
		assertReleaseLost(t, lease)
	}
	Release(t, HoldUnder(me, t, l, name))
	s.assertClean(t, name)
}

// servesASecondRequestOfAnOwner has two requests of one owner wait, the first of which is
// cancelled: the second must get the name all the same.
func servesASecondRequestOfAnOwner(t *testing.T, s *subject) {
	holder, l, name := s.replica(t), s.replica(t), unique()
	me := lock.WithOwner(t.Context(), unique())
	lease := Hold(t, holder, name)
	leaving, leave := context.WithCancelCause(me)
	first := HoldLater(leaving, l, name)
	time.Sleep(aWhile / 2)
	second := HoldLater(me, l, name)
	time.Sleep(aWhile / 2)
	leave(errHungUp)
	assertGaveUp(t, first.Fails(t), errHungUp)
	Release(t, lease)
	Release(t, second.Within(t, 3*patience))
	s.assertClean(t, name)
}

func assertNotGrantedTo(owner context.Context, t *testing.T, l lock.Locker, name string) {
	t.Helper()
	if isGranted(owner, t, l, name, aWhile) {
		t.Error("a name that is held was granted to another")
	}
}
