package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/stock"
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

// Batcher sells as one batch what waits for the same item in a queue.Queue, while another batch is being
// written. It keeps the obligations of a Strategy for each call; on one replica it is exclusive whatever
// the strategy is, and across replicas it is what the strategy is.
//
//  1. A batch has no more purchases and units than its bounds, and where more than eight purchases wait,
//     no more than the next smaller of few lengths, so that the database can prepare its statements: the
//     others are the batch after it.
//  2. After an unknown outcome the next batch does not read the stock from before.
//  3. Two copies of a request id are never in one batch. A copy of what the ledger has fails no other
//     call of its batch.
type Batcher struct {
	deduct Deduct
	find   FindOrders
	bounds Group
	queue  *queue.Queue[int64, []stock.Purchase, []stock.Outcome]

	mu sync.Mutex
	// unsettled has the items whose last batch may still be committed.
	unsettled map[int64]bool
}

// call is one call of Deduct.
type call = queue.Call[[]stock.Purchase, []stock.Outcome]

// NewBatcher batches the calls of a strategy; find searches the ledger that it writes.
func NewBatcher(deduct Deduct, find FindOrders, bounds Group) *Batcher {
	if bounds.Observer == nil {
		bounds.Observer = unobserved{}
	}
	b := &Batcher{deduct: deduct, find: find, bounds: bounds, unsettled: make(map[int64]bool)}
	b.queue = queue.New(queue.Options[int64, []stock.Purchase, []stock.Outcome]{
		Doing: "write batch", Write: b.write, Take: b.take, Changes: true,
		Weight: func(purchases []stock.Purchase) int { return len(purchases) },
		Room:   bounds.Queue, Within: bounds.Timeout, Log: bounds.Log,
	})
	return b
}

// Deduct waits in the queue of the item, and then for the batch. Its errors are those of queue.Queue.Do,
// and of the strategy.
func (b *Batcher) Deduct(ctx context.Context, goodsID int64, purchases []stock.Purchase) ([]stock.Outcome, error) {
	if !reserve(make(map[string]bool, len(purchases)), purchases) {
		return nil, fmt.Errorf("%w: it is twice in one batch", stock.ErrDuplicateRequest)
	}
	return b.queue.Do(ctx, goodsID, purchases)
}

// Close answers queued calls with stock.ErrBusy, and waits for what is being written. The
// strategy is left open.
func (b *Batcher) Close() { b.queue.Close() }

// Waiting is how many purchases wait in all queues.
func (b *Batcher) Waiting() (purchases int) { return b.queue.Waiting() }

// rewrites bounds how often a batch is written again because of the copies in it. Each
// time at least one of them is dropped, or was rolled back meanwhile.
const rewrites = 10

// write has the strategy write the batch, without those calls that turn out to
// be in the ledger already.
func (b *Batcher) write(ctx context.Context, goodsID int64, calls []*call) {
	for range rewrites {
		begun, purchases := time.Now(), purchasesOf(calls)
		if err := b.awaitSettled(ctx, goodsID); err != nil {
			answerAll(calls, begun, nil, fmt.Errorf("wait for the batch before: %w", err))
			return
		}
		b.bounds.Observer.Batched(len(purchases))
		b.setUnsettled(goodsID, true) // as it is where the strategy panics
		outcomes, err := b.deduct(ctx, goodsID, purchases)
		b.setUnsettled(goodsID, errors.Is(err, stock.ErrUnknownOutcome))
		if !errors.Is(err, stock.ErrDuplicateRequest) {
			answerAll(calls, begun, outcomes, err)
			return
		}
		if calls = b.withoutCopies(ctx, calls, err); len(calls) == 0 {
			return
		}
	}
	answerAll(calls, time.Now(), nil, fmt.Errorf("%w: copies of a batch for item %d keep being rolled back", stock.ErrBusy, goodsID))
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
	return b.bounds.Settled(ctx, goodsID)
}

