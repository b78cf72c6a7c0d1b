package process

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

func acquire(t *testing.T, l lock.Locker, name string) lock.Lease {
	t.Helper()
	return must.Get(l.Acquire(t.Context(), name))(t)
}

func TestProcessExcludes(t *testing.T) {
	l := New()
	held, seen := 0, 0
	var holders sync.WaitGroup
	for range 20 {
		holders.Go(func() {
			for range 50 {
				lease := acquire(t, l, "a")
				held++ // the race detector watches
				runtime.Gosched()
				seen = max(seen, held)
				held--
				should.Do(t, lease.Release(t.Context()))
			}
		})
	}
	holders.Wait()
	should.Be(t, seen, 1, "held the name at once")
}

func TestProcessKeepsNamesApart(t *testing.T) {
	l := New()
	acquire(t, l, "a")
	acquire(t, l, "b") // would wait for ever
}

func TestProcessGivesUpWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		held := acquire(t, l, "a")
		hungUp := errors.New("hung up")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, hungUp)
		defer cancel()
		start := time.Now()
		_, err := l.Acquire(ctx, "a")
		if !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, hungUp) {
			t.Errorf("%v, want %v and its cause", err, lock.ErrNotAcquired)
		}
		should.Be(t, time.Since(start), time.Second, "waited")
		// An Acquire that gave up delays no other.
		must.Do(t, held.Release(t.Context()))
		acquire(t, l, "a")
	})
}

func TestProcessServesInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		held := acquire(t, l, "a")
		var order []int
		var waiters sync.WaitGroup
		for i := range 5 {
			waiters.Go(func() {
				lease := acquire(t, l, "a")
				order = append(order, i)
				should.Do(t, lease.Release(t.Context()))
			})
			synctest.Wait()
		}
		must.Do(t, held.Release(t.Context()))
		waiters.Wait()
		for i, n := range order {
			must.Be(t, i, n, "served in the order", order)
		}
	})
}

// A name is kept for as long as it is held or waited for, however the waiting ends.
func TestAnUnusedNameCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New()
		names := func(want int, when string) {
			t.Helper()
			synctest.Wait()
			should.Be(t, len(l.names), want, "names are kept", when)
		}
		held := must.Get(l.Acquire(t.Context(), "a"))(t)
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
		must.Do(t, held.Release(t.Context()))
		next := <-granted
		names(1, "while the other one holds it")
		must.Do(t, next.Release(t.Context()))
		names(0, "after the last one")
	})
}
