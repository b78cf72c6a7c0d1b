package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Locked makes an entry of a lock that only a test has.
var Locked = ofLock

// Conditional takes units as a test does.
func Conditional(store *repo.Store, take func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (left int64, enough bool, err error)) Strategy {
	return newConditional(site{Store: store}, take)
}

// Idle reports whether a Batcher keeps nothing of any item.
func (b *Batcher) Idle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.queues) == 0
}

// TakeFromBucket takes units of an item as sql-bucket does, in a transaction of its own.
func TakeFromBucket(ctx context.Context, s Strategy, goodsID, units int64) error {
	b := s.(bucketed) //nolint:forcetypeassert // a panic fails the test as well
	return b.store.InTx(ctx, func(tx *repo.Tx) error { return b.take(ctx, tx, stock.Goods{ID: goodsID}, units) })
}
