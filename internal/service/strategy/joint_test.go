package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// shop is a Joiner in memory. Every transaction waits for the gate, and is noted when it begins: an item
// by its number, several with + between them.
type shop struct {
	t    *testing.T
	sell strategy.Deduct

	mu      sync.Mutex
	gate    chan struct{}
	begun   []string
	refuses map[int64]bool // items that are not sold together with others
	fails   error          // of several items
	panics  bool
}

func (s *shop) begin(ctx context.Context, items ...string) error {
	s.mu.Lock()
	s.begun = append(s.begun, strings.Join(items, "+"))
	gate := s.gate
	s.mu.Unlock()
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write: %w", context.Cause(ctx))
	}
}

func (s *shop) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	if err := s.begin(ctx, fmt.Sprint(goodsID)); err != nil {
		return nil, err
	}
	return ordersOf(strategy.ItemBatch{GoodsID: goodsID, Purchases: batch}), nil
}

func (s *shop) DeductItems(ctx context.Context, items []strategy.ItemBatch) ([][]stock.Outcome, error) {
	names := make([]string, len(items))
	for i, item := range items {
		names[i] = fmt.Sprint(item.GoodsID)
	}
	if err := s.begin(ctx, names...); err != nil {
		return nil, err
	}
	if s.panics {
		panic("a strategy that is broken")
	}
	if s.fails != nil {
		return nil, s.fails
	}
	outcomes := make([][]stock.Outcome, len(items))
	for i, item := range items {
		if !s.refuses[item.GoodsID] {
			outcomes[i] = ordersOf(item)
		}
	}
	return outcomes, nil
}

func ordersOf(item strategy.ItemBatch) []stock.Outcome {
	outcomes := make([]stock.Outcome, len(item.Purchases))
	for i, p := range item.Purchases {
		outcomes[i].Order = stock.Order{GoodsID: item.GoodsID, RequestID: p.RequestID}
	}
	return outcomes
}

// inShop runs a test in a bubble of time.
func inShop(t *testing.T, test func(s *shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shop{t: t, gate: make(chan struct{})}
		s.sell = strategy.Joined(s, strategy.Group{Batch: 10, Timeout: time.Minute, Log: slog.New(slog.DiscardHandler)})
		test(s)
	})
}

// buy sells so many purchases of an item, and returns when they wait for something or are answered.
func (s *shop) buy(ctx context.Context, goodsID int64, purchases int) *answer {
	batch := make([]stock.Purchase, purchases)
	for i := range batch {
		batch[i].RequestID = fmt.Sprint(goodsID, " ", i)
	}
	a := new(answer)
	go func() {
		outcomes, err := s.sell(ctx, goodsID, batch)
		*a = answer{answered: true, outcomes: outcomes, err: err}
	}()
	synctest.Wait()
	return a
}

func (s *shop) one(goodsID int64) *answer { return s.buy(s.t.Context(), goodsID, 1) }

// busy begins as many transactions as there may be before batches wait: items 101 and 102.
func (s *shop) busy() {
	s.one(101)
	s.one(102)
}

// end lets the transaction end that has begun first.
func (s *shop) end() {
	s.gate <- struct{}{}
	synctest.Wait()
}

// endAll lets them all end, and those that follow.
func (s *shop) endAll() {
	close(s.gate)
	synctest.Wait()
}

func (s *shop) assertBegun(want ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.begun, want) {
		s.t.Errorf("the transactions are %q, want %q", s.begun, want)
	}
}

func (s *shop) assertSold(a *answer, goodsID int64, purchases int) {
	s.t.Helper()
	if !a.answered || a.err != nil || len(a.outcomes) != purchases {
		s.t.Errorf("item %d got %+v, want the sale of %d", goodsID, a, purchases)
		return
	}
	for i, o := range a.outcomes {
		if o.Order.GoodsID != goodsID || o.Order.RequestID != fmt.Sprint(goodsID, " ", i) {
			s.t.Errorf("item %d got the order %+v", goodsID, o.Order)
		}
	}
}

func (s *shop) assertFailed(a *answer, kinds ...error) {
	s.t.Helper()
	for _, kind := range kinds {
		if !a.answered || !errors.Is(a.err, kind) {
			s.t.Errorf("the answer is %+v, want %v", a, kind)
		}
	}
}

