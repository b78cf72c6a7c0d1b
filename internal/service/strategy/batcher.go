package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// Group bounds the queues of a Batcher.
type Group struct {
	// Batch is the most purchases that are written together, Units the most
	// units of theirs. A larger call makes a batch of its own.
	Batch int
	Units int64
	// Queue is the most purchases that wait for one item; later ones are
	// stock.ErrBusy.
	Queue int
	// Timeout bounds the writing of one batch.
	Timeout time.Duration
	// Settled waits until no transaction is open that has written the row of an item.
	// It is asked after a batch whose outcome is unknown: its commit may still happen,
	// and the next batch must not read the stock from before. Nil: does not wait.
	Settled func(ctx context.Context, goodsID int64) error
	// Log has the panics of a strategy; nil: slog's default.
	Log *slog.Logger
	// Observer receives each batch; it may be nil.
	Observer Observer
}

// FindOrders finds the orders that were made under request ids; ids that are not in the
// ledger are not in the answer.
type FindOrders func(ctx context.Context, requestIDs ...string) (map[string]stock.Order, error)

// Batcher makes one batch of the calls that wait for the same item while another batch is
// being written, and passes it to the strategy. It keeps the obligations of a Strategy for
// each call; on one replica it is exclusive whatever the strategy is, and across replicas it
// is what the strategy is.
//
//  1. No call waits for a batch to fill: the first call of an idle item is written at once,
//     alone, and those that arrive meanwhile are the next batch, first come first served.
//     A batch has no more purchases and units than its bounds, and where more than eight
//     purchases wait, no more than the next smaller of few lengths, so that the database can
//     prepare its statements: the others are the batch after it.
//  2. Batches of an item are written one after the other, and items do not wait for each
//     other. After an unknown outcome the next batch does not read the stock from before.
//  3. A caller that leaves the queue leaves no trace. A caller that leaves a batch does not
//     disturb the others; the last one to leave ends it, and gets its outcome.
//  4. Two copies of a request id are never in one batch. A copy of what the ledger has
//     fails no other call of its batch.
//  5. A full queue is stock.ErrBusy at once. A batch has a time limit of its own, and lasts
//     no longer than its callers wait.
//  6. Close answers queued calls with stock.ErrBusy, and waits for what is being written.
type Batcher struct {
	deduct  Deduct
	find    FindOrders
	bounds  Group
	writers sync.WaitGroup // one for each item in queues

	mu     sync.Mutex
	queues map[int64]*queue // of those items that have waiting calls
	closed bool
	// unsettled has the items whose last batch may still be committed.
	unsettled map[int64]bool
}

// NewBatcher batches the calls of a strategy; find searches the ledger that it writes.
func NewBatcher(deduct Deduct, find FindOrders, bounds Group) *Batcher {
	if bounds.Observer == nil {
		bounds.Observer = unobserved{}
	}
	return &Batcher{deduct: deduct, find: find, bounds: bounds, queues: make(map[int64]*queue), unsettled: make(map[int64]bool)}
}

// Deduct waits in the queue of the item, and then for the batch. A caller whose
// ctx ends leaves the queue without a trace. When its purchases are being
// written, it gets stock.ErrUnknownOutcome with the cause, because the batch
// goes on for the others; only the last one to leave ends the batch, and gets
// its outcome.
func (b *Batcher) Deduct(ctx context.Context, goodsID int64, purchases []stock.Purchase) ([]stock.Outcome, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("queue for item %d: %w", goodsID, context.Cause(ctx))
	}
	c := &call{purchases: purchases, asked: time.Now(), step: trace.SpanFromContext(ctx), done: make(chan struct{})}
	c.until, _ = ctx.Deadline()
	if err := b.enter(goodsID, c); err != nil {
		return nil, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if err := b.leave(goodsID, c, context.Cause(ctx)); err != nil {
			return nil, err
		}
		if err := b.awaitEnd(goodsID, c, context.Cause(ctx)); err != nil {
			return nil, err
		}
	}
	return c.outcomes, c.err
}

