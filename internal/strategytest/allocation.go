package strategytest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
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
	s.wantRejected(t, item, 1, stock.ErrInsufficientStock)
	s.wantConsistent(t, s.wantBooks(t, item, 0, units))
}

// returnsItsAllocation recalls what is left: another strategy sells it from the row.
func returnsItsAllocation(t *testing.T, s *subject) {
	allocator := s.allocator(t, 0)
	const units, sold = 50, 20
	item := s.create(t, units)
	s.wantSold(t, item, sold)
	s.settle(t, item)
	before := must.Get(s.store.Goods(t.Context(), item))(t)
	recalled := must.Get(allocator.Recall(t.Context(), item))(t)
	goods := must.Get(s.store.Goods(t.Context(), item))(t)
	want(t, "units in the row after the recall", goods.Stock, units-sold)
	want(t, "units outside of the row after the recall", goods.Allocated, 0)
	want(t, "units that the recall returned", recalled.Returned, goods.Stock-before.Stock)
	want(t, "units of pending orders", recalled.Pending, 0)
	if again, err := allocator.Recall(t.Context(), item); err != nil || again.Returned != 0 {
		t.Errorf("a second recall returned %d units (%v), want none", again.Returned, err)
	}
	other := s.another(t, "sql-conditional")
	should.Be(t, oneOf(other.bare[0].Deduct(t.Context(), item, []stock.Purchase{buy(units - sold)})), nil, "another strategy sells what was recalled")
	s.wantRejected(t, item, 1, stock.ErrInsufficientStock)
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
	s.wantConsistent(t, s.wantBooks(t, item, units-sold.Load(), sold.Load()))
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

// undersells is a replica to which something happens when it has taken units in
// Redis for the first time, or a skip where the strategy does not undersell.
func (s *subject) undersells(t *testing.T, happens func() error) strategy.Strategy {
	t.Helper()
	if s.entry.Damage != strategy.Undersells {
		t.Skip("it takes no units outside of the database, and rejects no purchase while some are left")
	}
	deps := s.deps(t, s.store)
	takes := func(cmd redis.Cmder) bool {
		name := cmd.Name()
		return name == "decrby" || name == "lpop" || name == "set" && strings.HasSuffix(fmt.Sprint(cmd.Args()[1]), ":"+s.entry.Name)
	}
	var once sync.Once
	deps.Lock.Redis.AddHook(locktest.Hook(func(_ context.Context, send func() error, commands ...redis.Cmder) error {
		err := send()
		if slices.ContainsFunc(commands, takes) { // and the strategy has no answer yet
			once.Do(func() {
				if failed := happens(); failed != nil {
					for _, command := range commands {
						command.SetErr(failed)
					}
				}
			})
		}
		return cmp.Or(err, commands[0].Err())
	}))
	return s.entry.New(deps)
}

// rejectsWhileStockIsLeft has a small order come between a large one that does not
// fit and its putting back: both are rejected, and nothing is sold.
func rejectsWhileStockIsLeft(t *testing.T, s *subject) {
	if s.entry.Guarantees.SignalsLoss {
		t.Skip("its lock keeps a small order waiting until a large one is decided")
	}
	var goods int64
	var small []stock.Outcome
	replica := s.undersells(t, func() (err error) {
		small, err = s.deduct(t.Context(), goods, buy(1))
		return err
	})
	goods = s.create(t, 2)
	large, err := replica.Deduct(t.Context(), goods, []stock.Purchase{buy(3)})
	if err != nil {
		t.Fatal(err)
	}
	if large[0].Rejected == nil || len(small) != 1 || small[0].Rejected == nil {
		t.Errorf("3 of 2 were answered with %v, and 1 of 2 meanwhile with %v: want two rejections", large, small)
	}
	want(t, "units left when a purchase was rejected", s.audit(t, goods).Undersold(1), 1)
	// Once they are put back, they can be bought.
	s.wantSold(t, goods, 2)
}

// losesUnitsWithAReplica has a replica die between Redis and SQL: its units are
// gone, until a restock has the stock counted anew.
func losesUnitsWithAReplica(t *testing.T, s *subject) {
	replica := s.undersells(t, func() error {
		runtime.Goexit() // nothing of it is left to go on
		return nil
	})
	goods := s.create(t, 3)
	var died sync.WaitGroup
	died.Go(func() { _, _ = replica.Deduct(t.Context(), goods, []stock.Purchase{buy(2)}) })
	died.Wait()
	s.losesTwoOfThree(t, goods)
}

// losesUnitsWithAnAnswer has the answer of Redis get lost: the buyer learns that
// Redis is not available, and the units are gone.
func losesUnitsWithAnAnswer(t *testing.T, s *subject) {
	replica := s.undersells(t, func() error { return &net.OpError{Op: "read", Err: io.EOF} })
	goods := s.create(t, 3)
	_, err := replica.Deduct(t.Context(), goods, []stock.Purchase{buy(2)})
	if backend, ok := errors.AsType[*stock.BackendError](err); !ok || backend.Backend != "redis" {
		t.Errorf("after a lost answer the buyer got %v, want a failure of redis", err)
	}
	s.losesTwoOfThree(t, goods)
}

// losesTwoOfThree finds one unit to be sold of three that are in stock, and all of
// them after a restock.
func (s *subject) losesTwoOfThree(t *testing.T, goods int64) {
	t.Helper()
	s.wantSold(t, goods, 1)
	s.wantRejected(t, goods, 1, stock.ErrInsufficientStock)
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 2)
	want(t, "units left when a purchase was rejected", audit.Undersold(2), 2)
	s.restock(t, goods, 1)
	s.wantSold(t, goods, 3)
}
