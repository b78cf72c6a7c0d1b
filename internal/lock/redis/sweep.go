package redis

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/stock"
)

// scanPage is how many keys Redis looks at for one answer.
const scanPage = 1000

// ExpireCounters gives those counters of tokens an expiry that have none, and counts
// them: counters of a version that kept them for ever. One that is in use is given a new
// expiry with each use, as every other.
func ExpireCounters(ctx context.Context, client redis.UniversalClient, prefix string) (expired int, err error) {
	var n atomic.Int64
	each := func(ctx context.Context, node redis.UniversalClient) error {
		found, err := expireOn(ctx, node, prefix)
		n.Add(int64(found))
		return err
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return each(ctx, node) })
	} else {
		err = each(ctx, client)
	}
	if err != nil {
		err = &stock.BackendError{Backend: server, Err: err}
	}
	return int(n.Load()), err
}

func expireOn(ctx context.Context, node redis.UniversalClient, prefix string) (expired int, err error) {
	for cursor := uint64(0); ; {
		var keys []string
		if keys, cursor, err = node.Scan(ctx, cursor, prefix+":{*}:*:token", scanPage).Result(); err != nil {
			return expired, err
		}
		lasting, err := withoutExpiry(ctx, node, keys)
		if err != nil {
			return expired, err
		}
		for _, key := range lasting {
			if err := node.PExpire(ctx, key, tokenLife).Err(); err != nil {
				return expired, err
			}
			expired++
		}
		if cursor == 0 {
			return expired, nil
		}
	}
}

func withoutExpiry(ctx context.Context, node redis.UniversalClient, keys []string) (lasting []string, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ttls := make([]*redis.DurationCmd, len(keys))
	_, err = node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, key := range keys {
			ttls[i] = pipe.PTTL(ctx, key)
		}
		return nil
	})
	for i, key := range keys {
		if err == nil && ttls[i].Val() == -1 {
			lasting = append(lasting, key)
		}
	}
	return lasting, err
}
