package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// Each mode has one seller, and a strategy without a lock has none with a fence.
func TestGroupingAndFencingCompose(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 1)
	sellers := make(map[*service.Seller]bool)
	for _, mode := range []service.Mode{{}, {Group: true}, {Fence: true}, {Group: true, Fence: true}} {
		mode.Strategy = "sql-version-lock"
		seller := s.in(t, 0, mode)
		if sellers[seller] || seller != s.in(t, 0, mode) || seller.Mode != mode {
			t.Errorf("%s is sold in the mode %s, by a seller that is new (%t)", mode, seller.Mode, !sellers[seller])
		}
		sellers[seller] = true
	}
	if _, err := s.replicas[0].In(service.Mode{Strategy: "naive", Group: true, Fence: true}); !errors.Is(err, service.ErrNotFenceable) {
		t.Errorf("naive, grouped and fenced: %v, want %v", err, service.ErrNotFenceable)
	}
	both := s.in(t, 0, service.Mode{Strategy: "sql-version-lock", Group: true, Fence: true})
	s.create(t, 1, 10)
	var last uint64
	for range 3 {
		outcome, err := both.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1})
		if err != nil || outcome.Order.Token <= last {
			t.Fatalf("after token %d: %v, %+v", last, err, outcome)
		}
		last = outcome.Order.Token
	}
	if goods, err := s.inventory.Goods(t.Context(), 1); err != nil || goods.Fence != last {
		t.Errorf("the fence is %d (%v), want the last token %d", goods.Fence, err, last)
	}
	assertSold(t, s, 1, 3)
}

// lossy is a strategy whose outcomes are unknown.
type lossy struct{ strategy.Strategy }

// lossyOutbox is one whose outcomes are not the row's.
type lossyOutbox struct {
	lossy
	strategy.Outbox
}

func (lossy) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, stock.ErrUnknownOutcome
}

// After a batch of unknown outcome the row is waited for before the next is written, unless the
// outcomes of the strategy are not the row's.
func TestABatchOfUnknownOutcomeIsWaitedForAtTheRow(t *testing.T) {
	for by, want := range map[strategy.Strategy]error{lossy{}: stock.ErrBackendUnavailable, lossyOutbox{}: stock.ErrUnknownOutcome} {
		store, c, err := openEntries(t, strategy.Entry{Name: "lossy", New: func(strategy.Deps) strategy.Strategy { return by }})
		if err != nil {
			t.Fatal(err)
		}
		s := shop{service.NewInventory(store, c), []*service.Catalogue{c}}
		s.create(t, 1, 10)
		seller := s.in(t, 0, service.Mode{Strategy: "lossy", Group: true})
		if _, err := seller.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1}); !errors.Is(err, stock.ErrUnknownOutcome) {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := seller.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1}); !errors.Is(err, want) || errors.Is(err, stock.ErrUnknownOutcome) != errors.Is(want, stock.ErrUnknownOutcome) {
			t.Errorf("%T: where the row cannot be read, the next batch is answered with %v, want %v", by, err, want)
		}
	}
}

// Grouped, ungrouped, fenced and keyed purchases of three replicas sell one item out
// together, exactly.
func TestGroupedAndUngroupedMix(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := open(t, d, 3)
		s.create(t, 1, 100)
		names := []string{"sql-conditional" + grouped, "sql-conditional", "sql-for-update" + grouped, "sql-optimistic" + grouped}
		var mu sync.Mutex
		var sold, rejected int64
		var buyers sync.WaitGroup
		for i := range 24 {
			buyers.Go(func() {
				for range 8 {
					p := stock.Purchase{Quantity: 1}
					if i%2 == 0 {
						p = keyed(rand.Text(), 1)
					}
					outcome, err := s.strategy(t, i%3, names[i%len(names)]).Deduct(t.Context(), 1, p)
					if err != nil {
						t.Errorf("%s: %v", names[i%len(names)], err)
						return
					}
					mu.Lock()
					if outcome.Rejected == nil {
						sold++
					} else {
						rejected++
					}
					mu.Unlock()
				}
			})
		}
		buyers.Wait()
		if sold != 100 || rejected != 92 {
			t.Errorf("%d were sold, %d were rejected, want 100 and 92", sold, rejected)
		}
		assertSold(t, s, 1, 100)
	})
}

// A caller that is gone does not take the search of the others with it.
func TestLeavingASearchAffectsNoOtherCaller(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 1)
	s.create(t, 1, 100)
	sv := s.strategy(t, 0, "sql-conditional"+grouped)
	key := rand.Text()
	if _, err := sv.Deduct(t.Context(), 1, keyed(key, 1)); err != nil {
		t.Fatal(err)
	}
	var buyers sync.WaitGroup
	for i := range 40 {
		buyers.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%2 == 0 {
				cancel()
			}
			outcome, err := sv.Deduct(ctx, 1, keyed(key, 1))
			if i%2 == 0 && errors.Is(err, context.Canceled) {
				return
			}
			if err != nil || !outcome.Replayed {
				t.Errorf("copy %d: %v, %+v, want the first answer", i, err, outcome)
			}
		})
	}
	buyers.Wait()
	assertSold(t, s, 1, 1)
}
