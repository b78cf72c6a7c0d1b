package locktest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

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
	lease := acquire(t, replicas[0], name)
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
		if err := lease.Release(ctx); err != nil {
			t.Errorf("waiter %d released: %v", i, err)
		}
	}
	for i := range queuing {
		before := len(s.traces(t, name))
		waiters.Go(func() { wait(i) })
		if s.lock.Guarantees.Fair {
			s.awaitTraces(t, name, before+1)
		} else {
			time.Sleep(2 * retry)
		}
	}
	time.Sleep(hold)
	release(t, lease)
	wait(queuing)
	waiters.Wait()
	return order
}
