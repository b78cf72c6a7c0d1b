package strategy_test

import (
	"context"
	"errors"
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
