package locktest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// Find returns a lock of the registry by its name.
func Find(t *testing.T, name string) lock.Entry {
	t.Helper()
	locks := registry.Locks()
	i := slices.IndexFunc(locks, func(e lock.Entry) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("there is no lock %s", name)
	}
	return locks[i]
}

// HoldAndRelease acquires a name within five seconds, releases it, and returns its token.
func HoldAndRelease(t *testing.T, l lock.Locker, name string) (token uint64) {
	t.Helper()
	lease := acquireWithin(t, l, name, 5*time.Second)
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return lease.Token()
}

// AwaitLoss finds that a lease ends as lost within a time, and that its release says so.
func AwaitLoss(t *testing.T, lease lock.Lease, limit time.Duration) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(limit):
		t.Fatalf("the loss was not signalled within %s", limit)
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the lease ended with %v, want %v", cause, lock.ErrLost)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("released with %v, want %v", err, lock.ErrLost)
	}
}

// Eventually asks until the answer is yes, for a limited time.
func Eventually(limit time.Duration, ok func() bool) bool {
	for end := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}