// endWithin bounds the end of a batch whose last caller has left. It is shorter than
// what a stopping replica leaves to a request that it has cancelled.
const endWithin = 650 * time.Millisecond

// awaitEnd waits for the answer to a call that is on its way, or whose batch has just
// been ended.
func (b *Batcher) awaitEnd(goodsID int64, c *call, cause error) error {
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.state == callSettled {
		return nil
	}
	c.state = callLeft
	return fmt.Errorf("%w: a batch of item %d is still being written: %w", stock.ErrUnknownOutcome, goodsID, cause)
}

// Close answers queued calls with stock.ErrBusy, and waits for what is being written. The
// strategy is left open.
func (b *Batcher) Close() error {
	b.mu.Lock()
	b.closed = true
	for _, q := range b.queues {
		for _, c := range q.clear() {
			c.settle(nil, errClosing)
		}
	}
	b.mu.Unlock()
	b.writers.Wait()
	return nil
}

// Waiting is how many purchases wait in all queues.
func (b *Batcher) Waiting() (purchases int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, q := range b.queues {
		purchases += q.purchases
	}
	return purchases
}

// errClosing answers calls that arrive when the replica stops.
var errClosing = fmt.Errorf("%w: this replica is stopping", stock.ErrBusy)

// enter appends the call to the queue of the item, and starts to serve it where it is new.
func (b *Batcher) enter(goodsID int64, c *call) error {
	if repeats(c.purchases) {
		return fmt.Errorf("%w: it is twice in one batch", stock.ErrDuplicateRequest)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return errClosing
	}
	q, ok := b.queues[goodsID]
	if !ok {
		q = new(queue)
		b.queues[goodsID] = q
		b.writers.Go(func() { b.serve(goodsID) })
	}
	if len(q.calls) > 0 && q.purchases+len(c.purchases) > b.bounds.Queue {
		return fmt.Errorf("%w: %d purchases wait for item %d already", stock.ErrBusy, q.purchases, goodsID)
	}
	q.append(c)
	return nil
}

// leave withdraws a call whose caller gives up. Without an error its answer is
// on its way.
func (b *Batcher) leave(goodsID int64, c *call, cause error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case c.state == callSettled:
		return nil
	case c.state == callWaiting:
		b.queues[goodsID].remove(c)
		return fmt.Errorf("wait in the queue of item %d: %w", goodsID, cause)
	case c.batch.othersStay(c):
		c.state = callLeft
		return fmt.Errorf("%w: item %d is being written for other calls too: %w", stock.ErrUnknownOutcome, goodsID, cause)
	default:
		c.batch.end(cause)
		return nil
	}
}

// serve writes one batch after the other until no call waits for the item.
func (b *Batcher) serve(goodsID int64) {
	for {
		made, ctx := b.next(goodsID)
		if made == nil {
			return
		}
		b.write(ctx, goodsID, made.calls)
		made.end(nil)
	}
}

// next makes a batch of the calls that wait longest, or forgets the item where none does.
func (b *Batcher) next(goodsID int64) (*callBatch, context.Context) {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.queues[goodsID].take(b.bounds)
	if len(calls) == 0 {
		delete(b.queues, goodsID)
		return nil, nil
	}
	// It is written for many calls, and must not end with any one of them.
	ctx, end := context.WithCancelCause(context.Background())
	ctx, free := context.WithDeadline(ctx, lastDeadline(calls, func(c *call) time.Time { return c.until }, time.Now().Add(b.bounds.Timeout)))
	made := &callBatch{calls: calls, end: func(cause error) { end(cause); free() }}
	for _, c := range calls {
		c.state, c.batch = callWriting, made
	}
	return made, ctx
}

