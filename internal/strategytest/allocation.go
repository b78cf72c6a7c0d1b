package strategytest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// allocator is a replica of the subject as an Allocator. It fails the test where the registry entry and
// the strategy disagree, and skips it where units stay in the row.
func (s *subject) allocator(t *testing.T, replica int) strategy.Allocator {
	t.Helper()
	allocator, ok := s.bare[replica].(strategy.Allocator)
	if ok != s.entry.Allocates {
		t.Fatalf("Allocates is %t in the entry, and the strategy is an Allocator: %t", s.entry.Allocates, ok)
	}
	if !ok {
		t.Skip("it keeps no units outside of the row")
	}
	return allocator
}

// sellsTheTailOfItsAllocation sells through three replicas in turns, in quantities that no
// part of an allocation has at the end: the last unit is sold, and none is left behind.
func sellsTheTailOfItsAllocation(t *testing.T, s *subject) {
	s.allocator(t, 0)
	const units = 97
	item, left := s.create(t, units), int64(units)
	for turn := 0; left > 0; turn++ {
		quantity := min(left, []int64{7, 1, 13}[turn%3])
		if err := oneOf(s.replicas[turn%3](t.Context(), item, []stock.Purchase{buy(quantity)})); err != nil {
			t.Fatalf("%d of the last %d units were not sold: %v", quantity, left, err)
		}
		left -= quantity
	}
	if err := oneOf(s.deduct(t.Context(), item, buy(1))); !errors.Is(err, stock.ErrInsufficientStock) {
		t.Errorf("a purchase of a sold-out item: %v, want %v", err, stock.ErrInsufficientStock)
	}
	audit := s.audit(t, item)
	want(t, "stock", audit.Stock, 0)
	want(t, "sold", audit.Sold, units)
	s.wantConsistent(t, audit)
}

// returnsItsAllocation recalls what is left: another strategy sells it from the row.
func returnsItsAllocation(t *testing.T, s *subject) {
	allocator := s.allocator(t, 0)
	const units, sold = 50, 20
	item := s.create(t, units)
	s.wantSold(t, item, sold)
	s.settle(t, item)
	before, err := s.store.Goods(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	recalled, err := allocator.Recall(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	goods, err := s.store.Goods(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "units in the row after the recall", goods.Stock, units-sold)
	want(t, "units outside of the row after the recall", goods.Allocated, 0)
	want(t, "units that the recall returned", recalled.Returned, goods.Stock-before.Stock)
	want(t, "units of pending orders", recalled.Pending, 0)
	if again, err := allocator.Recall(t.Context(), item); err != nil || again.Returned != 0 {
		t.Errorf("a second recall returned %d units (%v), want none", again.Returned, err)
	}
	other := s.another(t, "sql-conditional")
	if err := oneOf(other.bare[0].Deduct(t.Context(), item, []stock.Purchase{buy(units - sold)})); err != nil {
		t.Errorf("another strategy sells what was recalled: %v", err)
	}
	if err := oneOf(s.deduct(t.Context(), item, buy(1))); !errors.Is(err, stock.ErrInsufficientStock) {
		t.Errorf("a purchase of a sold-out item: %v, want %v", err, stock.ErrInsufficientStock)
	}
	s.wantConsistent(t, s.audit(t, item))
}

// recallsDuringASale has three replicas sell, and each of them recall what is left again and again.
func recallsDuringASale(t *testing.T, s *subject) {
	const units, recalls, attempts = 300, 6, 12
	item := s.create(t, units)
	var sold atomic.Int64
	var all sync.WaitGroup
	for i, replica := range s.replicas {
		allocator := s.allocator(t, i)
		all.Go(func() {
			for range attempts {
				switch err := oneOf(replica(t.Context(), item, []stock.Purchase{buy(2)})); {
				case err == nil:
					sold.Add(2)
				case !errors.Is(err, stock.ErrBusy) && !errors.Is(err, stock.ErrAllocated):
					t.Errorf("a purchase beside a recall: %v", err)
				}
			}
		})
		all.Go(func() {
			for range recalls {
				if _, err := allocator.Recall(t.Context(), item); err != nil && !errors.Is(err, stock.ErrBusy) {
					t.Errorf("a recall during a sale: %v", err)
				}
			}
		})
	}
	all.Wait()
	audit := s.audit(t, item)
	want(t, "sold", audit.Sold, sold.Load())
	want(t, "stock", audit.Stock, units-sold.Load())
	s.wantConsistent(t, audit)
	if left := units - sold.Load(); left > 0 {
		s.wantSold(t, item, left)
	}
	s.wantConsistent(t, s.audit(t, item))
}

func (s *subject) wantConsistent(t *testing.T, audit stock.Audit) {
	t.Helper()
	if !audit.Clean {
		t.Errorf("the audit is not consistent: %+v", audit)
	}
}
