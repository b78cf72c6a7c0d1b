package strategy

import (
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync/atomic"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

func sqlBucket() Entry {
	return Entry{
		Name:    repo.Bucketed,
		Family:  Hot,
		Summary: "the stock split over N rows, each taken from as by sql-conditional; what is left in them is collected at the tail",
		Claims:  Claims{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		Caveats: []Caveat{{
			Database: repo.SQLite,
			Words:    "SQLite has one writer at a time: buckets are as correct there, and no faster",
		}},
		New: func(d Deps) Strategy { return newBucketed(d.site(), d.Buckets) },
	}
}

// bucketed takes each batch off one of many rows, so that buyers seldom wait for
// each other. What no bucket can serve by itself is served from all of them
// together, and what is left is spread anew: the first sale, the tail, a restock
// and another number of buckets are all the same to it.
type bucketed struct {
	store site
	count int
	turn  *atomic.Int64
	left  *gauges
}

// newBucketed makes the strategy with so many buckets a goods, at least one. Each
// replica begins at another one.
func newBucketed(store site, count int) bucketed {
	name := fnv.New32a()
	_, _ = name.Write([]byte(store.Replica())) // a hash does not fail
	b := bucketed{store: store, count: max(1, count), turn: new(atomic.Int64), left: new(gauges)}
	b.turn.Store(int64(name.Sum32()))
	return b
}

// Deduct knows about what is left before it writes, so that the row of the ledger
// says so at once and no bucket is locked for longer. Whoever is refused was
// refused by a look at the stock: that costs one read and no transaction.
func (b bucketed) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return whileRowChanges(func() ([]stock.Outcome, error) {
		plan, err := b.plan(ctx, goodsID, batch)
		if err != nil {
			return nil, err
		}
		if refused, none := plan.noneFits(); none {
			return answer(refused, nil), nil
		}
		outcomes, err := b.sell(ctx, plan)
		if err == nil {
			return outcomes, nil
		}
		b.left.doubt(goodsID)
		if errors.Is(err, errDoesNotFit) {
			return b.collect(ctx, plan)
		}
		return nil, err
	})
}

// sell serves the batch from one bucket.
func (b bucketed) sell(ctx context.Context, p plan) ([]stock.Outcome, error) {
	return b.store.sellInTx(ctx, p.read.ID, func(tx *repo.Tx) ([]stock.Outcome, error) {
		outcomes, err := p.sell(ctx, tx, b.take)
		switch {
		case err != nil:
			return nil, err
		case !slices.ContainsFunc(outcomes, isSold):
			return outcomes, tx.ConfirmLimit(ctx, p.read.ID)
		}
		b.store.between(ctx, p.read.ID)
		return outcomes, nil
	})
}

// plan is what of a batch fits into what is left, as far as this replica knows; it
// looks where it does not, or where not all would fit.
func (b bucketed) plan(ctx context.Context, goodsID int64, batch []stock.Purchase) (plan, error) {
	if read, ok := b.left.spend(goodsID, stock.Units(batch)); ok {
		return plan{read: read, batch: batch}, nil
	}
	read, err := b.store.GoodsWithBuckets(ctx, goodsID)
	if err != nil {
		return plan{}, err
	}
	picked, _ := pick(batch, read.Allot(batch, stock.Limit{}))
	left := read
	left.Stock -= stock.Units(picked)
	b.left.saw(left)
	return plan{read: read, batch: batch}, nil
}

// take takes units off the bucket whose turn it is, or where that is dry off
// another one that looks full enough.
func (b bucketed) take(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error {
	mine := int(b.turn.Add(1) % int64(b.count))
	taken, err := tx.TakeFromBucket(ctx, read.ID, mine, units)
	if err != nil || taken {
		return err
	}
	buckets, err := tx.Buckets(ctx, read.ID)
	if err != nil {
		return err
	}
	other, found := b.other(buckets, mine, units)
	if !found {
		return errDoesNotFit
	}
	taken, err = tx.TakeFromBucket(ctx, read.ID, other, units)
	if err == nil && !taken {
		err = errDoesNotFit
	}
	return err
}

// other is the next bucket that can serve so many units. There is none where our
// own is missing: then it is time to spread the stock over all of them.
func (b bucketed) other(buckets repo.Buckets, mine int, units int64) (number int, found bool) {
	if !buckets.Has(mine) {
		return 0, false
	}
	for i := 1; i < b.count; i++ {
		number = (mine + i) % b.count
		if buckets.Units(number) >= units {
			return number, true
		}
	}
	return 0, false
}

// collect serves the batch from all there is, and spreads what is left. Of the row it
// takes a share (stock.Goods.Share), and only where the buckets do not have enough.
// Buyers are counted in before the row and the buckets are locked, as everywhere.
func (b bucketed) collect(ctx context.Context, p plan) ([]stock.Outcome, error) {
	return b.store.sellInTx(ctx, p.read.ID, func(tx *repo.Tx) ([]stock.Outcome, error) {
		limit, err := tx.CountIn(ctx, p.read.ID, p.read.PerUser, p.batch)
		if err != nil {
			return nil, err
		}
		row, buckets, err := tx.Gather(ctx, p.read.ID)
		if err != nil {
			return nil, err
		}
		bucketed, kept := buckets.Sum(), max(0, row.Stock)
		if bucketed < stock.Units(p.batch) { // others may have come first, and spread enough
			kept -= row.Share(b.store.Strategy())
		}
		p.read = row
		p.read.Stock += bucketed
		p.read.Allocated = max(0, row.Allocated-bucketed)
		outcomes, err := p.sellUnder(ctx, tx, limit, func(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error {
			left := read.Stock - units
			rest := min(kept, left)
			return tx.Spread(ctx, read, left-rest, rest, buckets, b.count)
		})
		if err == nil && slices.ContainsFunc(outcomes, isSold) {
			b.store.between(ctx, p.read.ID)
		}
		return outcomes, err
	})
}

// Recall takes the buckets away. The next purchase spreads the stock anew.
func (b bucketed) Recall(ctx context.Context, goodsID int64) (stock.Recalled, error) {
	returned, err := b.store.RecallBuckets(ctx, goodsID)
	b.left.doubt(goodsID)
	return stock.Recalled{Returned: returned}, err
}
