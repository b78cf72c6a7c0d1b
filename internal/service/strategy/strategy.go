// Package strategy holds the ways in which stockd takes stock, one file each,
// behind one interface and one registry.
package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/stock"
)

// Strategy takes stock of one goods for a batch of purchases, first come first
// served. A single purchase is a batch of one.
//
// Its obligations:
//
//  1. outcomes[i] answers batch[i]. A purchase that does not fit is refused
//     with stock.ErrInsufficientStock, and a later one that fits is still
//     accepted. So is one that is beyond its buyer's limit, with stock.ErrUserLimit,
//     or that does not say whose it is where the goods has a limit, with
//     stock.ErrUserUnknown. The limit holds whatever the strategy claims.
//  2. An accepted purchase is one row of the ledger, and the ledger takes a
//     request id once: a batch that holds one which is there already is
//     answered with stock.ErrDuplicateRequest, and none of it happens. A
//     Promiser, which knows the first answer, may give it instead, as replayed.
//  3. An error means that none of the batch happened, or, where it is
//     stock.ErrUnknownOutcome, that the fate of the whole batch is not known.
//     stock.ErrUnknownGoods: there is no such goods. stock.ErrBusy: not now,
//     try again. stock.ErrBackendUnavailable: a backend failed, and is named.
//  4. Deduct returns soon after ctx ends, with the context's cause, and then
//     nothing more is written on its behalf. Where others' purchases are being
//     written in one transaction with it (Grouped), they are not disturbed: the
//     error is stock.ErrUnknownOutcome with the cause, and only the last one to
//     wait ends the transaction and hears its true answer.
//  5. Whether concurrent batches are kept apart is what the entry in the
//     registry claims, and nothing else.
type Strategy interface {
	Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) (outcomes []stock.Outcome, err error)
}

// Restocker is a strategy that keeps a copy of the stock outside of the store.
type Restocker interface {
	// Restocked tells that units of a goods were added to its row, and committed.
	// One restock may be told more than once, where telling it failed or where
	// its owner sent it again: a copy must not count it twice. An error means
	// that the copy may lack the units.
	Restocked(ctx context.Context, goodsID, units int64) error
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

// Limiter is a strategy that looks at the limit of one buyer outside of the store.
type Limiter interface {
	// LimitChanged tells that a goods was given a limit, and committed. It may be told
	// more than once. An error means that the strategy may sell under an old one.
	LimitChanged(ctx context.Context, goodsID int64) error
}

// Fencer is a strategy that can have the store check a fencing token.
type Fencer interface {
	// Fenced is the strategy with its writes fenced. Both share one lock. A
	// deduction that came too late is stock.ErrFenced, and nothing happened.
	Fenced() Strategy
}
