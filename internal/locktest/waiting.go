package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/stock"
)

var errHungUp = errors.New("the client closed the request")

func givesUpWithItsDeadline(t *testing.T, s *subject) {
	const limit = 200 * time.Millisecond
	holder, waiter, name := s.replica(t), s.replica(t), unique()
	lease := acquire(t, holder, name)
	before := len(s.traces(t, name))
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := attempt(ctx, t, waiter, name, soon)
	if waited := time.Since(start); waited < limit {
		t.Errorf("waited %s, want %s", waited, limit)
	}
	assertGaveUp(t, err, context.DeadlineExceeded)
	s.assertTraces(t, name, before, s.site.at.TTL)
	assertHeld(t, lease, holder, name)
	release(t, lease)
	s.assertClean(t, name)
}

func givesUpWithItsCancellation(t *testing.T, s *subject) {
	holder, waiter, name := s.replica(t), s.replica(t), unique()
	lease := acquire(t, holder, name)
	before := len(s.traces(t, name))
	ctx, cancel := context.WithCancelCause(t.Context())
	timer := time.AfterFunc(aWhile, func() { cancel(errHungUp) })
	defer timer.Stop()
	_, err := attempt(ctx, t, waiter, name, soon)
	assertGaveUp(t, err, errHungUp)
	s.assertTraces(t, name, before, s.site.at.TTL)
	release(t, lease)
	s.assertClean(t, name)
}

func takesNothingForACancelledRequest(t *testing.T, s *subject) {
	at, name := s.site.at, unique()
	at.TTL *= 10 // what is taken is not free again in time
	l := s.replicaAt(t, at, nil)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errHungUp)
	lease, err := attempt(ctx, t, l, name, soon)
	if err == nil {
		t.Error("a request that was cancelled before was granted the name")
		release(t, lease)
	}
	assertGaveUp(t, err, errHungUp)
	s.assertClean(t, name)
	release(t, acquireWithin(t, l, name, at.TTL/2))
}

// takesNothingWhenCancelledInTheMiddle ends requests at random moments, among them those
// in which the backend has granted the name and the answer is under way. An Acquire that
// fails has not taken the name.
func takesNothingWhenCancelledInTheMiddle(t *testing.T, s *subject) {
	const requests = 60
	at, name := s.site.at, unique()
	at.TTL *= 10 // what is taken is not free again in time
	l := s.replicaAt(t, at, nil).connected(t)
	release(t, acquire(t, l, name)) // connects
	start := time.Now()
	release(t, acquire(t, l, name))
	usual := time.Since(start)
	granted := 0
	for range requests {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(rand.N(usual), func() { cancel(errHungUp) })
		lease, err := attempt(ctx, t, l, name, soon)
		timer.Stop()
		if err == nil {
			granted++
			release(t, lease)
		} else {
			assertGaveUp(t, err, errHungUp)
		}
		cancel(nil)
	}
	s.assertClean(t, name)
	release(t, acquireWithin(t, l, name, at.TTL/2))
	t.Logf("%d of %d requests were granted", granted, requests)
}

// takesNothingWhenCancelledAtTheGrant ends waits at random moments around the release of the holder,
// among them those in which the name is handed to the waiter. Each next holder finds it free. A
// lock that does not compare the owner may be locked out by a waiter that was never granted it.
func takesNothingWhenCancelledAtTheGrant(t *testing.T, s *subject) {
	const waits = 20
	at, name := s.site.at, unique()
	at.TTL *= 10 // what is taken is not free again in time
	holder, waiter := s.replicaAt(t, at, nil).connected(t), s.replicaAt(t, at, nil).connected(t)
	release(t, acquire(t, waiter, name)) // connects
	granted := 0
	for range waits {
		lease := acquireWithin(t, holder, name, at.TTL/2)
		before := len(s.traces(t, name))
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error, 1)
		go func() {
			lease, err := waiter.Acquire(ctx, name)
			if err == nil {
				release(t, lease)
			}
			got <- err
		}()
		if s.lock.Guarantees.Fair {
			s.awaitTraces(t, name, before+1)
		} else {
			time.Sleep(2 * retry)
		}
		timer := time.AfterFunc(rand.N(2*retry), func() { cancel(errHungUp) })
		release(t, lease)
		select {
		case err := <-got:
			if err == nil {
				granted++
			} else {
				assertGaveUp(t, err, errHungUp)
			}
		case <-time.After(patience):
			t.Fatalf("a waiter goes on %s after the release and its cancellation", patience)
		}
		timer.Stop()
		cancel(nil)
	}
	s.assertClean(t, name)
	release(t, acquireWithin(t, waiter, name, at.TTL/2))
	t.Logf("%d of %d waiters were granted the name", granted, waits)
}

