package process

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stockd/stockd/internal/lock"
)

// A name is kept for as long as it is held or waited for, however the waiting ends.
func TestAnUnusedNameCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		names := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			if len(l.names) != want {
				t.Errorf("%d names are kept %s, want %d", len(l.names), when, want)
			}
		}
		held, err := l.Acquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = l.Acquire(ctx, "a") }()
		granted := make(chan lock.Lease)
		go func() {
			lease, _ := l.Acquire(t.Context(), "a")
			granted <- lease
		}()
		names(1, "while one holds it and two wait")
		cancel()
		names(1, "after one has left")
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
		next := <-granted
		names(1, "while the other one holds it")
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
		names(0, "after the last one")
	})
}
