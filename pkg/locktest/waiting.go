package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/stock"
)

var errHungUp = errors.New("the buyer hung up")

func givesUpWithItsDeadline(t *testing.T, s *subject) {
	const limit = 200 * time.Millisecond
	holder, waiter, name := s.replica(t), s.replica(t), unique()
	lease := acquire(t, holder, name)
	before := len(s.site.litter(t, name))
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := waiter.Acquire(ctx, name)
	waited := time.Since(start)
	assertGaveUp(t, err, context.DeadlineExceeded)
	if waited < limit || waited > limit+soon {
		t.Errorf("waited %s, want %s", waited, limit)
	}
	s.awaitAtMost(t, name, before, s.site.ttl())
	assertHeld(t, lease, holder, name)
	release(t, lease)
	s.assertClean(t, name)
}

func givesUpWithItsCancellation(t *testing.T, s *subject) {
	holder, waiter, name := s.replica(t), s.replica(t), unique()
	lease := acquire(t, holder, name)
	before := len(s.site.litter(t, name))
	ctx, cancel := context.WithCancelCause(t.Context())
	var cancelled time.Time
	timer := time.AfterFunc(aWhile, func() {
		cancelled = time.Now()
		cancel(errHungUp)
	})
	defer timer.Stop()
	_, err := waiter.Acquire(ctx, name)
	if late := time.Since(cancelled); ctx.Err() == nil || late > soon {
		t.Errorf("returned %s after the cancellation", late)
	}
	assertGaveUp(t, err, errHungUp)
	s.awaitAtMost(t, name, before, s.site.ttl())
	release(t, lease)
	s.assertClean(t, name)
}

// awaitAtMost finds that whoever gave up is gone from the backend, before what he left
// could have expired by itself.
func (s *subject) awaitAtMost(t *testing.T, name string, n int, ttl time.Duration) {
	t.Helper()
	var left []string
	if !labtest.Eventually(ttl/2, func() bool { left = s.site.litter(t, name); return len(left) <= n }) {
		t.Errorf("the backend shows %d traces of a name, and %d before somebody waited and gave up: %q", len(left), n, left)
	}
}

func takesNothingForACancelledRequest(t *testing.T, s *subject) {
	l, name := s.replica(t), unique()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errHungUp)
	lease, err := l.Acquire(ctx, name)
	if err == nil {
		t.Error("a request that was cancelled before was granted the name")
		release(t, lease)
	}
	assertGaveUp(t, err, errHungUp)
	s.assertClean(t, name)
	release(t, acquireWithin(t, l, name, s.site.ttl()/2))
}

// takesNothingWhenCancelledInTheMiddle ends requests at random moments, among
// them those in which the backend has granted the name and the answer is under
// way. Whoever was told that he has not got it has not.
func takesNothingWhenCancelledInTheMiddle(t *testing.T, s *subject) {
	const requests = 60
	l, name := s.replica(t), unique()
	release(t, acquire(t, l, name)) // the connection stands
	start := time.Now()
	release(t, acquire(t, l, name))
	usual := time.Since(start)
	granted := 0
	for range requests {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(rand.N(usual), func() { cancel(errHungUp) })
		lease, err := l.Acquire(ctx, name)
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
	release(t, acquireWithin(t, l, name, s.site.ttl()/2))
	t.Logf("%d of %d requests were granted", granted, requests)
}

// leavesNothingOfACrowd has a crowd wait, most of which goes away again.
func leavesNothingOfACrowd(t *testing.T, s *subject) {
	const waiters, staying = 200, 10
	name, at := unique(), s.site.addresses()
	at.TTL *= 3 // it must not run out while the crowd is busy
	replicas := []*replica{s.replicaAt(t, at, nil), s.replicaAt(t, at, nil)}
	lease := acquire(t, replicas[0], name)
	for _, l := range replicas {
		isFree(t, l, name) // what a replica keeps for those who wait, it has by now
	}
	before := settled(t)
	leaving, leave := context.WithCancelCause(t.Context())
	gone, served := make(chan error, waiters), make(chan error, staying)
	for i := range waiters {
		l := replicas[i%len(replicas)]
		if i%(waiters/staying) == 0 {
			go func() { served <- serve(t.Context(), l, name) }()
			continue
		}
		go func() {
			_, err := l.Acquire(leaving, name)
			gone <- err
		}()
	}
	time.Sleep(aWhile) // for most of them to be in the midst of it
	leave(errHungUp)
	start := time.Now()
	for range waiters - staying {
		// In such a crowd the backend may be too slow to say no. That is no yes.
		if err := <-gone; !t.Failed() && !errors.Is(err, stock.ErrBackendUnavailable) {
			assertGaveUp(t, err, errHungUp) // the first failure tells enough
		}
	}
	if late := time.Since(start); late > 4*soon {
		t.Errorf("the last of those who were cancelled returned after %s", late)
	}
	s.awaitAtMost(t, name, 2*(staying+1), at.TTL) // a waiter may show in two places
	assertHeld(t, lease, replicas[1], name)
	release(t, lease)
	for range staying {
		if err := <-served; err != nil && !t.Failed() {
			t.Errorf("a waiter who stayed: %v", err)
		}
	}
	s.assertClean(t, name)
	assertNoMoreGoroutines(t, before)
}

// serve is a waiter who stays until the name is his, and gives it back.
func serve(ctx context.Context, l lock.Locker, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// asksAtIntervals counts what a waiter asks the servers for in the course of a wait: a
// lock that spins loads them for nothing.
func asksAtIntervals(t *testing.T, s *subject) {
	const wait, most = time.Second, 400
	at := s.site.addresses()
	at.TTL *= 3 // not every lock is renewed
	through, cuts := at.through(t)
	holder, waiter, name := s.replicaAt(t, at, nil), s.replicaAt(t, through, nil), unique()
	release(t, acquire(t, waiter, name))
	lease := acquire(t, holder, name)
	armed := cuts.lose(never, name, false)
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	_, err := waiter.Acquire(ctx, name)
	assertGaveUp(t, err, context.DeadlineExceeded)
	asked := armed.seen()
	armed.disarm()
	if asked > most {
		t.Errorf("a waiter that is alone sent %d requests in %s, want at most %d", asked, wait, most)
	}
	release(t, lease)
}
