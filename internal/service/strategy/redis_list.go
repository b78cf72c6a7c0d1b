package strategy

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

func redisList() Entry {
	return Entry{
		Name:       "redis-list",
		Family:     Hot,
		Summary:    "LPOP from a list of as many tokens as there is stock, push back what is not enough; then SQL. Tokens are lost with a replica",
		Needs:      []backend.Name{backend.Redis},
		MinRedis:   "6.2", // LPOP with a count
		Guarantees: Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true},
		Damage:     Undersells,
		New: func(d Deps) Strategy {
			return newReserving(d, "redis-list", func(c redis.UniversalClient) stockCopy { return tokens{c} })
		},
	}
}

// tokens is a copy of the stock as a list of so many elements.
type tokens struct{ client redis.UniversalClient }

const (
	// maxTokens bounds the memory that one item takes in Redis: about 3 MiB.
	maxTokens = 1_000_000
	// tokensAtOnce are pushed with one command, so that other clients get in between.
	tokensAtOnce = 5_000
	oneToken     = "1"
)

// take pops as many tokens as there are, also where that is not enough: until they are put
// back, later purchases are rejected that would have fit.
func (t tokens) take(ctx context.Context, pipe redis.Pipeliner, key string, batch []stock.Purchase) takeAnswer {
	reply := pipe.LPopCount(ctx, key, int(stock.Units(batch)))
	return func(context.Context, bool) (had, took int64, err error) {
		popped, err := reply.Result()
		n := int64(len(popped))
		return n, n, ignoreNil(err) // there is no empty list
	}
}

func (t tokens) putBack(ctx context.Context, key string, units int64) error {
	_, err := t.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for ; units > 0; units -= tokensAtOnce {
			pipe.RPush(ctx, key, some(units)...)
		}
		return nil
	})
	return err
}

func (t tokens) fill(ctx context.Context, key string, units int64) error {
	for ; units > 0; units -= tokensAtOnce {
		if err := t.client.RPush(ctx, key, some(units)...).Err(); err != nil {
			return err
		}
		if err := t.client.Expire(ctx, key, fillWithin).Err(); err != nil {
			return err
		}
	}
	return nil
}

// some is so many tokens, but tokensAtOnce at most.
func some(units int64) []any {
	list := make([]any, min(units, tokensAtOnce))
	for i := range list {
		list[i] = oneToken
	}
	return list
}

func (tokens) most() int64 { return maxTokens }
