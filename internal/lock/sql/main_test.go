package sql_test

import (
	"context"
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

func holdAndRelease(t *testing.T, l lock.Locker, name string) (token uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	lease, err := l.Acquire(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return lease.Token()
}
