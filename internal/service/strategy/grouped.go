package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// Group bounds the queues of a Grouped strategy.
type Group struct {
	// Batch is the most purchases that are written together, Units the most
	// units of theirs. A call that alone is larger makes a batch of its own.
	Batch int
	Units int64
	// Queue is the most purchases that wait for one goods; who comes then is
	// told that it is busy.
	Queue int
	// Timeout bounds the writing of one batch.
	Timeout time.Duration
	// Settled waits until no transaction is open that has written the row of an item.
	// It is asked after a batch whose outcome is unknown: its commit may still happen,
	// and the next batch must not read the stock from before. Nil: does not wait.
	Settled func(ctx context.Context, goodsID int64) error
	// Log hears of a strategy that panics; nil: slog's default.
	Log *slog.Logger
	// Observer hears of each batch; nil: nobody does.
	Observer Observer
}

// Ledger finds the orders that were made under request ids; ids that are not in
// the ledger are not in the answer.
type Ledger interface {
	Orders(ctx context.Context, requestIDs ...string) (map[string]stock.Order, error)
}

// Grouped makes one batch of the calls that wait for the same goods while
// another batch is being written, and gives it to the strategy that it wraps.
// Nobody waits for a batch to fill: the first call of a goods that is idle is
// written at once, alone, and those that come meanwhile are the next batch.
//
// It keeps the obligations of a Strategy for each call. Its batches of a goods
// are written one after the other, so that on one replica it is exclusive
// whatever it wraps; across replicas it is what the wrapped strategy is.
type Grouped struct {
	strategy Strategy
	ledger   Ledger
	bounds   Group
	writers  sync.WaitGroup // one for each goods in queues

	mu     sync.Mutex
	queues map[int64]*queue // of those goods that have somebody to serve
	closed bool
	// unsettled has the items whose last batch may still be committed.
	unsettled map[int64]bool
}

// NewGrouped groups the calls of a strategy that writes to this ledger.
func NewGrouped(strategy Strategy, ledger Ledger, bounds Group) *Grouped {
	if bounds.Observer == nil {
		bounds.Observer = unobserved{}
	}
	safe := rescued{strategy, bounds.Log} // a panic in a queue's goroutine would end the replica
	return &Grouped{strategy: safe, ledger: ledger, bounds: bounds, queues: make(map[int64]*queue), unsettled: make(map[int64]bool)}
}

