package strategy_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// unresponsive is a strategy that ignores cancellation until it is let go.
type unresponsive struct{ letGo chan struct{} }

func (d unresponsive) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	<-d.letGo
	return nil, stock.ErrBusy
}

// The last caller of a batch waits for its end, but not for ever.
func TestACallerLeavesABatchThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := unresponsive{make(chan struct{})}
		g := strategy.NewBatcher(d.Deduct, nil, strategy.Group{Batch: 8, Units: 8, Queue: 8, Timeout: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := g.Deduct(ctx, 1, []stock.Purchase{{RequestID: "x", Quantity: 1}})
		if took := time.Since(start); took >= 2*time.Second {
			t.Errorf("it waits for %s", took)
		}
		if !errors.Is(err, stock.ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v, want %v and the cause", err, stock.ErrUnknownOutcome)
		}
		close(d.letGo)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

// measured is a strategy that tells how long its batch has.
type measured struct{ left chan time.Duration }

func (b measured) Deduct(ctx context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	deadline, _ := ctx.Deadline()
	b.left <- time.Until(deadline)
	return make([]stock.Outcome, len(batch)), nil
}

func TestABatchLastsNoLongerThanItsCallersWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := measured{make(chan time.Duration, 1)}
		g := strategy.NewBatcher(b.Deduct, nil, strategy.Group{Batch: 8, Units: 8, Queue: 8, Timeout: time.Minute})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Deduct(ctx, 1, []stock.Purchase{{RequestID: "x", Quantity: 1}}); err != nil {
			t.Fatal(err)
		}
		if left := <-b.left; left != time.Second {
			t.Errorf("the batch has %s, want the second of its caller", left)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A caller with more time than the others in its batch has all of it.
func TestABatchLastsAsLongAsItsLastCallerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := measured{make(chan time.Duration)} // unbuffered: a batch is held until the test reads its time
		g := strategy.NewBatcher(b.Deduct, nil, strategy.Group{Batch: 8, Units: 8, Queue: 8, Timeout: time.Minute})
		for _, id := range []string{"first", "short", "long", "short again"} {
			go func() {
				wait := map[string]time.Duration{"long": 5 * time.Second}[id]
				ctx, cancel := context.WithTimeout(t.Context(), max(wait, time.Second))
				defer cancel()
				if _, err := g.Deduct(ctx, 1, []stock.Purchase{{RequestID: id, Quantity: 1}}); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			}()
			synctest.Wait()
		}
		<-b.left // of the first, alone
		if left := <-b.left; left != 5*time.Second {
			t.Errorf("the batch has %s, want the 5 s of its last caller", left)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

// After a batch of unknown outcome nothing is written until it is known that no
// transaction is open, however often that has to be asked.
func TestNothingIsWrittenBeforeABatchOfUnknownOutcomeIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written, asked int
		g := strategy.NewBatcher(func(_ context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
			if written++; written == 1 {
				return nil, stock.ErrUnknownOutcome
			}
			return make([]stock.Outcome, len(batch)), nil
		}, nil, strategy.Group{Batch: 8, Units: 8, Queue: 8, Timeout: time.Minute, Settled: func(_ context.Context, goodsID int64) error {
			if asked++; asked < 3 || goodsID != 1 {
				return stock.ErrBackendUnavailable
			}
			return nil
		}})
		for i, want := range []struct {
			goodsID        int64
			err            error
			written, asked int
		}{
			{1, stock.ErrUnknownOutcome, 1, 0},
			{1, stock.ErrBackendUnavailable, 1, 1},
			{2, nil, 2, 1}, // items do not wait for each other
			{1, stock.ErrBackendUnavailable, 2, 2},
			{1, nil, 3, 3},
			{1, nil, 4, 3},
		} {
			_, err := g.Deduct(t.Context(), want.goodsID, []stock.Purchase{{RequestID: strconv.Itoa(i), Quantity: 1}})
			if !errors.Is(err, want.err) || written != want.written || asked != want.asked {
				t.Errorf("purchase %d: %v, %d batches were written and %d times it was asked; want %+v", i, err, written, asked, want)
			}
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}
