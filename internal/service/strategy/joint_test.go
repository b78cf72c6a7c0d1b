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
	left    []time.Duration // that each transaction of several had
	refuses map[int64]bool  // items that are not sold together with others
	fails   error           // of several items
	panics  bool
	breaks  bool // over one item
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
	if s.breaks {
		panic("a strategy that is broken")
	}
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
	until, _ := ctx.Deadline()
	s.mu.Lock()
	s.left = append(s.left, time.Until(until))
	s.mu.Unlock()
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

// pass lets time pass, and what is due happen.
func (s *shop) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

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

// A transaction may wait itself, for the row of an item: the others do not wait for that.
func TestNoItemWaitsLongForAnother(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		s.one(1)
		time.Sleep(19 * time.Millisecond)
		s.one(2)
		s.assertBegun("101", "102")
		s.pass(2 * time.Millisecond)
		s.assertBegun("101", "102", "1+2")
		s.one(3)
		s.pass(21 * time.Millisecond)
		s.assertBegun("101", "102", "1+2", "3")
		s.one(4)
		s.end() // there are three still
		s.assertBegun("101", "102", "1+2", "3")
		s.end()
		s.end() // there is one
		s.assertBegun("101", "102", "1+2", "3", "4")
		s.endAll()
	})
}

// What a transaction has no room for waits for the next, and no longer than that.
func TestWhatATransactionHasNoRoomForDoesNotWaitLong(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		for item := range int64(4) {
			s.buy(s.t.Context(), item+1, 5)
		}
		s.pass(21 * time.Millisecond)
		s.assertBegun("101", "102", "1+2")
		s.pass(21 * time.Millisecond)
		s.assertBegun("101", "102", "1+2", "3+4")
		s.endAll()
	})
}

// Each wait begins with the first that waits, and not with those that were written meanwhile.
func TestAWaitBeginsAnewAfterATransaction(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		s.one(1)
		time.Sleep(10 * time.Millisecond)
		s.end()
		s.one(2)
		s.pass(15 * time.Millisecond)
		s.assertBegun("101", "102", "1")
		s.pass(6 * time.Millisecond)
		s.assertBegun("101", "102", "1", "2")
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

// A batch that panics is under way no more: the next ones are written at once.
func TestAPanicOverOneItemEndsItsTransaction(t *testing.T) {
	inShop(t, func(s *shop) {
		s.breaks = true
		for range 2 {
			func() {
				defer func() { _ = recover() }() // the batcher does
				_, err := s.sell(s.t.Context(), 1, make([]stock.Purchase, 1))
				s.t.Errorf("a strategy that panics answers %v", err)
			}()
		}
		s.breaks = false
		a := s.one(1)
		s.assertBegun("1")
		s.endAll()
		s.assertSold(a, 1, 1)
	})
}

func TestWhoLeavesBeforeTheTransactionLeavesNoTrace(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		ctx, leave := context.WithCancelCause(s.t.Context())
		gone, stays := s.buy(ctx, 1, 1), s.one(2)
		leave(errGone)
		synctest.Wait()
		s.assertFailed(gone, errGone)
		if errors.Is(gone.err, stock.ErrUnknownOutcome) {
			t.Error("the outcome of what was never written is unknown")
		}
		s.endAll()
		s.assertSold(stays, 2, 1)
		s.assertBegun("101", "102", "2")
	})
}

// The last to wait leaves: nothing is written then, and the next one is.
func TestNothingIsWrittenWhereAllHaveLeft(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		ctx, leave := context.WithCancelCause(s.t.Context())
		s.buy(ctx, 1, 1)
		leave(errGone)
		time.Sleep(time.Second)
		s.one(2)
		s.assertBegun("101", "102")
		s.pass(21 * time.Millisecond)
		s.assertBegun("101", "102", "2")
		s.endAll()
	})
}

func TestTheLastItemToLeaveEndsTheTransaction(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		first, leaveFirst := context.WithCancelCause(s.t.Context())
		second, leaveSecond := context.WithCancelCause(s.t.Context())
		a, b := s.buy(first, 1, 1), s.buy(second, 2, 1)
		s.end()
		leaveFirst(errGone)
		synctest.Wait()
		s.assertFailed(a, stock.ErrUnknownOutcome, errGone)
		if b.answered {
			t.Errorf("the other got %+v", b)
		}
		leaveSecond(errGone)
		synctest.Wait()
		s.assertFailed(b, errGone)
		if errors.Is(b.err, stock.ErrUnknownOutcome) {
			t.Error("the last one did not get the outcome")
		}
		s.endAll()
	})
}

func TestATransactionLastsAsLongAsOneOfItsItemsWaits(t *testing.T) {
	inShop(t, func(s *shop) {
		s.busy()
		short, cancelShort := context.WithTimeout(s.t.Context(), time.Second)
		defer cancelShort()
		long, cancelLong := context.WithTimeout(s.t.Context(), 5*time.Second)
		defer cancelLong()
		s.buy(short, 1, 1)
		s.buy(long, 2, 1)
		s.end()
		if want := []time.Duration{5 * time.Second}; !slices.Equal(s.left, want) {
			t.Errorf("the transaction has %s, want %s", s.left, want)
		}
		s.one(3) // has no deadline
		s.end()
		s.endAll()
		if len(s.left) != 2 || s.left[1] != time.Minute {
			t.Errorf("the transactions have %s, want the second to have a minute", s.left)
		}
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