// Deduct waits in the queue of the goods, and then for the batch. A caller whose
// ctx ends leaves the queue as if it had never come. When its purchases are
// being written, it is told stock.ErrUnknownOutcome with the cause, because the
// batch goes on for the others; only the last one to leave ends the batch, and
// hears what came of it.
func (g *Grouped) Deduct(ctx context.Context, goodsID int64, purchases []stock.Purchase) ([]stock.Outcome, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("queue for goods %d: %w", goodsID, context.Cause(ctx))
	}
	c := &call{purchases: purchases, asked: time.Now(), step: trace.SpanFromContext(ctx), done: make(chan struct{})}
	c.until, _ = ctx.Deadline()
	if err := g.enter(goodsID, c); err != nil {
		return nil, err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if err := g.leave(goodsID, c, context.Cause(ctx)); err != nil {
			return nil, err
		}
		if err := g.awaitEnd(goodsID, c, context.Cause(ctx)); err != nil {
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
func (g *Grouped) awaitEnd(goodsID int64, c *call, cause error) error {
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case <-c.done:
		return nil
	case <-timer.C:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.state == settled {
		return nil
	}
	c.state = left
	return fmt.Errorf("%w: goods %d are still being written: %w", stock.ErrUnknownOutcome, goodsID, cause)
}

// Close answers those who wait in a queue that it is busy, and waits for what is
// being written. The wrapped strategy is left open.
func (g *Grouped) Close() error {
	g.mu.Lock()
	g.closed = true
	for _, q := range g.queues {
		for _, c := range q.clear() {
			c.settle(nil, errClosing)
		}
	}
	g.mu.Unlock()
	g.writers.Wait()
	return nil
}

// Waiting is how many purchases wait in all queues.
func (g *Grouped) Waiting() (purchases int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, q := range g.queues {
		purchases += q.purchases
	}
	return purchases
}

// errClosing is told to those who come when the replica stops.
var errClosing = fmt.Errorf("%w: this replica is stopping", stock.ErrBusy)

// enter appends the call to the queue of the goods, and has somebody serve it
// where nobody does.
func (g *Grouped) enter(goodsID int64, c *call) error {
	if repeats(c.purchases) {
		return fmt.Errorf("%w: it is twice in one batch", stock.ErrDuplicateRequest)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return errClosing
	}
	q, served := g.queues[goodsID]
	if !served {
		q = new(queue)
		g.queues[goodsID] = q
		g.writers.Go(func() { g.serve(goodsID) })
	}
	if len(q.calls) > 0 && q.purchases+len(c.purchases) > g.bounds.Queue {
		return fmt.Errorf("%w: %d purchases wait for goods %d already", stock.ErrBusy, q.purchases, goodsID)
	}
	q.append(c)
	return nil
}

// leave takes a call back whose caller gives up. Without an error its answer is
// on its way.
func (g *Grouped) leave(goodsID int64, c *call, cause error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case c.state == settled:
		return nil
	case c.state == waiting:
		g.queues[goodsID].remove(c)
		c.state = left
		return fmt.Errorf("wait in the queue of goods %d: %w", goodsID, cause)
	case c.batch.othersStay(c):
		c.state = left
		return fmt.Errorf("%w: goods %d are being written, for others too: %w", stock.ErrUnknownOutcome, goodsID, cause)
	default:
		c.batch.end(cause)
		return nil
	}
}

// serve writes one batch after the other until nobody waits for the goods.
func (g *Grouped) serve(goodsID int64) {
	for {
		batch, ctx := g.next(goodsID)
		if batch == nil {
			return
		}
		g.write(ctx, goodsID, batch)
		batch.end(nil)
	}
}

// next makes a batch of those who wait longest, or forgets the goods where
// nobody does.
func (g *Grouped) next(goodsID int64) (*batch, context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	calls := g.queues[goodsID].take(g.bounds)
	if len(calls) == 0 {
		delete(g.queues, goodsID)
		return nil, nil
	}
	// It is written for many, and must not end with any one of them.
	ctx, end := context.WithCancelCause(context.Background())
	ctx, free := context.WithDeadline(ctx, lastDeadline(calls, time.Now().Add(g.bounds.Timeout)))
	batch := &batch{calls: calls, end: func(cause error) { end(cause); free() }}
	for _, c := range calls {
		c.state, c.batch = writing, batch
	}
	return batch, ctx
}

// rewrites bounds how often a batch is written again for the copies that it
// held. Each time at least one of them is dropped, or was rolled back meanwhile.
const rewrites = 10

// write has the strategy write the batch, without those calls that turn out to
// be in the ledger already.
func (g *Grouped) write(ctx context.Context, goodsID int64, b *batch) {
	ctx, step := telemetry.StartBatchSpan(ctx, "write batch", stepsOf(b.calls))
	defer step.End()
	calls := b.calls
	for range rewrites {
		begun, purchases := time.Now(), purchasesOf(calls)
		if err := g.settleGoods(ctx, goodsID); err != nil {
			g.answer(calls, begun, nil, fmt.Errorf("wait for the batch before: %w", err))
			return
		}
		g.bounds.Observer.Batched(len(purchases))
		outcomes, err := g.strategy.Deduct(ctx, goodsID, purchases)
		if errors.Is(err, stock.ErrUnknownOutcome) {
			g.setUnsettled(goodsID)
		}
		if !errors.Is(err, stock.ErrDuplicateRequest) {
			g.answer(calls, begun, outcomes, err)
			return
		}
		if calls = g.withoutCopies(ctx, calls, err); len(calls) == 0 {
			return
		}
	}
	g.answer(calls, time.Now(), nil, fmt.Errorf("%w: copies of a batch for goods %d keep being rolled back", stock.ErrBusy, goodsID))
}

// settleGoods waits until the last batch of an item is committed or rolled back,
// where that is not known.
func (g *Grouped) settleGoods(ctx context.Context, goodsID int64) error {
	g.mu.Lock()
	unsettled := g.unsettled[goodsID]
	g.mu.Unlock()
	if !unsettled || g.bounds.Settled == nil {
		return nil
	}
	if err := g.bounds.Settled(ctx, goodsID); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.unsettled, goodsID)
	return nil
}

func (g *Grouped) setUnsettled(goodsID int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unsettled[goodsID] = true
}

// withoutCopies answers those calls with duplicate that have a request id which
// is in the ledger, and returns the others that are still waited for.
func (g *Grouped) withoutCopies(ctx context.Context, calls []*call, duplicate error) []*call {
	if len(calls) == 1 {
		g.answer(calls, time.Now(), nil, duplicate)
		return nil
	}
	orders, err := g.ledger.Orders(ctx, requestIDs(calls)...)
	if err != nil {
		g.answer(calls, time.Now(), nil, fmt.Errorf("find the copies in a batch: %w", err))
		return nil
	}
	var known, others []*call
	g.mu.Lock()
	for _, c := range calls {
		switch {
		case c.isIn(orders):
			known = append(known, c)
		case c.state == writing:
			others = append(others, c)
		}
	}
	g.mu.Unlock()
	g.answer(known, time.Now(), nil, duplicate)
	return others
}

// answer gives each call its part of the outcomes, or all of them the error.
func (g *Grouped) answer(calls []*call, begun time.Time, outcomes []stock.Outcome, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range calls {
		var own []stock.Outcome
		if err == nil {
			n := len(c.purchases)
			own, outcomes = outcomes[:n:n], outcomes[n:]
		}
		for i := range own {
			own[i].Wait += begun.Sub(c.asked)
		}
		if c.state == writing {
			c.settle(own, err)
		}
	}
}