// rewrites bounds how often a batch is written again because of the copies in it. Each
// time at least one of them is dropped, or was rolled back meanwhile.
const rewrites = 10

// write has the strategy write the batch, without those calls that turn out to
// be in the ledger already. A panic here would end the replica.
func (b *Batcher) write(ctx context.Context, goodsID int64, calls []*call) {
	ctx, step := telemetry.StartBatchSpan(ctx, "write batch", stepsOf(calls))
	defer step.End()
	for range rewrites {
		begun, purchases := time.Now(), purchasesOf(calls)
		if err := b.awaitSettled(ctx, goodsID); err != nil {
			b.answer(calls, begun, nil, fmt.Errorf("wait for the batch before: %w", err))
			return
		}
		b.bounds.Observer.Batched(len(purchases))
		outcomes, err := unknownOnPanic(ctx, b.bounds.Log, lockName(goodsID), func() ([]stock.Outcome, error) { return b.deduct(ctx, goodsID, purchases) })
		if errors.Is(err, stock.ErrUnknownOutcome) {
			b.setUnsettled(goodsID)
		}
		if !errors.Is(err, stock.ErrDuplicateRequest) {
			b.answer(calls, begun, outcomes, err)
			return
		}
		if calls = b.withoutCopies(ctx, calls, err); len(calls) == 0 {
			return
		}
	}
	b.answer(calls, time.Now(), nil, fmt.Errorf("%w: copies of a batch for item %d keep being rolled back", stock.ErrBusy, goodsID))
}

// awaitSettled waits until the last batch of an item is committed or rolled back,
// where that is not known.
func (b *Batcher) awaitSettled(ctx context.Context, goodsID int64) error {
	b.mu.Lock()
	unsettled := b.unsettled[goodsID]
	b.mu.Unlock()
	if !unsettled || b.bounds.Settled == nil {
		return nil
	}
	if err := b.bounds.Settled(ctx, goodsID); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.unsettled, goodsID)
	return nil
}

func (b *Batcher) setUnsettled(goodsID int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unsettled[goodsID] = true
}

// withoutCopies answers those calls with duplicate that have a request id which
// is in the ledger, and returns the others whose callers still wait.
func (b *Batcher) withoutCopies(ctx context.Context, calls []*call, duplicate error) []*call {
	if len(calls) == 1 {
		b.answer(calls, time.Now(), nil, duplicate)
		return nil
	}
	orders, err := b.find(ctx, requestIDs(calls)...)
	if err != nil {
		b.answer(calls, time.Now(), nil, fmt.Errorf("find the copies in a batch: %w", err))
		return nil
	}
	var known, others []*call
	b.mu.Lock()
	for _, c := range calls {
		switch {
		case c.isIn(orders):
			known = append(known, c)
		case c.state == callWriting:
			others = append(others, c)
		}
	}
	b.mu.Unlock()
	b.answer(known, time.Now(), nil, duplicate)
	return others
}

// answer gives each call its part of the outcomes, or all of them the error.
func (b *Batcher) answer(calls []*call, begun time.Time, outcomes []stock.Outcome, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range calls {
		var own []stock.Outcome
		if err == nil {
			n := len(c.purchases)
			own, outcomes = outcomes[:n:n], outcomes[n:]
		}
		for i := range own {
			own[i].Wait += begun.Sub(c.asked)
		}
		if c.state == callWriting {
			c.settle(own, err)
		}
	}
}

// unknownOnPanic writes a batch of something. Where that ends in a panic, its fate is unknown: it
// may have come after the commit.
func unknownOnPanic[T any](ctx context.Context, log *slog.Logger, of string, write func() (T, error)) (outcomes T, err error) {
	err = background.Guard(ctx, log, "write a batch of "+of, func() error {
		outcomes, err = write()
		return err
	})
	if errors.Is(err, background.ErrPanicked) {
		var none T
		return none, fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
	}
	return outcomes, err
}
