package redis_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	redislock "github.com/stockd/stockd/internal/lock/redis"
	"github.com/stockd/stockd/internal/locktest"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(locktest.Main(m, &lab, locks()...)) }

func TestLocks(t *testing.T) { locktest.Run(t, lab, locks()...) }

// locks are the locks of this family, with their state, and one of them over two names.
func locks() []locktest.Lock { return locktest.Family(lock.FamilyRedis, stateOf) }

// state is the keys of a name on one Redis, a cluster, or five masters.
type state struct{ clients *backend.Clients }

func stateOf(_ string, c *backend.Clients) locktest.State { return state{c} }

// Traces lists the keys, and a queue by its members.
func (s state) Traces(ctx context.Context, name string) (traces []string, err error) {
	err = s.each(ctx, name, func(node redis.UniversalClient, key string) error {
		kind, err := node.Type(ctx, key).Result()
		if err != nil || kind != "zset" {
			traces = append(traces, key)
			return err
		}
		members, err := node.ZRange(ctx, key, 0, -1).Result()
		for _, member := range members {
			traces = append(traces, key+" "+member)
		}
		return err
	})
	return traces, err
}

// Break deletes the keys.
func (s state) Break(ctx context.Context, name string) error {
	return s.each(ctx, name, func(node redis.UniversalClient, key string) error { return node.Del(ctx, key).Err() })
}

// each calls do for every key of a name, but for the counters of tokens, which stay.
func (s state) each(ctx context.Context, name string, do func(node redis.UniversalClient, key string) error) error {
	pattern := redislock.Keys(lock.Deps{Clients: s.clients}, name)
	nodes := s.clients.Redlock
	if s.clients.Redis != nil {
		nodes = []redis.UniversalClient{s.clients.Redis}
	}
	for _, node := range nodes {
		if cluster, ok := node.(*redis.ClusterClient); ok {
			// A node knows its own keys alone; those of a name are all on one.
			master, err := cluster.MasterForKey(ctx, pattern)
			if err != nil {
				return err
			}
			node = master
		}
		keys := node.Scan(ctx, 0, pattern, 10_000).Iterator()
		for keys.Next(ctx) {
			if strings.HasSuffix(keys.Val(), ":token") {
				continue
			}
			if err := do(node, keys.Val()); err != nil {
				return err
			}
		}
		if err := keys.Err(); err != nil {
			return err
		}
	}
	return nil
}
