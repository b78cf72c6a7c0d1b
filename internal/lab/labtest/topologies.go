package labtest

import (
	"context"
	"testing"

	"github.com/stockd/stockd/internal/lab/servers"
)

// OwnRedisPair is a primary with a replica that a test may treat as it likes.
func (l *Lab) OwnRedisPair(t *testing.T) *servers.RedisPair {
	t.Helper()
	return own(t, l, "redis", local(servers.StartRedisPair))
}

// OwnRedisCluster is a Redis Cluster that a test may treat as it likes.
func (l *Lab) OwnRedisCluster(t *testing.T, o servers.RedisClusterOptions) *servers.RedisCluster {
	t.Helper()
	return own(t, l, "redis", local(func(ctx context.Context, k *servers.Supervisor) (*servers.RedisCluster, error) {
		return servers.StartRedisCluster(ctx, k, o)
	}))
}

// OwnSentinels is a master with a replica and three Sentinels, which a test may
// treat as it likes.
func (l *Lab) OwnSentinels(t *testing.T, s *servers.Security) *servers.Sentinels {
	t.Helper()
	return own(t, l, "redis", local(func(ctx context.Context, k *servers.Supervisor) (*servers.Sentinels, error) {
		return servers.StartSentinels(ctx, k, s)
	}))
}

// OwnRedlockWith is five masters that a test may treat as it likes. Those with
// clocks need faketime.
func (l *Lab) OwnRedlockWith(t *testing.T, o servers.RedlockOptions) *servers.Redlock {
	t.Helper()
	needs := "redis"
	if o.Clocks {
		needs = "faketime"
	}
	return own(t, l, needs, local(func(ctx context.Context, k *servers.Supervisor) (*servers.Redlock, error) {
		return servers.StartRedlockWith(ctx, k, o)
	}))
}

// OwnEnsemble is three ZooKeepers that a test may treat as it likes.
func (l *Lab) OwnEnsemble(t *testing.T) *servers.ZooKeeperEnsemble {
	t.Helper()
	return own(t, l, "zookeeper", local(servers.StartZooKeeperEnsemble))
}

// OwnEtcdCluster is three etcds that a test may treat as it likes.
func (l *Lab) OwnEtcdCluster(t *testing.T) *servers.EtcdCluster {
	t.Helper()
	return own(t, l, "etcd", local(servers.StartEtcdCluster))
}

// local is how a topology is started that is made of real servers alone.
func local[S any](start func(context.Context, *servers.Supervisor) (S, error)) starter[S] {
	return func(ctx context.Context, k *servers.Supervisor, _ servers.Mode) (S, error) { return start(ctx, k) }
}
