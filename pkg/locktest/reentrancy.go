package locktest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
)

// isReentrant has an owner take again what he holds; or shows that he locks
// himself out.
func isReentrant(t *testing.T, s *subject) {
	l, other, name := s.replica(t), s.replica(t), unique()
	me := lock.WithOwner(t.Context(), unique())
	first := acquireAs(me, t, l, name)
	if !s.entry.Guarantees.Reentrant {
		if isGranted(me, t, l, name, aWhile) {
			t.Error("claims not to be reentrant, and granted its owner the name again")
		}
		release(t, first)
		return
	}
	second, third := acquireAs(me, t, l, name), acquireAs(me, t, l, name)
	if first.Token() != second.Token() || first.Token() != third.Token() {
		t.Errorf("one holder has the tokens %d, %d and %d", first.Token(), second.Token(), third.Token())
	}
	assertNotGrantedTo(lock.WithOwner(t.Context(), unique()), t, l, name)
	assertNotGrantedTo(t.Context(), t, l, name) // nobody in particular

	release(t, second)
	release(t, second) // counts once
	assertHeld(t, third, other, name)
	release(t, first)
	if third.Context().Err() != nil {
		t.Error("the last of three leases ended with another")
	}
	if s.entry.Guarantees.Renews {
		time.Sleep(s.site.ttl())
	}
	assertHeld(t, third, other, name)
	assertNotGrantedTo(t.Context(), t, l, name)
	release(t, third)
	s.assertClean(t, name)
	losesAll(t, s, l, name)
}

// losesAll drops a name that its owner holds twice.
func losesAll(t *testing.T, s *subject, l lock.Locker, name string) {
	t.Helper()
	me := lock.WithOwner(t.Context(), unique())
	leases := []lock.Lease{acquireAs(me, t, l, name), acquireAs(me, t, l, name)}
	s.site.drop(t, name)
	for _, lease := range leases {
		if !endsWithin(lease, s.site.ttl()+grace) {
			t.Fatal("the loss of a name that was held twice was not signalled to both")
		}
		assertLost(t, lease)
		if err := lease.Release(within(t)); !errors.Is(err, lock.ErrLost) {
			t.Errorf("released after the loss with %v, want %v", err, lock.ErrLost)
		}
	}
	release(t, acquireAs(me, t, l, name))
	s.assertClean(t, name)
}

// joinsWhoOutlivesTheFirst has two requests of one owner wait, of which the
// first goes away: the second must get the name all the same.
func joinsWhoOutlivesTheFirst(t *testing.T, s *subject) {
	holder, l, name := s.replica(t), s.replica(t), unique()
	me := lock.WithOwner(t.Context(), unique())
	lease := acquire(t, holder, name)
	leaving, leave := context.WithCancelCause(me)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := l.Acquire(leaving, name)
		first <- err
	}()
	time.Sleep(aWhile / 2)
	go func() {
		staying, cancel := context.WithTimeout(me, patience)
		defer cancel()
		lease, err := l.Acquire(staying, name)
		if err == nil {
			err = lease.Release(staying)
		}
		second <- err
	}()
	time.Sleep(aWhile / 2)
	leave(errHungUp)
	assertGaveUp(t, <-first, errHungUp)
	release(t, lease)
	if err := <-second; err != nil {
		t.Errorf("the second request of an owner, whose first went away: %v", err)
	}
	s.assertClean(t, name)
}

func acquireAs(owner context.Context, t *testing.T, l lock.Locker, name string) lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(owner, patience)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatalf("not acquired within %s: %v", patience, err)
	}
	return lease
}

func assertNotGrantedTo(owner context.Context, t *testing.T, l lock.Locker, name string) {
	t.Helper()
	if isGranted(owner, t, l, name, aWhile) {
		t.Error("a name that is held was granted to another")
	}
}
