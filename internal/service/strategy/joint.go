package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// ItemBatch is a batch of purchases of one item.
type ItemBatch struct {
	GoodsID   int64
	Purchases []stock.Purchase
}

// Joiner is a strategy that can sell batches of several items in one transaction.
type Joiner interface {
	// DeductItems is Deduct for a batch of each of several items, in one transaction that waits
	// for no row that another one has locked. An item without outcomes was not sold, and is to be
	// sold by Deduct: its row is locked, or it has a limit per buyer. What does not fit is
	// rejected as by Deduct, and an error is that of all items.
	DeductItems(ctx context.Context, items []ItemBatch) (outcomes [][]stock.Outcome, err error)
}

const (
	// jointWriters is how many transactions of a Joint are under way before batches wait for
	// one: more of them wait for each other at the server, and each has fewer batches.
	jointWriters = 2
	// jointWait is the longest wait for another transaction to end: it may be waiting itself,
	// for the row of an item.
	jointWait = 20 * time.Millisecond
	// ownTransaction is the size of a batch that joins no other: it is worth a transaction, and
	// its item may be locked by other replicas that sell it as well.
	ownTransaction = 8
)

// Joint makes one transaction of the batches of different items that wait while others are
// being written. It stands between a Batcher, which has a batch of an item at a time, and the
// strategy.
//
//  1. A batch of ownTransaction purchases or more is written at once, alone: a hot item waits
//     for no other, and no other for it. So is any batch while fewer than jointWriters
//     transactions are under way.
//  2. The others wait until one of these ends, and no longer than jointWait; then those that
//     wait are written together, as many as a batch may have, the oldest first.
//  3. What is locked, limited or a copy is written alone afterwards, and no other item fails
//     with it.
//  4. Who leaves before the transaction leaves no trace. Who leaves it does not disturb the
//     others; the last one to leave ends it, and gets its outcome.
type Joint struct {
	strategy interface {
		Strategy
		Joiner
	}
	bounds Group

	mu      sync.Mutex
	writing int // transactions under way
	waiting []*joining
	// late starts the next transaction where none ends in time.
	late *time.Timer
}

// joining is a batch that waits for a transaction with others, or is being written in one.
type joining struct {
	ItemBatch

	step trace.Span
	// until is its deadline; zero: it has none.
	until time.Time
	with  *jointWrite // from when it is being written
	left  bool        // its caller has left
	// done is closed when outcomes and err are there; neither: it is to be written alone.
	done     chan struct{}
	outcomes []stock.Outcome
	err      error
}

// jointWrite is batches that are written together.
type jointWrite struct {
	members []*joining
	// end ends its context.
	end func(cause error)
}

// Joined is the Deduct of a strategy, behind a Joint where it is a Joiner.
func Joined(s Strategy, bounds Group) Deduct {
	both, ok := s.(interface {
		Strategy
		Joiner
	})
	if !ok {
		return s.Deduct
	}
	return (&Joint{strategy: both, bounds: bounds}).Deduct
}

// Deduct sells a batch, alone or with others.
func (j *Joint) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	if len(batch) >= ownTransaction {
		return j.strategy.Deduct(ctx, goodsID, batch)
	}
	m := j.enter(ctx, ItemBatch{goodsID, batch})
	if m == nil {
		defer j.ended()
		return j.strategy.Deduct(ctx, goodsID, batch)
	}
	select {
	case <-m.done:
	case <-ctx.Done():
		if err := j.leave(m, context.Cause(ctx)); err != nil {
			return nil, err
		}
		<-m.done
	}
	if m.err == nil && m.outcomes == nil {
		return j.strategy.Deduct(ctx, goodsID, batch)
	}
	return m.outcomes, m.err
}

// enter queues a batch; nil: it is to be written at once.
func (j *Joint) enter(ctx context.Context, batch ItemBatch) *joining {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.writing < jointWriters {
		j.writing++
		return nil
	}
	m := &joining{ItemBatch: batch, step: trace.SpanFromContext(ctx), done: make(chan struct{})}
	m.until, _ = ctx.Deadline()
	if j.waiting = append(j.waiting, m); len(j.waiting) == 1 {
		j.late = time.AfterFunc(jointWait, j.startLate)
	}
	return m
}

// leave withdraws a batch whose callers have given up. Without an error its answer is there, or on its way.
func (j *Joint) leave(m *joining, cause error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if m.with == nil {
		j.waiting = slices.DeleteFunc(j.waiting, func(other *joining) bool { return other == m })
		return fmt.Errorf("wait for a transaction with item %d: %w", m.GoodsID, cause)
	}
	select {
	case <-m.done:
		return nil // the select that brought it here may choose either
	default:
	}
	m.left = true
	if slices.ContainsFunc(m.with.members, func(other *joining) bool { return !other.left }) {
		return fmt.Errorf("%w: item %d is being written together with others: %w", stock.ErrUnknownOutcome, m.GoodsID, cause)
	}
	m.with.end(cause)
	return nil
}

// ended has those that wait be written, after a transaction.
func (j *Joint) ended() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.writing--; j.writing < jointWriters {
		j.start()
	}
}

// startLate has them be written where no transaction has ended in time.
func (j *Joint) startLate() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.start()
}

// start writes the batches that wait longest.
func (j *Joint) start() {
	if len(j.waiting) == 0 {
		return
	}
	j.late.Stop()
	members := j.take()
	ctx, end := context.WithCancelCause(context.Background())
	ctx, free := context.WithDeadline(ctx, lastDeadline(members, func(m *joining) time.Time { return m.until }, time.Now().Add(j.bounds.Timeout)))
	made := &jointWrite{members: members, end: func(cause error) { end(cause); free() }}
	for _, m := range members {
		m.with = made
	}
	j.writing++
	go func() {
		defer j.ended()
		defer made.end(nil)
		j.write(ctx, members)
	}()
	if len(j.waiting) > 0 {
		j.late = time.AfterFunc(jointWait, j.startLate)
	}
}

// take removes the batches of the next transaction.
func (j *Joint) take() []*joining {
	n, purchases := 0, 0
	for ; n < len(j.waiting); n++ {
		if purchases += len(j.waiting[n].Purchases); n > 0 && purchases > j.bounds.Batch {
			break
		}
	}
	members := slices.Clone(j.waiting[:n])
	j.waiting = slices.Delete(j.waiting, 0, n)
	return members
}

// write writes the batches in one transaction. Where one of them has a copy of what the ledger
// has, each is written alone.
func (j *Joint) write(ctx context.Context, members []*joining) {
	items, steps := make([]ItemBatch, len(members)), make([]trace.Span, len(members))
	for i, m := range members {
		items[i], steps[i] = m.ItemBatch, m.step
	}
	ctx, step := telemetry.StartBatchSpan(ctx, "write several items", steps)
	defer step.End()
	outcomes, err := unknownOnPanic(ctx, j.bounds.Log, "several items", func() ([][]stock.Outcome, error) {
		return j.strategy.DeductItems(ctx, items)
	})
	if errors.Is(err, stock.ErrDuplicateRequest) {
		outcomes, err = make([][]stock.Outcome, len(members)), nil
	}
	for i, m := range members {
		if m.err = err; err == nil {
			m.outcomes = outcomes[i]
		}
		close(m.done)
	}
}
