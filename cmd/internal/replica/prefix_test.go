package replica

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
)

// Every key, channel and node that a replica leaves in the servers of its locks, after a
// purchase through each strategy and while each lock is held, begins with the prefix of the
// configuration.
func TestEverythingInTheLockServersHasThePrefix(t *testing.T) {
	const prefix = "shop.1"
	cmdtest.NeedLockServers(t)
	k := labtest.StartSupervisor(t)
	one := labtest.Own(t, k, "redis", servers.StartRedis, servers.Local)
	five := labtest.Own(t, k, "redis", servers.StartRedlock, servers.Local)
	zookeeper := labtest.Own(t, k, "zookeeper", servers.StartZooKeeper, servers.Local)
	etcd := labtest.Own(t, k, "etcd", servers.StartEtcd, servers.Local)
	p := startInnards(t, slices.Concat(one.Conn().Env(), five.Conn().Env(), zookeeper.Conn().Env(), etcd.Conn().Env(),
		[]string{"STOCKD_PREFIX=" + prefix, "STOCKD_ETCD_USERNAME=" + servers.EtcdRoot, "STOCKD_STRATEGIES_ONLY_SAFE=false"}))
	for i, name := range p.catalogue.Names() {
		if _, err := p.catalogue.In(service.Mode{Strategy: name}); errors.Is(err, service.ErrStrategyRejected) {
			continue // it needs MySQL
		}
		if _, err := p.buy(t, name, int64(i+1)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, entry := range registry.Locks() {
		if slices.Contains(backend.LockServers(), entry.Needs[0]) {
			p.holds(t, entry)
		}
	}
	for of, left := range map[string][]string{
		"redis": redisKeys(t, one), "redlock": redisKeys(t, five.Nodes...),
		"zookeeper": zooKeeperNodes(t, zookeeper), "etcd": etcdKeys(t, p.locks.Etcd),
	} {
		if len(left) == 0 {
			t.Errorf("%s has no keys after a round of use", of)
		}
		for _, key := range left {
			rest, found := strings.CutPrefix(key, prefix)
			if !found || rest != "" && rest[0] != ':' && rest[0] != '/' {
				t.Errorf("%s has %q, without the prefix %s", of, key, prefix)
			}
		}
	}
}

// holds takes a lock until the test ends.
func (p innards) holds(t *testing.T, entry lock.Entry) {
	t.Helper()
	locker := entry.New(p.locks)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	lease, err := locker.Acquire(ctx, entry.Name)
	if err != nil {
		t.Fatalf("%s: %v", entry.Name, err)
	}
	t.Cleanup(func() {
		_ = lease.Release(context.Background()) // its TTL may be over
		if closer, ok := locker.(interface{ Close() error }); ok {
			_ = closer.Close() // the test is over
		}
	})
}

// redisKeys lists keys, and the channels that have a subscriber.
func redisKeys(t *testing.T, nodes ...*servers.Redis) (all []string) {
	t.Helper()
	for _, node := range nodes {
		client := labtest.RedisClient(node)
		defer client.Close() //nolint:errcheck // what it was for has been answered
		keys := must.Get(client.Keys(t.Context(), "*").Result())(t)
		channels := must.Get(client.PubSubChannels(t.Context(), "*").Result())(t)
		all = slices.Concat(all, keys, channels)
	}
	return all
}

func etcdKeys(t *testing.T, client *clientv3.Client) (keys []string) {
	t.Helper()
	answer := must.Get(client.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly()))(t)
	for _, kv := range answer.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return keys
}

// zooKeeperNodes lists the nodes of clients, without the slash at the beginning.
func zooKeeperNodes(t *testing.T, z *servers.ZooKeeper) (paths []string) {
	t.Helper()
	conn, _, err := zk.Connect([]string{z.Address}, 10*time.Second, zk.WithLogInfo(false))
	must.Do(t, err)
	defer conn.Close()
	for folders := []string{""}; len(folders) > 0; folders = folders[1:] {
		names, _, err := conn.Children("/" + folders[0])
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // an empty one that was listed before may be removed
			t.Fatal(err)
		}
		for _, name := range names {
			path := strings.TrimPrefix(folders[0]+"/"+name, "/")
			if path == "zookeeper" {
				continue // its own configuration
			}
			paths, folders = append(paths, path), append(folders, path)
		}
	}
	return paths
}
