package zk_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// entry finds a lock of the registry.
func entry(t *testing.T, name string) lock.Entry {
	t.Helper()
	i := slices.IndexFunc(registry.Locks(), func(e lock.Entry) bool { return e.Name == name })
	if i < 0 {
		t.Fatalf("there is no lock %s", name)
	}
	return registry.Locks()[i]
}

// assertLost waits until a lease is lost, and holds it to what it owes then.
func assertLost(t *testing.T, lease lock.Lease, limit time.Duration) {
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
