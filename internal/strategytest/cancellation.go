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

func doesNothingForACancelledRequest(t *testing.T, s *subject) {
	goods := s.create(t, 10)
	gone := errors.New("the buyer hung up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err := s.deduct(ctx, goods, buy(1))
	if !errors.Is(err, gone) {
		t.Errorf("a cancelled request was answered with %v, want its cause", err)
	}
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 10)
	want(t, "orders in the ledger", audit.Orders, 0)
}

// isAnswerToLeaver reports whether an error is that of a buyer that left, or one that came before:
// no backend is to blame for the end of a request.
func isAnswerToLeaver(err, gone error) bool {
	return !errors.Is(err, stock.ErrBackendUnavailable) && (errors.Is(err, gone) || errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrUnknownOutcome))
}

// sellsNothingAfterAFailedAnswer cancels purchases at random moments: a client that
// got an error that is not "unknown" must have bought nothing, and no purchase may
// still be in the middle of it when the answers are in.
func sellsNothingAfterAFailedAnswer(t *testing.T, s *subject) {
	goods, gone := s.create(t, 1_000_000), errors.New("the buyer hung up")
	var mu sync.Mutex
	fates := make(map[string]error)
	var buyers sync.WaitGroup
	for range 8 {
		buyers.Go(func() {
			for i := range 10 {
				purchase, limit := buy(1), rand.N(8*time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				if hangsUp := i%2 == 0; hangsUp {
					cancel()
					var hangUp context.CancelCauseFunc
					ctx, hangUp = context.WithCancelCause(t.Context())
					timer := time.AfterFunc(limit, func() { hangUp(gone) })
					cancel = func() { timer.Stop(); hangUp(nil) }
				}
				_, err := s.deduct(ctx, goods, purchase)
				if left := errors.Is(context.Cause(ctx), gone); left && err != nil && !isAnswerToLeaver(err, gone) {
					t.Errorf("a buyer that hung up is answered with %v, want %v", err, gone)
				}
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

// returnsWhenItIsCancelledBesideAnother has one buyer leave while the purchase of another one is
// in its middle: the one that left returns, and only then does the other one go on.
func returnsWhenItIsCancelledBesideAnother(t *testing.T, s *subject) {
	bare, seen := s.withMiddle(t)
	deduct := s.group(t, bare.Deduct)
	goods, gone := s.create(t, 10), errors.New("the buyer hung up")
	var left error
	met, returned := false, false
	meet := func() {
		met = true
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(middleWithin, func() { cancel(gone) })
		defer timer.Stop()
		done := make(chan struct{})
		go func() {
			defer close(done)
			left = oneOf(deduct(ctx, goods, []stock.Purchase{buy(1)}))
		}()
		select {
		case <-done:
			returned = true
		case <-time.After(settleWithin):
		}
	}
	seen.next.Store(&meet)
	err := oneOf(deduct(t.Context(), goods, []stock.Purchase{buy(1)}))
	if !met {
		t.Skip("its purchases have no middle")
	}
	if err != nil && !errors.Is(err, stock.ErrBusy) {
		t.Errorf("the purchase that was not cancelled is answered with %v", err)
	}
	if !returned || left != nil && !errors.Is(left, gone) && !errors.Is(left, stock.ErrUnknownOutcome) {
		t.Errorf("a purchase that was cancelled while another one went on has returned: %t, with %v, want %v", returned, left, gone)
	}
}
