package labtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lock"
)

// HoldAndRelease acquires a name within five seconds, releases it, and returns its token.
func HoldAndRelease(t *testing.T, l lock.Locker, name string) (token uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		t.Fatal(err)
	}
	return lease.Token()
}

// AwaitLoss requires that a lease ends as lost within a time, and that its release says so.
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

// AwaitAnswer asks a server until it answers, for a limited time.
func AwaitAnswer(t *testing.T, of string, limit time.Duration, ask func() error) {
	t.Helper()
	var err error
	if !Eventually(limit, func() bool { err = ask(); return err == nil }) {
		t.Fatalf("%s does not answer within %s: %v", of, limit, err)
	}
}

// Eventually repeats a check until it succeeds, for a limited time.
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
