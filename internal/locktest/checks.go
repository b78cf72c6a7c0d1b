package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// patience bounds what must happen, and says nothing of how fast.
	patience = 10 * time.Second
	// soon is how late something may come on a busy machine.
	soon = time.Second
	// lateInACrowd is how late something may come while hundreds wait.
	lateInACrowd = 4 * soon
	// grace is how much later than its TTL a loss may be signalled there.
	grace = 500 * time.Millisecond
	// aWhile is how long something is watched that must not happen.
	aWhile = 150 * time.Millisecond
)

// replica is a replica like any other, closed with the test.
func (s *subject) replica(t *testing.T) *replica {
	t.Helper()
	return s.replicaAt(t, s.site.at, nil).connected(t)
}

func (s *subject) replicaAt(t *testing.T, at addresses, floor func(context.Context, string) (uint64, error)) *replica {
	t.Helper()
	r, err := at.open(s.lock.Entry, floor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, r) })
	return r
}

// unique is a name that no other test locks.
func unique() string { return "test-" + rand.Text() }

// acquire takes a name that is free, or becomes free.
func acquire(t *testing.T, l lock.Locker, name string) lock.Lease {
	t.Helper()
	return acquireWithin(t, l, name, patience)
}

// acquireWithin takes a name that is free by then.
func acquireWithin(t *testing.T, l lock.Locker, name string, limit time.Duration) lock.Lease {
	t.Helper()
	return acquireUnder(t.Context(), t, l, name, limit)
}

func acquireUnder(parent context.Context, t *testing.T, l lock.Locker, name string, limit time.Duration) lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	lease, err := attempt(ctx, t, l, name, lateInACrowd)
	if err != nil {
		t.Fatalf("not acquired within %s: %v", limit, err)
	}
	return lease
}

func release(t *testing.T, lease lock.Lease) {
	t.Helper()
	if err := lease.Release(within(t)); err != nil {
		t.Errorf("release: %v", err)
	}
}

// within is a context that bounds one call.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// attempt is an Acquire whose context ends while it waits. One that goes on for longer than
// late after that fails the test as such: what it answers in the end, on connections that may be
// closed by then, would only mislead.
func attempt(ctx context.Context, t *testing.T, l lock.Locker, name string, late time.Duration) (lease lock.Lease, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		lease, err = l.Acquire(ctx, name)
	}()
	select {
	case <-done:
		return lease, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case <-done:
		return lease, err
	case <-timer.C:
		t.Fatalf("Acquire goes on %s after the end of its context (%v): a pause or a request of it ignores ctx", late, context.Cause(ctx))
		return nil, nil
	}
}

// isFree reports whether a client can take a name within a while. It gives the name back.
func isFree(t *testing.T, l lock.Locker, name string) bool {
	t.Helper()
	return isFreeWithin(t, l, name, aWhile)
}

func isFreeWithin(t *testing.T, l lock.Locker, name string, limit time.Duration) bool {
	t.Helper()
	return isGranted(t.Context(), t, l, name, limit)
}

// isGranted is isFreeWithin for an owner that the context names. A backend that was too
// slow to answer has not granted the name.
func isGranted(owner context.Context, t *testing.T, l lock.Locker, name string, limit time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(owner, limit)
	defer cancel()
	lease, err := attempt(ctx, t, l, name, lateInACrowd)
	if err != nil {
		if !errors.Is(err, stock.ErrBackendUnavailable) {
			assertGaveUp(t, err, context.DeadlineExceeded)
		}
		return false
	}
	_ = lease.Release(within(t)) // whether it was lost meanwhile is another topic
	return true
}

// assertHeld requires that a lease lasts, and that no other client gets its name.
func assertHeld(t *testing.T, lease lock.Lease, others lock.Locker, name string) {
	t.Helper()
	if isFree(t, others, name) {
		t.Error("a name that is held was granted to another")
	}
	if cause := context.Cause(lease.Context()); cause != nil {
		t.Errorf("a lease that was not released ended: %v", cause)
	}
}

// assertGaveUp requires that an error reports the end of the wait, and no failure of the
// backend.
func assertGaveUp(t *testing.T, err, cause error) {
	t.Helper()
	if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, cause) {
		t.Errorf("gave up with %v, want %v and %v", err, lock.ErrNotAcquired, cause)
	}
	if errors.Is(err, stock.ErrBackendUnavailable) {
		t.Errorf("gave up with %v, which blames the backend for the end of the wait", err)
	}
}

// assertLost requires that a lease has ended because the backend took it.
func assertLost(t *testing.T, lease lock.Lease) {
	t.Helper()
	if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("a lease that was lost ended with %v, want %v", cause, lock.ErrLost)
	}
}

// assertReleaseLost requires that a lease that was lost says so when it is released.
func assertReleaseLost(t *testing.T, lease lock.Lease) {
	t.Helper()
	if err := lease.Release(within(t)); !errors.Is(err, lock.ErrLost) {
		t.Errorf("released after the loss with %v, want %v", err, lock.ErrLost)
	}
}

func closed(t *testing.T, what io.Closer) {
	t.Helper()
	if err := what.Close(); err != nil {
		t.Error(err)
	}
}
