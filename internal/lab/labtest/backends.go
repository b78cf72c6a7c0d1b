package labtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// Redis is the lab's Redis, which all tests share. A test whose server is not
// on this machine is skipped, or fails where it is required.
func (l *Lab) Redis(t *testing.T) *servers.Redis {
	t.Helper()
	return shared(t, l, &l.redis, "redis", servers.StartRedis)
}

// Redlock is the lab's five masters, which all tests share.
func (l *Lab) Redlock(t *testing.T) *servers.Redlock {
	t.Helper()
	return shared(t, l, &l.redlock, "redis", servers.StartRedlock)
}

// ZooKeeper is the lab's ZooKeeper, which all tests share.
func (l *Lab) ZooKeeper(t *testing.T) *servers.ZooKeeper {
	t.Helper()
	return shared(t, l, &l.zookeeper, "zookeeper", servers.StartZooKeeper)
}

// Etcd is the lab's etcd, which all tests share.
func (l *Lab) Etcd(t *testing.T) *servers.Etcd {
	t.Helper()
	return shared(t, l, &l.etcd, "etcd", servers.StartEtcd)
}

// OwnRedis is a Redis that a test may treat as it likes; it ends with the test.
func (l *Lab) OwnRedis(t *testing.T) *servers.Redis {
	t.Helper()
	return own(t, l, "redis", servers.StartRedis)
}

// OwnCluster is a Redis Cluster of one node that a test may treat as it likes.
func (l *Lab) OwnCluster(t *testing.T) *servers.Redis {
	t.Helper()
	return l.OwnRedisCluster(t, servers.RedisClusterOptions{Masters: 1}).Masters[0]
}

// OwnRedlock is five masters that a test may treat as it likes.
func (l *Lab) OwnRedlock(t *testing.T) *servers.Redlock {
	t.Helper()
	return own(t, l, "redis", servers.StartRedlock)
}

// OwnZooKeeper is a ZooKeeper that a test may treat as it likes.
func (l *Lab) OwnZooKeeper(t *testing.T) *servers.ZooKeeper {
	t.Helper()
	return own(t, l, "zookeeper", servers.StartZooKeeper)
}

// OwnEtcd is an etcd that a test may treat as it likes.
func (l *Lab) OwnEtcd(t *testing.T) *servers.Etcd {
	t.Helper()
	return own(t, l, "etcd", servers.StartEtcd)
}

type starter[S any] func(context.Context, *servers.Supervisor, servers.Mode) (S, error)

// shared is the lab's server of a kind, started where it was not yet.
func shared[S any](t *testing.T, l *Lab, at **S, what string, start starter[*S]) *S {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if *at == nil {
		*at = started(t, what, on(l, start))
	}
	return *at
}

type closer interface {
	Close(ctx context.Context) error
}

// Own starts a server for one test, which is skipped where the machine has none, or fails where it is required
// by what it is called.
func Own[S closer](t *testing.T, what string, start func(context.Context) (S, error)) S {
	t.Helper()
	server := started(t, what, start)
	t.Cleanup(func() { should.Do(t, server.Close(context.Background())) })
	return server
}

func own[S closer](t *testing.T, l *Lab, what string, start starter[S]) S {
	t.Helper()
	return Own(t, what, on(l, start))
}

// on starts a server with the supervisor of a lab.
func on[S any](l *Lab, start starter[S]) func(context.Context) (S, error) {
	return func(ctx context.Context) (S, error) { return start(ctx, l.supervisor, servers.Local) }
}

func started[S any](t *testing.T, what string, start func(context.Context) (S, error)) S {
	t.Helper()
	server, err := start(t.Context())
	if missing, ok := errors.AsType[*servers.MissingError](err); ok {
		Need(t, what, false, missing.How)
	}
	must.Do(t, err)
	return server
}

// OwnRedisPair is a primary with a replica that a test may treat as it likes.
func (l *Lab) OwnRedisPair(t *testing.T) *servers.RedisPair {
	t.Helper()
	return own(t, l, "redis", local(servers.StartRedisPair))
}

// OwnRedisCluster is a Redis Cluster that a test may treat as it likes.
func (l *Lab) OwnRedisCluster(t *testing.T, o servers.RedisClusterOptions) *servers.RedisCluster {
	t.Helper()
	return own(t, l, "redis", with(servers.StartRedisCluster, o))
}

// OwnSentinels is a master with a replica and three Sentinels, which a test may
// treat as it likes.
func (l *Lab) OwnSentinels(t *testing.T, s *servers.Security) *servers.Sentinels {
	t.Helper()
	return own(t, l, "redis", with(servers.StartSentinels, s))
}

