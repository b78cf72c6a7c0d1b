package strategytest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// joiner is the subject as a Joiner. It fails the test where the registry entry and the strategy
// disagree, and skips it where each item is written by itself, or by a consumer.
func (s *subject) joiner(t *testing.T) strategy.Joiner {
	t.Helper()
	joiner, joins := s.bare[0].(strategy.Joiner)
	_, consumes := s.bare[0].(*redisstock.Stock)
	if (joins || consumes) != s.entry.SeveralItems {
		t.Fatalf("SeveralItems is %t in the entry, and the strategy is a Joiner: %t", s.entry.SeveralItems, joins)
	}
	if !joins || s.store.Sharded() {
		t.Skip("a purchase is written with no other item")
	}
	return joiner
}

func deductItems(t *testing.T, j strategy.Joiner, items ...strategy.ItemBatch) [][]stock.Outcome {
	t.Helper()
	outcomes, err := j.DeductItems(t.Context(), items)
	if err != nil || len(outcomes) != len(items) {
		t.Fatalf("%d items are answered with %+v, %v", len(items), outcomes, err)
	}
	return outcomes
}

func of(goodsID int64, batch ...stock.Purchase) strategy.ItemBatch {
	return strategy.ItemBatch{GoodsID: goodsID, Purchases: batch}
}

// sellsSeveralItemsAtOnce sells one that is plentiful, one that is short and one of which a unit is
// reserved, beside those that cannot be sold together with others.
func sellsSeveralItemsAtOnce(t *testing.T, s *subject) {
	joiner := s.joiner(t)
	plenty, short, gone, held, limited, unknown := s.create(t, 50), s.create(t, 3), s.create(t, 0), s.create(t, 7), s.create(t, 9), s.goods.Add(1)
	must.Do(t, s.store.SetLimit(t.Context(), limited, 1))
	hold := reserve(2)
	outcomes := deductItems(t, joiner,
		of(short, buy(2), buy(2), buy(1)), of(unknown, buy(1)), of(plenty, buy(4), buy(5)), of(limited, buy(1)), of(gone, buy(1)), of(held, hold))
	for i, want := range [][]int64{{1, -1, 0}, nil, {46, 41}, nil, {-1}, {5}} { // what each leaves; -1: it does not fit
		if len(outcomes[i]) != len(want) {
			t.Errorf("item %d is answered with %+v, want %d outcomes", i, outcomes[i], len(want))
			continue
		}
		for n, left := range want {
			o := outcomes[i][n]
			switch {
			case left < 0 && errors.Is(o.Rejected, stock.ErrInsufficientStock):
			case left < 0 || o.Rejected != nil || o.Order.Remaining != left || o.Order.ID == "":
				t.Errorf("purchase %d of item %d is answered with %+v, want %d left", n, i, o, left)
			}
		}
	}
	s.wantReservation(t, hold, held)
	for item, left := range map[int64]int64{plenty: 41, short: 0, gone: 0, held: 5, limited: 9} {
		audit := s.audit(t, item)
		want(t, "stock", audit.Stock, left)
		s.wantConsistent(t, audit)
	}
	if outcomes := deductItems(t, joiner, of(gone, buy(1)), of(unknown, buy(1))); len(outcomes[0]) != 1 || outcomes[1] != nil {
		t.Errorf("nothing that can be sold is answered with %+v", outcomes)
	}
}

// sellsNothingOfSeveralItemsWithACopy has a request id of the ledger in the batch of one of them, and one
// request id in the batches of two.
func sellsNothingOfSeveralItemsWithACopy(t *testing.T, s *subject) {
	joiner := s.joiner(t)
	first, second, known := s.create(t, 5), s.create(t, 5), buy(1)
	must.Do(t, oneOf(s.bare[1].Deduct(t.Context(), first, []stock.Purchase{known})))
	both := buy(1)
	for _, items := range [][]strategy.ItemBatch{
		{of(first, known), of(second, buy(1))}, {of(first, buy(1)), of(second, known)}, {of(first, both), of(second, both)},
	} {
		if outcomes, err := joiner.DeductItems(t.Context(), items); !errors.Is(err, stock.ErrDuplicateRequest) {
			t.Errorf("a copy is answered with %+v, %v", outcomes, err)
		}
	}
	want(t, "stock of the first", s.audit(t, first).Stock, 4)
	want(t, "stock of the second", s.audit(t, second).Stock, 5)
}

// doesNotWaitForALockedItem has another transaction keep the row of one item, and another item of a
// small table be written meanwhile.
func doesNotWaitForALockedItem(t *testing.T, s *subject) {
	joiner := s.joiner(t)
	if s.store.Dialect() == repo.SQLite {
		t.Skip("SQLite has no row locks")
	}
	locked, free, beside := s.create(t, 5), s.create(t, 5), s.create(t, 5)
	ctx, cancel := context.WithTimeout(t.Context(), lockWait)
	defer cancel()
	err := s.store.InTx(ctx, func(tx *repo.Tx) error {
		if _, err := tx.GoodsForUpdate(ctx, locked); err != nil {
			return err
		}
		begun := time.Now()
		outcomes, err := joiner.DeductItems(ctx, []strategy.ItemBatch{of(locked, buy(1)), of(free, buy(1))})
		if err != nil || outcomes[0] != nil || len(outcomes[1]) != 1 || outcomes[1][0].Rejected != nil {
			t.Errorf("beside a row that is locked: %+v, %v", outcomes, err)
		}
		if took := time.Since(begun); took > lockWait/2 {
			t.Errorf("it waited %s", took)
		}
		return oneOf(s.bare[1].Deduct(ctx, beside, []stock.Purchase{buy(1)}))
	})
	if err != nil {
		t.Error(err)
	}
	want(t, "stock of what was locked", s.audit(t, locked).Stock, 5)
	want(t, "stock of what was free", s.audit(t, free).Stock, 4)
}

// sellsOutSeveralItemsOnThreeReplicas has a crowd buy items in turns, of which each is hot for a while:
// none is oversold, and none has a unit left.
func sellsOutSeveralItemsOnThreeReplicas(t *testing.T, s *subject) {
	const items, units, clients = 9, 12, 24
	if !s.entry.SeveralItems || !s.entry.Guarantees.ExclusiveAcrossReplicas {
		t.Skip("a purchase is written with no other item")
	}
	goods := make([]int64, items)
	for i := range goods {
		goods[i] = s.create(t, units)
	}
	var mu sync.Mutex
	sold := make(map[int64]int64)
	var crowd sync.WaitGroup
	for c := range clients {
		crowd.Go(func() {
			for i := range items * units / clients * 2 {
				item := goods[(c+i*(c%3+1))%items]
				err := oneOf(s.replicas[c%len(s.replicas)](t.Context(), item, []stock.Purchase{buy(1)}))
				mu.Lock()
				switch {
				case err == nil:
					sold[item]++
				case !errors.Is(err, stock.ErrInsufficientStock):
					t.Errorf("item %d: %v", item, err)
				}
				mu.Unlock()
			}
		})
	}
	crowd.Wait()
	for _, item := range goods {
		audit := s.audit(t, item)
		want(t, "sold by the ledger", audit.Sold, sold[item])
		want(t, "sold and left", audit.Sold+audit.Stock, units)
		s.wantConsistent(t, audit)
	}
}
