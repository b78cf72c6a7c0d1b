package strategy

import (
	"context"
	"errors"
	"testing"

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
