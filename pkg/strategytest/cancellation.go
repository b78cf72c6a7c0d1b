package strategytest

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

//contract:strategy.Strategy Deduct returns soon
func doesNothingForACancelledRequest(t *testing.T, s *subject) {
	goods := s.create(t, 10)
	gone := errors.New("the buyer hung up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err := s.deduct(ctx, goods, buy(1))
	if !errors.Is(err, context.Canceled) && !errors.Is(err, gone) {
		t.Errorf("a cancelled request was answered with %v, want its cause", err)
	}
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 10)
	want(t, "orders in the ledger", audit.Orders, 0)
}

// sellsNothingAfterAFailedAnswer cancels purchases at random moments: a client that
// got an error that is not "unknown" must have bought nothing, and no purchase may
// still be in the middle of it when the answers are in.
//
//contract:strategy.Strategy Deduct returns soon
//contract:strategy.Strategy An error means
func sellsNothingAfterAFailedAnswer(t *testing.T, s *subject) {
	goods := s.create(t, 1_000_000)
	var mu sync.Mutex
	fates := make(map[string]error)
	var buyers sync.WaitGroup
	for range 8 {
		buyers.Go(func() {
			for range 10 {
				purchase := buy(1)
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(8*time.Millisecond))
				_, err := s.deduct(ctx, goods, purchase)
				cancel()
				mu.Lock()
				fates[purchase.RequestID] = err
				mu.Unlock()
			}
		})
	}
	buyers.Wait()
	s.settle(t, goods)
	for id, err := range fates {
		orders, failed := s.store.Orders(t.Context(), id)
		if failed != nil {
			t.Fatal(failed)
		}
		_, sold := orders[id]
		if unknown := errors.Is(err, stock.ErrUnknownOutcome); sold != (err == nil) && !unknown {
			t.Errorf("the buyer got %v, and sold is %t", err, sold)
		}
	}
	before := s.audit(t, goods)
	time.Sleep(50 * time.Millisecond)
	if after := s.audit(t, goods); after != before {
		t.Errorf("the item changed after every buyer had an answer: %+v, then %+v", before, after)
	}
	if s.entry.Guarantees.ExclusiveInProcess && !before.Clean {
		t.Errorf("units were lost or oversold: %+v", before)
	}
}
