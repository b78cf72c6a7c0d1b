// Package strategy holds the ways in which stockd takes stock, one file each, over two
// shapes (readCheckWrite and conditional), behind one interface and one registry.
package strategy

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/stock"
)

// Strategy takes stock of one item for a batch of purchases, first come first served. A
// single purchase is a batch of one.
//
//  1. outcomes[i] answers batch[i]. A purchase that does not fit is rejected with
//     stock.ErrInsufficientStock, and a later one that fits is still accepted. A
//     purchase beyond its buyer's limit is rejected with stock.ErrUserLimit, and one without
//     a buyer, where the item has a limit, with stock.ErrUserUnknown. The limit holds
//     whatever the strategy guarantees.
//  2. An accepted purchase is one row of the ledger, and the ledger takes a request id
//     once: a batch with a known one is answered with stock.ErrDuplicateRequest, and none
//     of it happens. redis-stock, which knows the first answer, may return it instead, as
//     replayed.
//  3. An error means that none of the batch happened, or, where it is
//     stock.ErrUnknownOutcome, that the fate of the whole batch is unknown.
//     stock.ErrUnknownGoods: there is no such item. stock.ErrBusy: try again.
//     stock.ErrBackendUnavailable: a backend failed, and is named.
//  4. Deduct returns soon after ctx ends, with the context's cause, and then nothing more
//     is written on its behalf. Where a Batcher writes other callers' purchases in the same
//     transaction, they are not disturbed: the error is stock.ErrUnknownOutcome with the
//     cause, and only the last caller to leave ends the transaction and gets its answer.
//  5. A purchase with a time to live is accepted like any other, and is then a reservation:
//     the row of the ledger is a hold, and the reservation is written with it.
//  6. Whether concurrent batches exclude each other is what the registry's entry
//     guarantees, and nothing else.
type Strategy interface {
	Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) (outcomes []stock.Outcome, err error)
}

// Deduct is Strategy.Deduct, or Fencer.DeductFenced.
type Deduct func(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error)

// Fencer is a strategy that can have the store check a fencing token.
type Fencer interface {
	// DeductFenced is Deduct under the same lock, with a fenced write. A deduction that
	// came too late is stock.ErrFenced, and nothing happened.
	DeductFenced(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error)
}

// Allocator is a strategy that keeps units of an item outside of its row.
type Allocator interface {
	// Recall moves the units of an item from the allocation of the strategy back into
	// its row, but for those of pending orders, and sells none of them from there until
	// its next purchase. It may be called at any time, by several replicas at once, and
	// again after a failure: no unit is lost or doubled. Where nothing is left to
	// return, it is no error.
	//
	// stock.ErrBackendUnavailable: a backend that holds units does not answer, and is
	// named. stock.ErrUnknownOutcome: calling it again finds out.
	Recall(ctx context.Context, goodsID int64) (stock.Recalled, error)
}

// Waiter is a strategy whose purchases wait for a lock of their item: for Purchase.MaxWait where
// one waits alone, and for LockWait at most.
type Waiter interface {
	LockWait() time.Duration
}

// Observer receives the events of one strategy. It is called in the course of purchases,
// from any goroutine, and must be quick.
type Observer interface {
	// Deducted is the end of a purchase, with how long it took, all waiting included.
	Deducted(outcome stock.Outcome, err error, took time.Duration)
	// Waited is the end of the wait for a lock, or for the owner of an item, also in vain.
	Waited(took time.Duration)
	// Held is the end of a lease, and whether it was lost.
	Held(took time.Duration, lost bool)
	// ReleaseFailed is one release of a lock that its backend did not answer, or rejected.
	ReleaseFailed()
	// TriedInVain is one failed try of a lock that polls.
	TriedInVain()
	// RaceLost is one overtaken try of an optimistic writer.
	RaceLost()
	// Fenced is a write that was rejected because its token came too late.
	Fenced()
	// Batched is a batch of grouped purchases that is about to be written.
	Batched(purchases int)

	redisstock.Observer
}

// Observer receives the events of the strategy that is made of these parts.
func (d Deps) Observer() Observer {
	if d.Observe == nil {
		return unobserved{}
	}
	return d.Observe(d.Store.Strategy())
}

// unobserved drops all events.
type unobserved struct{}

func (unobserved) Deducted(stock.Outcome, error, time.Duration) {}
func (unobserved) Waited(time.Duration)                         {}
func (unobserved) Held(time.Duration, bool)                     {}
func (unobserved) ReleaseFailed()                               {}
func (unobserved) TriedInVain()                                 {}
func (unobserved) RaceLost()                                    {}
func (unobserved) Fenced()                                      {}
func (unobserved) Batched(int)                                  {}
func (unobserved) Written(int)                                  {}
func (unobserved) DeadLettered()                                {}
func (unobserved) Compared(int64)                               {}
func (unobserved) Repaired()                                    {}
