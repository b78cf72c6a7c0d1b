package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

var errHungUp = errors.New("the client closed the request")

func givesUpWithItsDeadline(t *testing.T, s *subject) {
	givesUp(t, s, context.DeadlineExceeded, func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), aWhile)
	})
}

func givesUpWithItsCancellation(t *testing.T, s *subject) {
	givesUp(t, s, errHungUp, func() (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(aWhile, func() { cancel(errHungUp) })
		return ctx, func() { timer.Stop() }
	})
}

// givesUp has a wait end after a while, and neither before nor long after.
func givesUp(t *testing.T, s *subject, cause error, end func() (context.Context, context.CancelFunc)) {
	t.Helper()
	holder, waiter, name := s.replica(t), s.replica(t), unique()
	lease := Hold(t, holder, name)
	before := len(s.traces(t, name))
	start := time.Now()
	ctx, stop := end()
	defer stop()
	_, err := attempt(ctx, t, waiter, name, soon)
	if waited := time.Since(start); waited < aWhile {
		t.Errorf("waited %s, want %s", waited, aWhile)
	}
	assertGaveUp(t, err, cause)
	s.assertTraces(t, name, before, s.site.at.TTL)
	assertHeld(t, lease, holder, name)
	Release(t, lease)
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
		Release(t, lease)
	}
	assertGaveUp(t, err, errHungUp)
	s.assertClean(t, name)
	Release(t, HoldWithin(t, l, name, at.TTL/2))
}

// takesNothingWhenCancelledInTheMiddle ends requests at random moments, among them those
// in which the backend has granted the name and the answer is under way. An Acquire that
// fails has not taken the name.
func takesNothingWhenCancelledInTheMiddle(t *testing.T, s *subject) {
	const requests = 60
	at, name := s.site.at, unique()
	at.TTL *= 10 // what is taken is not free again in time
	l := s.replicaAt(t, at, nil).connected(t)
	Release(t, Hold(t, l, name)) // connects
	start := time.Now()
	Release(t, Hold(t, l, name))
	usual := time.Since(start)
	granted := 0
	for range requests {
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(rand.N(usual), func() { cancel(errHungUp) })
		lease, err := attempt(ctx, t, l, name, soon)
		timer.Stop()
		if err == nil {
			granted++
			Release(t, lease)
		} else {
			assertGaveUp(t, err, errHungUp)
		}
		cancel(nil)
	}
	s.assertClean(t, name)
	Release(t, HoldWithin(t, l, name, at.TTL/2))
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
	Release(t, Hold(t, waiter, name)) // connects
	granted := 0
	for range waits {
		lease := HoldWithin(t, holder, name, at.TTL/2)
		before := len(s.traces(t, name))
		ctx, cancel := context.WithCancelCause(t.Context())
		next := HoldLater(ctx, waiter, name)
		s.awaitWaiter(t, name, before, 2*retry)
		timer := time.AfterFunc(rand.N(2*retry), func() { cancel(errHungUp) })
		Release(t, lease)
		if err := next.end(t, patience); err == nil {
			granted++
			Release(t, next.Lease)
		} else {
			assertGaveUp(t, err, errHungUp)
		}
		timer.Stop()
		cancel(nil)
	}
	s.assertClean(t, name)
	Release(t, HoldWithin(t, waiter, name, at.TTL/2))
	t.Logf("%d of %d waiters were granted the name", granted, waits)
}

// givesBackWhatIsGrantedTooLate ends requests in the moment in which the backend has a key or a node for
// them, where a lock tells of that.
func givesBackWhatIsGrantedTooLate(t *testing.T, s *subject) {
	const requests = 5 // an Acquire may look for the end of its context in several places
	at, name := s.site.at, unique()
	at.TTL *= 10 // what is taken is not free again in time
	l := s.replicaAt(t, at, nil).connected(t)
	for range requests {
		ctx, cancel := context.WithCancelCause(t.Context())
		lease, err := l.Acquire(lock.WithNotes(ctx, func(n lock.Note) {
			if n.What == lock.Placed {
				cancel(errHungUp)
			}
		}), name)
		if ctx.Err() == nil {
			Release(t, lease)
			t.Skip("it does not tell of its key or node")
		}
		should.Be(t, lease != nil, false, "a request that has ended is granted the name")
		assertGaveUp(t, err, errHungUp)
	}
	Release(t, HoldWithin(t, l, name, at.TTL/2))
	s.assertClean(t, name)
}