func TestItemsThatWaitAreOneTransaction(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		a, b, c := s.buy(s.t.Context(), 1, 2), s.one(2), s.one(3)
		s.assertBegun("101", "102")
		s.end()
		s.assertBegun("101", "102", "1+2+3")
		if a.answered || b.answered {
			t.Error("a batch was answered before it was written")
		}
		s.endAll()
		s.assertSold(a, 1, 2)
		s.assertSold(b, 2, 1)
		s.assertSold(c, 3, 1)
		s.assertSold(s.one(4), 4, 1)
		s.assertBegun("101", "102", "1+2+3", "4")
	})
}

// A transaction may wait itself, for the row of an item: the others do not wait for that.
func TestNoItemWaitsLongForAnother(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		s.one(1)
		time.Sleep(20 * time.Millisecond)
		synctest.Wait()
		s.assertBegun("101", "102", "1")
		s.endAll()
	})
}

func TestAHotItemHasATransactionOfItsOwn(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		hot := s.buy(s.t.Context(), 1, 8)
		s.buy(s.t.Context(), 2, 7)
		s.one(3)
		s.assertBegun("101", "102", "1")
		s.end() // of 101: those that wait are written, beside the hot one
		s.assertBegun("101", "102", "1", "2+3")
		s.endAll()
		s.assertSold(hot, 1, 8)
	})
}

func TestATransactionHasNoMorePurchasesThanABatch(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		for item, purchases := range []int{4, 6, 1, 7, 3} {
			s.buy(s.t.Context(), int64(item+1), purchases)
		}
		s.end()
		s.end()
		s.end()
		s.assertBegun("101", "102", "1+2", "3+4", "5")
		s.endAll()
	})
}

func TestAnItemThatIsNotSoldWithOthersIsSoldAlone(t *testing.T) {
	inShop(t, func(s *shop) {
		s.refuses = map[int64]bool{2: true}
		s.busy()
		a, b := s.one(1), s.one(2)
		s.end()
		s.end()
		s.end()
		s.assertSold(a, 1, 1)
		if b.answered {
			t.Errorf("what was not sold is answered with %+v", b)
		}
		s.assertBegun("101", "102", "1+2", "2")
		s.endAll()
		s.assertSold(b, 2, 1)
	})
}

func TestACopyFailsNoOtherItem(t *testing.T) {
	inShop(t, func(s *shop) {
		s.fails = fmt.Errorf("append: %w", stock.ErrDuplicateRequest)
		s.busy()
		a, b := s.one(1), s.one(2)
		s.endAll()
		s.assertSold(a, 1, 1)
		s.assertSold(b, 2, 1)
		slices.Sort(s.begun)
		s.assertBegun("1", "1+2", "101", "102", "2")
	})
}

func TestAFailureOfSeveralItemsIsThatOfEach(t *testing.T) {
	for _, err := range []error{stock.ErrBusy, stock.ErrUnknownOutcome, stock.ErrBackendUnavailable} {
		inShop(t, func(s *shop) {
			s.fails = fmt.Errorf("write: %w", err)
			s.busy()
			a, b := s.one(1), s.one(2)
			s.endAll()
			s.assertFailed(a, err)
			s.assertFailed(b, err)
			s.assertBegun("101", "102", "1+2")
		})
	}
}

func TestAPanicOverSeveralItemsIsAnUnknownOutcome(t *testing.T) {
	inShop(t, func(s *shop) {
		s.panics = true
		s.busy()
		a, b := s.one(1), s.one(2)
		s.endAll()
		s.assertFailed(a, stock.ErrUnknownOutcome)
		s.assertFailed(b, stock.ErrUnknownOutcome)
		s.assertSold(s.one(3), 3, 1)
	})
}

// plain is a strategy that is no Joiner.
type plain struct{ *shop }

func (p plain) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return p.shop.Deduct(ctx, goodsID, batch)
}

func (plain) DeductItems() {}

func TestWhatSellsOneItemAtATimeWaitsForNoOther(t *testing.T) {
	inShop(t, func(s *shop) {
		s.sell = strategy.Joined(plain{s}, strategy.Group{Batch: 10, Timeout: time.Minute})
		s.busy()
		s.one(1)
		s.assertBegun("101", "102", "1")
		s.endAll()
	})
}