func (b *Batcher) setUnsettled(goodsID int64, unsettled bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if unsettled {
		b.unsettled[goodsID] = true
	} else {
		delete(b.unsettled, goodsID)
	}
}

// withoutCopies answers those calls with duplicate that have a request id which
// is in the ledger, and returns the others whose callers still wait. The batch was rolled back: for those
// who have left it nothing was sold.
func (b *Batcher) withoutCopies(ctx context.Context, calls []*call, duplicate error) (others []*call) {
	if len(calls) == 1 {
		answerAll(calls, time.Now(), nil, duplicate)
		return nil
	}
	orders, err := b.find(ctx, requestIDs(calls)...)
	if err != nil {
		answerAll(calls, time.Now(), nil, fmt.Errorf("find the copies in a batch: %w", err))
		return nil
	}
	for _, c := range calls {
		left := c.Left()
		switch {
		case isIn(orders, c.Ask):
			c.Answer(nil, duplicate)
		case left != nil:
			c.Answer(nil, left)
		default:
			others = append(others, c)
		}
	}
	return others
}

// answerAll gives each call its part of the outcomes, or all of them the error.
func answerAll(calls []*call, begun time.Time, outcomes []stock.Outcome, err error) {
	for _, c := range calls {
		var own []stock.Outcome
		if err == nil {
			n := len(c.Ask)
			own, outcomes = outcomes[:n:n], outcomes[n:]
		}
		for i := range own {
			own[i].Wait += begun.Sub(c.Since)
		}
		c.Answer(own, err)
	}
}

// take makes the next batch: the oldest calls, as many as the bounds and fewLengths allow. A copy of a
// purchase that is in the batch waits for the next one, when that purchase is in the ledger or not.
func (b *Batcher) take(waiting []*call) (batch, rest []*call) {
	var all, purchases int
	for i := 0; i < len(waiting) && all < b.bounds.Batch; i++ {
		all += len(waiting[i].Ask)
	}
	most, units := fewLengths(min(all, b.bounds.Batch)), int64(0)
	ids := make(map[string]bool, most)
	var copies []*call
	for rest = waiting; len(rest) > 0; rest = rest[1:] {
		c := rest[0]
		more := stock.Units(c.Ask)
		if len(batch) > 0 && (purchases+len(c.Ask) > most || units+more > b.bounds.Units) {
			break
		}
		if !reserve(ids, c.Ask) {
			copies = append(copies, c)
			continue
		}
		batch = append(batch, c)
		purchases += len(c.Ask)
		units += more
	}
	if len(copies) > 0 {
		rest = append(copies, rest...)
	}
	return batch, rest
}

// fewLengths is n up to eight, and above it the next smaller of 8, 12, 16, 24, 32, 48 and so on. A
// database prepares the statements of batches that come again and again, and keeps only so
// many of them.
func fewLengths(n int) int {
	if n <= 8 {
		return n
	}
	half := 1 << (bits.Len(uint(n)) - 2) // of the power of two below n
	return n - n%half
}

func isIn(orders map[string]stock.Order, purchases []stock.Purchase) bool {
	return slices.ContainsFunc(purchases, func(p stock.Purchase) bool {
		_, ok := orders[p.RequestID]
		return ok
	})
}

// reserve adds the request ids of the purchases, or none of them where one is
// there already, or twice among them.
func reserve(ids map[string]bool, purchases []stock.Purchase) bool {
	for i, p := range purchases {
		if ids[p.RequestID] {
			for _, added := range purchases[:i] {
				delete(ids, added.RequestID)
			}
			return false
		}
		ids[p.RequestID] = true
	}
	return true
}

func purchasesOf(calls []*call) []stock.Purchase {
	if len(calls) == 1 {
		return calls[0].Ask
	}
	list := make([]stock.Purchase, 0, len(calls))
	for _, c := range calls {
		list = append(list, c.Ask...)
	}
	return list
}

func requestIDs(calls []*call) []string {
	ids := make([]string, 0, len(calls))
	for _, p := range purchasesOf(calls) {
		ids = append(ids, p.RequestID)
	}
	return ids
}
