package strategy

import (
	"context"
	"hash/fnv"
	"sync/atomic"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

func sqlBucket() Entry {
	return Entry{
		Name:       repo.Bucketed,
		Family:     Hot,
		Summary:    "the stock split over N rows, each taken from as by sql-conditional; what is left in them is collected at the tail",
		Allocates:  true,
		Guarantees: Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		OnSQLite: Caveat{
			Words: "SQLite has one writer at a time: buckets are as correct there, and no faster",
		},
		New: func(d Deps) Strategy { return newBucketed(d.site(), d.Buckets) },
	}
}

// bucketed takes each batch off one of many rows. The first sale, the tail, a restock and
// another number of buckets all spread the stock anew.
type bucketed struct {
	allocated
	count int
	turn  *atomic.Int64
}

// newBucketed makes the strategy with so many buckets an item, at least one. Each replica
// begins at another one.
func newBucketed(store site, count int) bucketed {
	name := fnv.New32a()
	_, _ = name.Write([]byte(store.Replica())) // a hash does not fail
	b := bucketed{count: max(1, count), turn: new(atomic.Int64)}
	b.turn.Store(int64(name.Sum32()))
	b.allocated = allocated{store: store, left: new(gauges), allocation: allocation{read: store.GoodsWithBuckets, take: b.take, gather: b.gather(store.Strategy())}}
	return b
}

// take takes units off the bucket whose turn it is, or where that is empty off another one
// that seems full enough.
func (b bucketed) take(ctx context.Context, tx *repo.Tx, row stock.Goods, units int64) error {
	own := int(b.turn.Add(1) % int64(b.count))
	taken, err := tx.TakeFromBucket(ctx, row.ID, own, units)
	if err != nil || taken {
		return err
	}
	buckets, err := tx.Buckets(ctx, row.ID)
	if err != nil {
		return err
	}
	other, ok := b.other(buckets, own, units)
	if !ok {
		return errDoesNotFit
	}
	taken, err = tx.TakeFromBucket(ctx, row.ID, other, units)
	if err == nil && !taken {
		err = errDoesNotFit
	}
	return err
}

// other is the next bucket that can serve so many units. Not ok: there is none, or the own
// one is missing, and it is time to spread the stock over all of them.
func (b bucketed) other(buckets repo.Buckets, own int, units int64) (number int, ok bool) {
	if !buckets.Has(own) {
		return 0, false
	}
	for i := 1; i < b.count; i++ {
		number = (own + i) % b.count
		if buckets.Units(number) >= units {
			return number, true
		}
	}
	return 0, false
}

// gather collects all buckets. Of the row it takes a share (stock.Goods.Share), and only
// where the buckets do not have enough.
func (b bucketed) gather(name string) func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (stock.Goods, writeRow, error) {
	return func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (stock.Goods, writeRow, error) {
		row, buckets, err := tx.Gather(ctx, goodsID)
		if err != nil {
			return stock.Goods{}, nil, err
		}
		sum, kept := buckets.Sum(), max(0, row.Stock)
		if sum < units { // an earlier batch may have spread enough meanwhile
			kept -= row.Share(name)
		}
		row.Stock += sum
		return row, func(ctx context.Context, tx *repo.Tx, all stock.Goods, units int64) error {
			left := all.Stock - units
			rest := min(kept, left)
			return tx.Spread(ctx, all, left-rest, rest, buckets, b.count)
		}, nil
	}
}

// Recall deletes the buckets. The next purchase spreads the stock anew.
func (b bucketed) Recall(ctx context.Context, goodsID int64) (stock.Recalled, error) {
	returned, err := b.store.RecallBuckets(ctx, goodsID)
	b.left.doubt(goodsID)
	return stock.Recalled{Returned: returned}, err
}
