package locktest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// patience bounds what must happen, and says nothing of how fast.
	patience = 10 * time.Second
	// soon is how much later than promised something may come on a busy machine.
	soon = time.Second
	// grace is how much later than its TTL a loss may be signalled there.
	grace = 500 * time.Millisecond
	// aWhile is how long something is watched that must not happen.
	aWhile = 150 * time.Millisecond
)

// replica is a replica like any other, closed with the test.
func (s *subject) replica(t *testing.T) *replica {
	t.Helper()
	return s.replicaAt(t, s.site.addresses(), nil)
}

func (s *subject) replicaAt(t *testing.T, at addresses, floor func(context.Context, string) (uint64, error)) *replica {
	t.Helper()
	r, err := at.open(s.entry, floor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, r) })
	return r
}

// unique is a name that nobody else locks.
func unique() string { return "test-" + rand.Text() }

// acquire takes a name that is to be had.
func acquire(t *testing.T, l lock.Locker, name string) lock.Lease {
	t.Helper()
	return acquireWithin(t, l, name, patience)
}

// acquireWithin takes a name that is to be had by then.
func acquireWithin(t *testing.T, l lock.Locker, name string, limit time.Duration) lock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
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

// isFree reports whether somebody can take a name within a while, and gives it
// back.
func isFree(t *testing.T, l lock.Locker, name string) bool {
	t.Helper()
	return isFreeWithin(t, l, name, aWhile)
}

func isFreeWithin(t *testing.T, l lock.Locker, name string, limit time.Duration) bool {
	t.Helper()
	return isGranted(t.Context(), t, l, name, limit)
}

// isGranted is the same for somebody whom the context names. A backend that was
// too slow to say no has not said yes.
func isGranted(owner context.Context, t *testing.T, l lock.Locker, name string, limit time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(owner, limit)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		if !errors.Is(err, stock.ErrBackendUnavailable) {
			assertGaveUp(t, err, context.DeadlineExceeded)
		}
		return false
	}
	_ = lease.Release(within(t)) // whether it was still ours is not the question here
	return true
}

// assertHeld finds that a lease lasts, and that nobody else gets its name.
func assertHeld(t *testing.T, lease lock.Lease, others lock.Locker, name string) {
	t.Helper()
	if isFree(t, others, name) {
		t.Error("a name that is held was granted to another")
	}
	if cause := context.Cause(lease.Context()); cause != nil {
		t.Errorf("a lease that nobody ended is over: %v", cause)
	}
}

// assertGaveUp finds the end of the waiting in an error, and no failure of the
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

// assertLost finds that a lease has ended because the backend took it.
func assertLost(t *testing.T, lease lock.Lease) {
	t.Helper()
	if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("a lease that was lost ended with %v, want %v", cause, lock.ErrLost)
	}
}

// assertClean finds that the backend keeps nothing because of a name.
func (s *subject) assertClean(t *testing.T, name string) {
	t.Helper()
	var left []string
	clean := labtest.Eventually(s.site.ttl()/2, func() bool {
		left = s.site.litter(t, name)
		return len(left) == 0
	})
	if !clean {
		t.Errorf("the backend still keeps of a name that nobody wants:\n%s", strings.Join(left, "\n"))
	}
}

// awaitLitter waits until the backend shows so many traces of a name. It is how
// a test knows that a waiter stands in a queue.
func (s *subject) awaitLitter(t *testing.T, name string, n int) {
	t.Helper()
	var left []string
	if !labtest.Eventually(patience, func() bool { left = s.site.litter(t, name); return len(left) >= n }) {
		t.Fatalf("the backend shows %d traces of a name, want %d:\n%s", len(left), n, strings.Join(left, "\n"))
	}
}

// background is a context for a look at the backend, which may be taken when the
// test is over.
func background(t *testing.T) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

func closed(t *testing.T, what io.Closer) {
	t.Helper()
	if err := what.Close(); err != nil {
		t.Error(err)
	}
}
