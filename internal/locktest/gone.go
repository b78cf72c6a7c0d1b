package locktest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/stock"
)

// signalsLossToAReplacedHolder has another client be granted the name as soon as the backend
// has taken it: what the first holder then finds under the name is not its own.
func signalsLossToAReplacedHolder(t *testing.T, s *subject) {
	l, next, name, ttl := s.replica(t), s.replica(t), unique(), s.site.at.TTL
	lease := acquire(t, l, name)
	broken := time.Now()
	s.take(t, name)
	others := acquire(t, next, name)
	if !endsWithin(lease, ttl+grace-time.Since(broken)) {
		t.Fatalf("the name is another's, and its first holder was not notified within the TTL of %s", ttl)
	}
	assertLost(t, lease)
	assertReleaseLost(t, lease)
	if s.lock.Guarantees.Renews {
		assertHeld(t, others, l, name)
		release(t, others)
	} else {
		_ = others.Release(within(t)) // its time may be over by now
	}
	s.assertClean(t, name)
}

// forgetsWaitersThatLeft has a crowd wait and leave, where the lock is one that tries again: a later
// waiter, which is alone, tries as soon as one that has always been.
func forgetsWaitersThatLeft(t *testing.T, s *subject) {
	const crowd = 100
	patient, made, tries := *s, s.lock.New, new(atomic.Int64)
	patient.lock.New = func(d lock.Deps) lock.Locker {
		d.Retry, d.TriedInVain = time.Minute, func() { tries.Add(1) }
		return made(d)
	}
	at := s.site.at
	at.TTL *= 10 // not every lock is renewed
	holder, l, name := s.replicaAt(t, at, nil).connected(t), patient.replicaAt(t, at, nil).connected(t), unique()
	lease := acquire(t, holder, name)
	if isFree(t, l, name) {
		t.Error("a name that is held was granted to another")
	}
	if tries.Load() == 0 {
		release(t, lease) // its waiters are notified
		return
	}
	leaving, leave := context.WithCancelCause(t.Context())
	gone := make(chan error, crowd)
	for range crowd {
		go func() {
			_, err := l.Acquire(leaving, name)
			gone <- err
		}()
	}
	time.Sleep(aWhile) // until most of them wait
	leave(errHungUp)
	awaitCancelled(t, gone, crowd)
	granted, before := make(chan error, 1), tries.Load()
	go func() { granted <- holdOnce(t.Context(), l, name) }()
	// Beside a third of the crowd its first pause alone would be longer than a second.
	if !labtest.Eventually(patience/2, func() bool { return tries.Load() >= before+8 }) {
		t.Errorf("it tried %d times within %s, as if the crowd was still there", tries.Load()-before, patience/2)
	}
	release(t, lease)
	released := time.Now()
	if err := <-granted; err != nil {
		t.Errorf("the waiter that came after a crowd: %v", err)
	}
	// A lock that does not compare the owner may lock itself out with a look just after the release.
	if waited := time.Since(released); waited > soon && freesOnlyItsOwn(s) {
		t.Errorf("it was granted a free name after %s, as if the crowd was still there", waited)
	}
	s.assertClean(t, name)
}

// namesAServerThatTakesNoRelease has no server answer when the name is given back: it may be held
// for another TTL, and that is the failure of the backend. A lock that lives in a session or on a
// connection has lost the name with it.
func namesAServerThatTakesNoRelease(t *testing.T, s *subject) {
	at, cuts := s.site.at.through(t)
	l, name := s.replicaAt(t, at, nil).connected(t), unique()
	lease := acquire(t, l, name)
	cuts.cut()
	err := lease.Release(within(t))
	failed, ok := errors.AsType[*stock.BackendError](err)
	ends := s.lock.Guarantees.Renews && !s.lock.Watchdog
	if lost := errors.Is(err, lock.ErrLost); lost && !ends || !lost && (!ok || failed.Backend != string(s.site.name)) {
		t.Errorf("released without a server with %v, want an error that names %s, or %v where it ends with its connection: %v", err, s.site.name, lock.ErrLost, ends)
	}
	if err := lease.Release(within(t)); err != nil {
		t.Errorf("released once more with %v, want nil", err)
	}
	if lease.Context().Err() == nil {
		t.Error("the context of a lease goes on after its release")
	}
}
