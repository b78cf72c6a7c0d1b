package strategy

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

func redisDecr() Entry {
	return Entry{
		Name:       "redis-decr",
		Family:     Hot,
		Summary:    "DECRBY a counter, and INCRBY back where that went below zero; then SQL. Rejects while stock is left, and loses units with a replica",
		Needs:      []backend.Name{backend.Redis},
		Guarantees: Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true},
		Damage:     Undersells,
		New: func(d Deps) Strategy {
			return newReserving(d, "redis-decr", func(c redis.UniversalClient) stockCopy { return counter{c} })
		},
	}
}

// counter is a copy of the stock as a number.
type counter struct{ client redis.UniversalClient }

// take takes all the units, also where there are not as many: until they are put back,
// later purchases are rejected that would have fit.
func (c counter) take(ctx context.Context, pipe redis.Pipeliner, key string, batch []stock.Purchase) takeAnswer {
	units := stock.Units(batch)
	reply := pipe.DecrBy(ctx, key, units)
	return func(context.Context, bool) (had, took int64, err error) {
		left, err := reply.Result()
		return left + units, units, err
	}
}

func (c counter) putBack(ctx context.Context, key string, units int64) error {
	return c.client.IncrBy(ctx, key, units).Err()
}

func (c counter) fill(ctx context.Context, key string, units int64) error {
	return c.client.Set(ctx, key, units, fillWithin).Err()
}

func (counter) most() int64 { return stock.MaxStock }
