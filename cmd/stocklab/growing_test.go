package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/pkg/client"
)

// topology is a backend that has grown beyond one machine.
type topology struct {
	name string
	env  []string
	// strategies are those that need it. mayLose tells of which Redis may lose what
	// were reported, and mayDamage of which two may hold the lock.
	strategies         []killed
	mayLose, mayDamage map[string]bool
	// victim is the server of a strategy for an item now.
	victim func(ctx context.Context, strategy string, goods int64) (member, error)
	// mend makes it whole again with a victim that was killed.
	mend func(ctx context.Context, victim member) error
}

// member is a server of a topology.
type member interface {
	Kill(ctx context.Context) error
	Restart(ctx context.Context) error
}

// topologies are those that can be grown to, and how they are started.
func topologies() map[string]func(*testing.T, *servers.Supervisor) topology {
	return map[string]func(*testing.T, *servers.Supervisor) topology{
		"redis-cluster": onRedisCluster, "redis-sentinels": onSentinels, "zookeeper-ensemble": onEnsemble, "etcd-cluster": onEtcdCluster,
	}
}

// Redis replicates after it has answered: a new master may not know of the last
// locks and orders. What is fenced, or is in the ledger before it is answered, does
// not depend on that.
func onAsynchronousRedis(name string, env []string) topology {
	return topology{
		name: name, env: env,
		strategies: []killed{
			{strategy: "redis-reentrant"},
			{strategy: "redis-reentrant", fence: true},
			{strategy: "redsync", fence: true},
			{strategy: "redis-decr"},
			{strategy: "redis-list"},
			{strategy: "redis-stock"},
			{strategy: "redis-stock", durable: client.InSQL},
		},
		mayLose: map[string]bool{"redis-stock": true}, mayDamage: map[string]bool{"redis-reentrant": true},
	}
}

func onRedisCluster(t *testing.T, k *servers.Supervisor) topology {
	t.Helper()
	c := labtest.Own(t, k, "redis", servers.StartRedisCluster, servers.RedisClusterOptions{Masters: 3, Replicas: true})
	top := onAsynchronousRedis("redis-cluster", c.Conn().Env())
	top.victim = func(ctx context.Context, strategy string, goods int64) (member, error) {
		return c.MasterOf(ctx, keyOf(strategy, goods))
	}
	top.mend = restartedAsReplica
	return top
}

// restartedAsReplica starts a Redis that was a master, and finds another one in its
// place.
func restartedAsReplica(ctx context.Context, victim member) error {
	if err := victim.Restart(ctx); err != nil {
		return err
	}
	r, ok := victim.(*servers.Redis)
	if !ok {
		return fmt.Errorf("%T is no Redis", victim)
	}
	return r.AwaitReplica(ctx)
}

// keyOf begins the keys of a strategy for an item: what is in braces says on which
// node of a cluster they are.
func keyOf(strategy string, goods int64) string {
	switch strategy {
	case "redis-stock":
		const partitions = 8 // the default
		return "stockd:{stock-" + strconv.FormatInt(goods%partitions, 10) + "}:"
	case "redis-decr", "redis-list":
		return "stockd:{goods/" + strconv.FormatInt(goods, 10) + "}:"
	default:
		return "stockd:{goods%2F" + strconv.FormatInt(goods, 10) + "}:"
	}
}

func onSentinels(t *testing.T, k *servers.Supervisor) topology {
	t.Helper()
	s := labtest.Own(t, k, "redis", servers.StartSentinels, nil)
	top := onAsynchronousRedis("redis-sentinels", s.Conn().Env())
	top.victim = func(ctx context.Context, _ string, _ int64) (member, error) { return s.Current(ctx) }
	top.mend = func(ctx context.Context, victim member) error {
		if err := restartedAsReplica(ctx, victim); err != nil {
			return err
		}
		master, err := s.Current(ctx)
		if err != nil {
			return err
		}
		return s.AwaitAgreement(ctx, master)
	}
	return top
}

func onEnsemble(t *testing.T, k *servers.Supervisor) topology {
	t.Helper()
	e := labtest.Own(t, k, "zookeeper", servers.StartZooKeeperEnsemble, 3)
	return topology{
		name: "zookeeper-ensemble", env: e.Conn().Env(),
		strategies: []killed{{strategy: "zk-sequential"}, {strategy: "zk-ephemeral"}, {strategy: "zk-herd"}},
		victim:     func(ctx context.Context, _ string, _ int64) (member, error) { return e.AwaitLeader(ctx) },
		mend:       func(ctx context.Context, victim member) error { return victim.Restart(ctx) },
	}
}

func onEtcdCluster(t *testing.T, k *servers.Supervisor) topology {
	t.Helper()
	c := labtest.Own(t, k, "etcd", servers.StartEtcdCluster, 3)
	return topology{
		name: "etcd-cluster", env: c.Conn().Env(), strategies: []killed{{strategy: "etcd"}},
		victim: func(ctx context.Context, _ string, _ int64) (member, error) { return c.AwaitLeader(ctx) },
		mend:   func(ctx context.Context, victim member) error { return victim.Restart(ctx) },
	}
}

// A member that dies takes no purchase with it that comes afterwards: it waits for
// the next leader or master, at most.
func TestASaleGoesOnWhenAMemberDies(t *testing.T) {
	k := labtest.StartSupervisor(t)
	for name, start := range topologies() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			top := start(t, k)
			env := slices.Concat(top.env, []string{"STOCKD_LOCK_WAIT=15s", "STOCKD_LOCK_TTL=5s", "STOCKD_DEDUCT_TIMEOUT=20s"})
			r := cmdtest.StartEmpty(t, "replica", env)
			subject := top.strategies[0].strategy
			for item := range int64(2) {
				must.Do(t, r.CreateGoods(t.Context(), item+1, 10))
			}
			if got := r.Buy(t, "goods_id=1&strategy="+subject); got.Status != http.StatusOK {
				t.Fatalf("%s answers %d %s", subject, got.Status, got.Text)
			}
			victim := must.Get(top.victim(t.Context(), subject, 2))(t)
			must.Do(t, victim.Kill(t.Context()))
			again := cmdtest.Ask(t, http.MethodPost, r.URL+"/deduct?goods_id=2&strategy="+subject)
			again.Header.Set("Idempotency-Key", rand.Text())
			labtest.Await(t, "a sale", 30*time.Second, func() bool {
				got := cmdtest.Do(again)
				if got.Status != http.StatusOK && got.Kind != "busy" && got.Kind != "backend-unavailable" {
					t.Fatalf("%s answers %d %s", subject, got.Status, got.Text)
				}
				return got.Status == http.StatusOK
			})
		})
	}
}
