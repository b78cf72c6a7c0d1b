package strategy

import (
	"cmp"
	"context"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

func redisGetSet() Entry {
	return Entry{
		Name:    "redis-get-set",
		Family:  Hot,
		Summary: "GET a counter, compare, SET what is left; then SQL, which does not compare again. Two requests that got the same number both sell it",
		Needs:   []backend.Name{backend.Redis},
		Damage:  BelowZero,
		New:     func(d Deps) Strategy { return newGetSet(d, "redis-get-set") },
	}
}

// GetSetLock is the lock of redis-get-set-locked where Deps name none.
const GetSetLock = "redis-reentrant"

func redisGetSetLocked() Entry {
	const name = "redis-get-set-locked"
	return Entry{
		Name:    name,
		Family:  Hot,
		Summary: "the same under a lock, from the GET to the commit; right for as long as the lock is. Loses units with a replica",
		Needs:   []backend.Name{backend.Redis},
		Guarantees: Guarantees{ // with GetSetLock
			ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, Renews: true, ReleasesOnlyItsOwn: true, SignalsLoss: true,
		},
		Watchdog: true,
		Damage:   Undersells,
		New: func(d Deps) Strategy {
			l, err := registry.Find(cmp.Or(d.GetSetLock, GetSetLock))
			if err = errors.Join(err, d.Lock.HasAll(l.Needs)); err != nil {
				return unavailable{err}
			}
			return lockedGetSet{newGuarded(d, d.locker(l)), newGetSet(d, name)}
		},
	}
}

// newGetSet makes a strategy for which the counter in Redis is the stock: SQL records what
// it sells. What other strategies did to the row is noticed all the same.
func newGetSet(d Deps, kind string) reserving {
	r := newReserving(d, kind, func(c redis.UniversalClient) stockCopy { return getSet{counter{c}} })
	r.inMiddle, r.sql.store.failpoints = r.sql.store, nil
	r.takeFrom = func(version string) takeUnits {
		return func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (left int64, err error) {
			row, err := tx.Goods(ctx, goodsID)
			if err == nil && !r.kept.soldAlone(version, row) {
				err = errOutdated
			}
			if err != nil {
				return 0, err
			}
			return row.Stock - units, tx.Subtract(ctx, row, units)
		}
	}
	return r
}

// getSet is a counter that is read, compared and written back.
type getSet struct{ counter }

func (g getSet) take(ctx context.Context, pipe redis.Pipeliner, key string, batch []stock.Purchase) takeAnswer {
	reply := pipe.Get(ctx, key)
	return func(ctx context.Context, current bool) (had, took int64, err error) {
		had, err = reply.Int64()
		if ignoreNil(err) != nil || !current {
			return 0, 0, ignoreNil(err)
		}
		picked, _ := pick(batch, stock.Allot(had, batch, stock.Limit{}))
		if len(picked) == 0 {
			return had, 0, nil
		}
		took = stock.Units(picked)
		return had, took, g.client.Set(ctx, key, had-took, 0).Err()
	}
}

// putBack has the counter made anew: to add to it when the lock may be gone would sell a
// unit twice.
func (g getSet) putBack(ctx context.Context, key string, _ int64) error {
	return g.client.Del(ctx, readyOf(key)).Err()
}

// lockedGetSet keeps other purchases of the item out until SQL has the sale.
type lockedGetSet struct {
	guarded
	sale reserving
}

func (l lockedGetSet) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return l.hold(ctx, goodsID, batch, func(ctx context.Context, _ lock.Lease, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
		return l.sale.Deduct(ctx, goodsID, batch)
	})
}

func (l lockedGetSet) Close() error { return errors.Join(l.sale.Close(), l.guarded.Close()) }