// leavesNothingOfACrowd has a crowd wait, most of which is cancelled.
func leavesNothingOfACrowd(t *testing.T, s *subject) {
	const waiters, staying = 200, 10
	name, at := unique(), s.site.at
	at.TTL *= 3 // it must not run out while the crowd is busy
	replicas := []*replica{s.replicaAt(t, at, nil).connected(t), s.replicaAt(t, at, nil).connected(t)}
	lease := acquire(t, replicas[0], name)
	for _, l := range replicas {
		isFree(t, l, name) // starts what a replica keeps for its waiters
	}
	before := settled(t)
	leaving, leave := context.WithCancelCause(t.Context())
	gone, served := make(chan error, waiters), make(chan error, staying)
	for i := range waiters {
		l := replicas[i%len(replicas)]
		if i%(waiters/staying) == 0 {
			go func() { served <- holdOnce(t.Context(), l, name) }()
			continue
		}
		go func() {
			_, err := l.Acquire(leaving, name)
			gone <- err
		}()
	}
	time.Sleep(aWhile) // until most of them wait
	leave(errHungUp)
	awaitCancelled(t, gone, waiters-staying)
	s.assertTraces(t, name, 2*(staying+1), at.TTL) // a waiter may show in two places
	assertHeld(t, lease, replicas[1], name)
	release(t, lease)
	for range staying {
		if err := <-served; err != nil && !t.Failed() {
			t.Errorf("a waiter that was not cancelled: %v", err)
		}
	}
	s.assertClean(t, name)
	assertNoMoreGoroutines(t, before)
}

// awaitCancelled requires that so many waiters return soon after their cancellation. In a
// crowd the backend may be too slow to answer, which is no grant.
func awaitCancelled(t *testing.T, gone <-chan error, waiters int) {
	t.Helper()
	late := time.After(lateInACrowd)
	for n := range waiters {
		select {
		case err := <-gone:
			if !t.Failed() && !errors.Is(err, stock.ErrBackendUnavailable) {
				assertGaveUp(t, err, errHungUp) // the first failure is enough
			}
		case <-late:
			t.Fatalf("%d of %d waiters go on %s after their cancellation: a pause or a request ignores ctx", waiters-n, waiters, lateInACrowd)
		}
	}
}

// holdOnce waits until the name is granted, and gives it back.
func holdOnce(ctx context.Context, l lock.Locker, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// asksAtIntervals counts the requests of a waiter to the servers: a lock that spins
// overloads them.
func asksAtIntervals(t *testing.T, s *subject) {
	const wait, most = time.Second, 400
	at := s.site.at
	at.TTL *= 3 // not every lock is renewed
	through, cuts := at.through(t)
	holder, waiter, name := s.replicaAt(t, at, nil).connected(t), s.replicaAt(t, through, nil).connected(t), unique()
	release(t, acquire(t, waiter, name))
	lease := acquire(t, holder, name)
	armed := cuts.lose(never, name, false)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	_, err := attempt(ctx, t, waiter, name, soon)
	assertGaveUp(t, err, context.DeadlineExceeded)
	asked := armed.seen()
	armed.disarm()
	switch {
	case asked == 0:
		t.Errorf("no request of a waiter contains the name %q, so that the suite cannot count them", name)
	case asked > most:
		t.Errorf("a single waiter sent %d requests in %s, want at most %d: it spins", asked, wait, most)
	}
	release(t, lease)
}