// leavesNothingOfACrowd has a crowd wait, most of which is cancelled.
func leavesNothingOfACrowd(t *testing.T, s *subject) {
	const waiters, staying = 200, 10
	name, at := unique(), s.site.at
	at.TTL *= 3 // it must not run out while the crowd is busy
	replicas := []*replica{s.replicaAt(t, at, nil).connected(t), s.replicaAt(t, at, nil).connected(t)}
	lease := Hold(t, replicas[0], name)
	for _, l := range replicas {
		isFree(t, l, name) // starts what a replica keeps for its waiters
	}
	before := settled(t)
	leaving, leave := context.WithCancelCause(t.Context())
	var gone []*Later
	served := make(chan error, staying)
	for i := range waiters {
		l := replicas[i%len(replicas)]
		if i%(waiters/staying) == 0 {
			// A release of redis-getset may lock all of them out until its time has passed.
			go func() { served <- holdOnce(t.Context(), l, name, (staying+1)*at.TTL) }()
			continue
		}
		gone = append(gone, HoldLater(leaving, l, name))
	}
	time.Sleep(aWhile) // until most of them wait
	leave(errHungUp)
	awaitCancelled(t, gone)
	s.assertTraces(t, name, 2*(staying+1), at.TTL) // a waiter may show in two places
	assertHeld(t, lease, replicas[1], name)
	Release(t, lease)
	for range staying {
		if err := <-served; err != nil && !t.Failed() {
			t.Errorf("a waiter that was not cancelled: %v", err)
		}
	}
	s.assertClean(t, name)
	assertNoMoreGoroutines(t, before)
}

// awaitCancelled requires that waiters return soon after their cancellation. In a
// crowd the backend may be too slow to answer, which is no grant.
func awaitCancelled(t *testing.T, gone []*Later) {
	t.Helper()
	late := time.After(lateInACrowd)
	for n, waiter := range gone {
		select {
		case <-waiter.Done:
			if !t.Failed() && !errors.Is(waiter.Err, stock.ErrBackendUnavailable) {
				assertGaveUp(t, waiter.Err, errHungUp) // the first failure is enough
			}
		case <-late:
			t.Fatalf("waiter %d of %d goes on %s after its cancellation: a pause or a request ignores ctx", n, len(gone), lateInACrowd)
		}
	}
}

// holdOnce waits until the name is granted, for patience and what a lock may need beside, and gives it back.
func holdOnce(ctx context.Context, l lock.Locker, name string, beside time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, 3*patience+beside)
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
	Release(t, Hold(t, waiter, name))
	lease := Hold(t, holder, name)
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
	Release(t, lease)
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
	lease := Hold(t, holder, name)
	if isFree(t, l, name) {
		t.Error("a name that is held was granted to another")
	}
	if tries.Load() == 0 {
		Release(t, lease) // its waiters are notified
		return
	}
	leaving, leave := context.WithCancelCause(t.Context())
	var gone []*Later
	for range crowd {
		gone = append(gone, HoldLater(leaving, l, name))
	}
	time.Sleep(aWhile) // until most of them wait
	leave(errHungUp)
	awaitCancelled(t, gone)
	before := tries.Load()
	granted := HoldLater(t.Context(), l, name)
	// Beside a third of the crowd its first pause alone would be longer than a second.
	if !labtest.Eventually(patience/2, func() bool { return tries.Load() >= before+8 }) {
		t.Errorf("it tried %d times within %s, as if the crowd was still there", tries.Load()-before, patience/2)
	}
	Release(t, lease)
	released := time.Now()
	// A lock that does not compare the owner may lock itself out for a TTL, by a look just after the release.
	lease = granted.Within(t, patience+at.TTL)
	if waited := time.Since(released); waited > soon && freesOnlyItsOwn(s) {
		t.Errorf("it was granted a free name after %s, as if the crowd was still there", waited)
	}
	Release(t, lease)
	s.assertClean(t, name)
}

// Waiters of a test of fairness, how often a guarantee is proved, and how many tries a
// lock has to show that it is not fair.
const (
	queuing = 8
	proofs  = 3
	chances = 10
)

// isFair proves that the name is granted in the order of arrival, or shows
// another order.
func isFair(t *testing.T, s *subject) {
	replicas := []*replica{s.replica(t), s.replica(t)}
	if s.lock.Guarantees.Fair {
		for range proofs {
			if order := orderOfGrants(t, s, replicas, 0); !slices.IsSorted(order) {
				t.Errorf("guarantees Fair, and granted in the order %v", order)
			}
		}
		return
	}
	for try := range chances {
		// A server may queue its waiters, and forget the queue when the slices of their
		// waiting are over: every other time the name is held for one.
		hold := time.Duration(try%2) * slice
		if order := orderOfGrants(t, s, replicas, hold); !slices.IsSorted(order) {
			return
		}
	}
	t.Errorf("does not guarantee Fair, and granted in the order of arrival %d times", chances)
}

// slice is about as long as the longest slice of waiting.
const slice = 900 * time.Millisecond

// orderOfGrants starts waiters one after another, and last of all the holder, which wants
// the name again as soon as it has released it. It returns the order of the grants.
func orderOfGrants(t *testing.T, s *subject, replicas []*replica, hold time.Duration) []int {
	t.Helper()
	name := unique()
	lease := Hold(t, replicas[0], name)
	var order []int
	var waiters sync.WaitGroup
	wait := func(i int) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		lease, err := replicas[i%len(replicas)].Acquire(ctx, name)
		if err != nil {
			t.Errorf("waiter %d: %v", i, err)
			return
		}
		order = append(order, i) // the lock guards it
		should.Be(t, lease.Release(ctx), nil, "release by waiter", i)
	}
	for i := range queuing {
		before := len(s.traces(t, name))
		waiters.Go(func() { wait(i) })
		s.awaitWaiter(t, name, before, 2*retry)
	}
	time.Sleep(hold)
	Release(t, lease)
	wait(queuing)
	waiters.Wait()
	return order
}
