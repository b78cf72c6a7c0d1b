package strategy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/stock"
)

// reserving takes units off a copy of the stock in Redis, and then writes SQL as
// sql-conditional does, so that it never oversells whatever the copy has. What SQL does
// not take it puts back. It is not recorded for which purchase units were taken: those of
// a replica that dies in between are gone from the copy, and so are those of an answer of
// Redis that was lost.
type reserving struct {
	sql    conditional
	client redis.UniversalClient
	units  stockCopy
	kept   *preheater
	jobs   *background.Jobs
	// inMiddle is the failpoint between the read of a copy and its write.
	inMiddle site
	// takeFrom takes units off the row that a version of the copy was made of.
	takeFrom func(version string) takeUnits
}

// stockCopy is the form that the stock of an item has in Redis.
type stockCopy interface {
	// take queues a command that takes the units of a batch. Its result is to be called when
	// the command is answered.
	take(ctx context.Context, pipe redis.Pipeliner, key string, batch []stock.Purchase) takeAnswer
	// putBack gives units back.
	putBack(ctx context.Context, key string, units int64) error
	// fill makes a copy where there is none.
	fill(ctx context.Context, key string, units int64) error
	// most is how many units a copy may have.
	most() int64
}

// takeAnswer is how many units a copy had for a batch, and how many were taken, which may be
// more. current tells whether the copy has the version that the replica knows.
type takeAnswer func(ctx context.Context, current bool) (had, took int64, err error)

func newReserving(d Deps, kind string, form func(redis.UniversalClient) stockCopy) reserving {
	client := d.Lock.Redis
	copied := form(client)
	return reserving{
		sql: newConditional(d.site(), takeIfEnough), client: client, units: copied, jobs: background.NewJobs(d.Log),
		takeFrom: func(string) takeUnits { return takeIfEnough },
		kept: &preheater{
			prefix: cmp.Or(d.RedisStock.Prefix, redisstock.Defaults().Prefix), kind: kind, owner: rand.Text(),
			client: client, store: d.Store, units: copied, wait: d.LockWait, log: d.Log, changes: d.Changes,
		},
	}
}

func (r reserving) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	for range offers {
		version, err := r.kept.await(ctx, goodsID)
		if err != nil {
			return nil, err
		}
		beyond, err := r.beyond(ctx, goodsID, batch)
		if err != nil {
			return nil, err
		}
		within, _ := pick(batch, beyond)
		if len(within) == 0 {
			return answer(beyond, nil), nil
		}
		rejected, stale, err := r.reserve(ctx, goodsID, within, version)
		if err != nil {
			return nil, err
		}
		if !stale {
			outcomes, err := r.write(ctx, goodsID, within, rejected, version)
			if err == nil {
				return merge(beyond, outcomes), nil
			}
			if !errors.Is(err, errOutdated) {
				return nil, err
			}
		}
		if err := r.kept.discard(ctx, goodsID, version); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: the copy of item %d was out of date %d times", stock.ErrBusy, goodsID, offers)
}

// beyond rejects the purchases of buyers who have what they may have already, where the
// item is known to have a limit: they would block units for others. SQL finds those that
// exceed it only together.
func (r reserving) beyond(ctx context.Context, goodsID int64, batch []stock.Purchase) (rejected []error, err error) {
	if r.sql.limit(goodsID) == 0 {
		return make([]error, len(batch)), nil
	}
	goods, err := r.sql.store.Goods(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	limit, err := r.sql.store.Has(ctx, goodsID, goods.PerUser, batch)
	return stock.Allot(stock.Units(batch), batch, limit), err
}

// reserve takes what fits of the batch, first come first served. A copy that is out of
// date rejects no purchase: then nothing is taken, and it is made anew.
func (r reserving) reserve(ctx context.Context, goodsID int64, batch []stock.Purchase, version string) (rejected []error, stale bool, err error) {
	had, took, current, err := r.take(ctx, goodsID, batch, version)
	if err != nil {
		return nil, false, redisFault(ctx, "take units", err)
	}
	rejected = stock.Allot(had, batch, stock.Limit{}) // SQL checks that
	picked, rest := pick(batch, rejected)
	if len(rest) == 0 {
		return rejected, false, nil
	}
	r.putBack(ctx, goodsID, took-stock.Units(picked))
	row, err := r.sql.store.Goods(ctx, goodsID)
	if err == nil && current && r.kept.isOf(version, row) {
		row.Stock = had
		return row.Allot(batch, stock.Limit{}), false, nil
	}
	r.putBack(ctx, goodsID, stock.Units(picked))
	if err != nil {
		return nil, false, err
	}
	return nil, true, nil
}

// take takes units off the copy, and reads whether it has a version.
func (r reserving) take(ctx context.Context, goodsID int64, batch []stock.Purchase, version string) (had, took int64, current bool, err error) {
	pipe := r.client.Pipeline()
	taken := r.units.take(ctx, pipe, r.kept.key(goodsID), batch)
	mark := pipe.Get(ctx, r.kept.ready(goodsID))
	// A pipeline can fail without an error of its commands, as in go-redis 9.21; and where the
	// first reply is nil, the error of Exec does not show a failure of the second.
	if _, err := pipe.Exec(ctx); ignoreNil(err) != nil {
		return 0, 0, false, err
	}
	current = mark.Val() == version
	had, took, err = taken(r.inMiddle.between(ctx, goodsID), current)
	return had, took, current, errors.Join(err, ignoreNil(mark.Err()))
}

// write sells what was reserved, and puts back what SQL did not take. What it may
// have taken is not put back.
func (r reserving) write(ctx context.Context, goodsID int64, batch []stock.Purchase, rejected []error, version string) ([]stock.Outcome, error) {
	reserved, _ := pick(batch, rejected)
	if len(reserved) == 0 {
		return answer(rejected, nil), nil
	}
	sql := r.sql
	sql.take = r.takeFrom(version)
	sold, err := sql.Deduct(ctx, goodsID, reserved)
	if err != nil {
		if !errors.Is(err, stock.ErrUnknownOutcome) {
			r.putBack(ctx, goodsID, stock.Units(reserved))
		}
		return nil, err
	}
	var unsold int64
	for i, o := range sold {
		if o.Rejected != nil {
			unsold += reserved[i].Quantity
		}
	}
	r.putBack(ctx, goodsID, unsold)
	return merge(rejected, sold), nil
}

// putBack returns units to the copy. Where that fails they are gone from it: the purchase
// that took them has its answer already.
func (r reserving) putBack(ctx context.Context, goodsID, units int64) {
	if units == 0 {
		return
	}
	r.jobs.Finish(ctx, "put units back", func(ctx context.Context) error { return r.units.putBack(ctx, r.kept.key(goodsID), units) })
}

// Close waits for units that are on their way back.
func (r reserving) Close() error { return r.jobs.Close(2 * background.FinishWithin) }

// redisFault is a failure of Redis, or the end of the request that was the reason.
func redisFault(ctx context.Context, doing string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	}
	return backend.Failure(backend.Redis, fmt.Errorf("%s: %w", doing, err))
}
