package strategy

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// A batch whose answer is there as its callers give up has its answer: others that are written with it are not
// answered yet, but it is no unknown outcome.
func TestABatchThatIsAnsweredAsItsCallersGiveUpHasItsAnswer(t *testing.T) {
	answered, other := &joining{done: make(chan struct{})}, &joining{done: make(chan struct{})}
	with := &jointWrite{members: []*joining{answered, other}, end: func(error) {}}
	answered.with, other.with = with, with
	j := new(Joint)
	close(answered.done)
	if err := j.leave(answered, context.Canceled); err != nil {
		t.Errorf("with its answer there it gets %v", err)
	}
	answered.done = make(chan struct{})
	if err := j.leave(answered, context.Canceled); !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("without an answer it gets %v, want %v", err, stock.ErrUnknownOutcome)
	}
}

// lasting writes several items until its context has ended, and a moment longer.
type lasting struct {
	Strategy
	ends  bool // at once
	alone int  // batches that were written alone
}

func (l *lasting) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	l.alone++
	return nil, nil
}

func (l *lasting) DeductItems(ctx context.Context, items []ItemBatch) ([][]stock.Outcome, error) {
	if !l.ends {
		<-ctx.Done()
		time.Sleep(time.Second)
		return nil, stock.ErrUnknownOutcome
	}
	outcomes := make([][]stock.Outcome, len(items))
	for i, item := range items {
		outcomes[i] = make([]stock.Outcome, len(item.Purchases))
	}
	return outcomes, nil
}

// occupied has as many transactions under way as there may be.
func occupied(by *lasting, bounds Group) *Joint {
	return &Joint{strategy: by, bounds: bounds, writing: jointWriters}
}

// The last caller of a transaction leaves: it has the outcome of that, and writes nothing anew.
func TestTheLastOneToLeaveATransactionHasItsOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &lasting{}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := occupied(slow, Group{Batch: 10, Timeout: time.Hour}).Deduct(ctx, 1, make([]stock.Purchase, 2))
		if !errors.Is(err, stock.ErrUnknownOutcome) || slow.alone != 0 {
			t.Errorf("it is answered with %v, and %d batches are written alone", err, slow.alone)
		}
	})
}

// A batch with more purchases than a transaction is to have is one by itself.
func TestABatchThatIsLargerThanATransactionIsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := occupied(&lasting{ends: true}, Group{Batch: 1, Timeout: time.Hour})
		outcomes, err := j.Deduct(t.Context(), 1, make([]stock.Purchase, 2))
		if err != nil || len(outcomes) != 2 {
			t.Errorf("it is answered with %v (%v)", outcomes, err)
		}
	})
}
