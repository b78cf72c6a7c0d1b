package strategy

import (
	"context"
	"errors"
	"time"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/stock"
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
//     for no other, and no other for it.
//  2. The others wait in one queue.Queue while jointWriters transactions are under way, and no
//     longer than jointWait; then those that wait are written together, as many as a batch may
//     have, the oldest first.
//  3. What is locked, limited or a copy is written alone afterwards, and no other item fails
//     with it.
type Joint struct {
	strategy interface {
		Strategy
		Joiner
	}
	queue *queue.Queue[struct{}, ItemBatch, []stock.Outcome]
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
	j := &Joint{strategy: both}
	j.queue = queue.New(queue.Options[struct{}, ItemBatch, []stock.Outcome]{
		Doing: "write several items", Plain: true, Write: j.write, Changes: true,
		Weight: func(batch ItemBatch) int { return len(batch.Purchases) }, Most: bounds.Batch,
		Writers: jointWriters, Patience: jointWait, Within: bounds.Timeout, Log: bounds.Log,
	})
	return j.Deduct
}

// errAlone reports that a batch was not sold with others, and is to be sold by itself.
var errAlone = errors.New("to be sold alone")

// Deduct sells a batch, alone or with others.
func (j *Joint) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	if len(batch) < ownTransaction {
		outcomes, err := j.queue.Do(ctx, struct{}{}, ItemBatch{goodsID, batch})
		if !errors.Is(err, errAlone) {
			return outcomes, err
		}
	}
	return j.strategy.Deduct(ctx, goodsID, batch)
}

// write writes the batches in one transaction. Where one of them has a copy of what the ledger
// has, each is written alone.
func (j *Joint) write(ctx context.Context, _ struct{}, calls []*queue.Call[ItemBatch, []stock.Outcome]) {
	if len(calls) == 1 {
		calls[0].Answer(j.strategy.Deduct(ctx, calls[0].Ask.GoodsID, calls[0].Ask.Purchases))
		return
	}
	items := make([]ItemBatch, len(calls))
	for i, c := range calls {
		items[i] = c.Ask
	}
	outcomes, err := j.strategy.DeductItems(ctx, items)
	for i, c := range calls {
		switch {
		case errors.Is(err, stock.ErrDuplicateRequest), err == nil && outcomes[i] == nil:
			c.Answer(nil, errAlone)
		case err != nil:
			c.Answer(nil, err)
		default:
			c.Answer(outcomes[i], nil)
		}
	}
}