// OwnRedlockWith is five masters that a test may treat as it likes. Those with
// clocks need faketime.
func (l *Lab) OwnRedlockWith(t *testing.T, o servers.RedlockOptions) *servers.Redlock {
	t.Helper()
	needs := "redis"
	if o.Clocks {
		needs = "faketime"
	}
	return own(t, l, needs, with(servers.StartRedlockWith, o))
}

// OwnEnsemble is three ZooKeepers that a test may treat as it likes.
func (l *Lab) OwnEnsemble(t *testing.T) *servers.ZooKeeperEnsemble {
	t.Helper()
	return own(t, l, "zookeeper", with(servers.StartZooKeeperEnsemble, 3))
}

// OwnEtcdCluster is three etcds that a test may treat as it likes.
func (l *Lab) OwnEtcdCluster(t *testing.T) *servers.EtcdCluster {
	t.Helper()
	return own(t, l, "etcd", with(servers.StartEtcdCluster, 3))
}

// Galera is an empty database on the lab's three nodes of Galera, as each of them has it.
func (l *Lab) Galera(t *testing.T) (nodes []*servers.Database) {
	t.Helper()
	return l.onNodes(t, shared(t, l, &l.galera, "galera", with(servers.StartGalera, nil)))
}

// OwnNodes is an empty database on three nodes that a test may treat as it likes. needs is what start cannot do without.
func (l *Lab) OwnNodes(t *testing.T, needs string, start startNodes) (nodes []*servers.Database) {
	t.Helper()
	return l.onNodes(t, own(t, l, needs, with(start, nil)))
}

// Group is an empty database on three members of MySQL's Group Replication, all of them primaries.
func (l *Lab) Group(t *testing.T) (nodes []*servers.Database) {
	t.Helper()
	return l.onNodes(t, shared(t, l, &l.group, "mysql", with(servers.StartGroup, nil)))
}

// Vitess is a shop on two shards, which all tests share: each has items of its own.
func (l *Lab) Vitess(t *testing.T) *servers.Vitess {
	t.Helper()
	return shared(t, l, &l.vitess, "vitess", with(servers.StartVitess, []string{"-80", "80-"}))
}

// OwnVitess is a shop on shards that a test may treat as it likes.
func (l *Lab) OwnVitess(t *testing.T, shards ...string) *servers.Vitess {
	t.Helper()
	return own(t, l, "vitess", with(servers.StartVitess, shards))
}

// OwnNetwork is OwnNodes with each node on a host of its own, which can be cut off from the others.
func (l *Lab) OwnNetwork(t *testing.T, needs string, start startNodes) (nodes []*servers.Database, network *servers.Network) {
	t.Helper()
	cluster := own(t, l, needs, local(servers.OnNetwork(start)))
	return l.onNodes(t, cluster), cluster.Network
}

// startNodes starts a database on several servers, on the hosts of a network or, without one, on this machine.
type startNodes func(context.Context, *servers.Supervisor, *servers.Network) (*servers.Nodes, error)

// onNodes makes a database, and waits until every node has it.
func (l *Lab) onNodes(t *testing.T, cluster *servers.Nodes) (nodes []*servers.Database) {
	t.Helper()
	made := must.Get(mysql.ParseDSN(l.empty(t, cluster.Nodes[0]).DSN))(t)
	for _, node := range cluster.Nodes {
		d := must.Get(node.With(func(c *mysql.Config) { c.DBName = made.DBName }))(t)
		if !Eventually(10*time.Second, func() bool { return answers(t, d) }) {
			t.Fatalf("a node has no %s: %s", made.DBName, d.DSN)
		}
		nodes = append(nodes, d)
	}
	return nodes
}

func answers(t *testing.T, d *servers.Database) bool {
	t.Helper()
	pool, _ := Connect(t, d)
	defer pool.Close() //nolint:errcheck // nothing is lost with it
	return pool.PingContext(t.Context()) == nil
}

// with is how a topology is started that is made of real servers alone, with options.
func with[S, O any](start func(context.Context, *servers.Supervisor, O) (S, error), o O) starter[S] {
	return func(ctx context.Context, k *servers.Supervisor, _ servers.Mode) (S, error) { return start(ctx, k, o) }
}

// local is with without options.
func local[S any](start func(context.Context, *servers.Supervisor) (S, error)) starter[S] {
	return func(ctx context.Context, k *servers.Supervisor, _ servers.Mode) (S, error) { return start(ctx, k) }
}
