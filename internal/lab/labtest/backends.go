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
	return shared(t, l, &l.redis, "redis", servers.StartRedis, servers.Local)
}

// Redlock is the lab's five masters, which all tests share.
func (l *Lab) Redlock(t *testing.T) *servers.Redlock {
	t.Helper()
	return shared(t, l, &l.redlock, "redis", servers.StartRedlock, servers.Local)
}

// ZooKeeper is the lab's ZooKeeper, which all tests share.
func (l *Lab) ZooKeeper(t *testing.T) *servers.ZooKeeper {
	t.Helper()
	return shared(t, l, &l.zookeeper, "zookeeper", servers.StartZooKeeper, servers.Local)
}

// Etcd is the lab's etcd, which all tests share.
func (l *Lab) Etcd(t *testing.T) *servers.Etcd {
	t.Helper()
	return shared(t, l, &l.etcd, "etcd", servers.StartEtcd, servers.Local)
}

// OwnRedis is a Redis that a test may treat as it likes; it ends with the test.
func (l *Lab) OwnRedis(t *testing.T) *servers.Redis {
	t.Helper()
	return Own(t, l.supervisor, "redis", servers.StartRedis, servers.Local)
}

// OwnRedlock is five masters that a test may treat as it likes.
func (l *Lab) OwnRedlock(t *testing.T) *servers.Redlock {
	t.Helper()
	return Own(t, l.supervisor, "redis", servers.StartRedlock, servers.Local)
}

// OwnZooKeeper is a ZooKeeper that a test may treat as it likes.
func (l *Lab) OwnZooKeeper(t *testing.T) *servers.ZooKeeper {
	t.Helper()
	return Own(t, l.supervisor, "zookeeper", servers.StartZooKeeper, servers.Local)
}

// OwnEtcd is an etcd that a test may treat as it likes.
func (l *Lab) OwnEtcd(t *testing.T) *servers.Etcd {
	t.Helper()
	return Own(t, l.supervisor, "etcd", servers.StartEtcd, servers.Local)
}

// Starter starts a server, or several that are one backend, as options say.
type Starter[S, O any] = func(context.Context, *servers.Supervisor, O) (S, error)

// Plain is a starter that takes no options.
func Plain[S any](start func(context.Context, *servers.Supervisor) (S, error)) Starter[S, any] {
	return func(ctx context.Context, k *servers.Supervisor, _ any) (S, error) { return start(ctx, k) }
}

// shared is the lab's server of a kind, started where it was not yet.
func shared[S, O any](t *testing.T, l *Lab, at **S, what string, start Starter[*S, O], o O) *S {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if *at == nil {
		*at = started(t, l.supervisor, what, start, o)
	}
	return *at
}

type closer interface {
	Close(ctx context.Context) error
}

// Own starts a server for one test, which may treat it as it likes. The test is skipped where the machine has none,
// or fails where it is required by what it is called.
func Own[S closer, O any](t *testing.T, k *servers.Supervisor, what string, start Starter[S, O], o O) S {
	t.Helper()
	server := started(t, k, what, start, o)
	t.Cleanup(func() { should.Do(t, server.Close(context.Background())) })
	return server
}

func started[S, O any](t *testing.T, k *servers.Supervisor, what string, start Starter[S, O], o O) S {
	t.Helper()
	server, err := start(t.Context(), k, o)
	if missing, ok := errors.AsType[*servers.MissingError](err); ok {
		Need(t, what, false, missing.How)
	}
	must.Do(t, err)
	return server
}

// Galera is an empty database on the lab's three nodes of Galera, as each of them has it.
func (l *Lab) Galera(t *testing.T) (nodes []*servers.Database) {
	t.Helper()
	return l.onNodes(t, shared(t, l, &l.galera, "galera", servers.StartGalera, false))
}

// OwnNodes is an empty database on three nodes that a test may treat as it likes. needs is what start cannot do without.
func (l *Lab) OwnNodes(t *testing.T, needs string, start startNodes) (nodes []*servers.Database) {
	t.Helper()
	return l.onNodes(t, Own(t, l.supervisor, needs, start, false))
}

// Group is an empty database on three members of MySQL's Group Replication, all of them primaries.
func (l *Lab) Group(t *testing.T) (nodes []*servers.Database) {
	t.Helper()
	return l.onNodes(t, shared(t, l, &l.group, "mysql", servers.StartGroup, false))
}

// Vitess is a shop on two shards, which all tests share: each has items of its own.
func (l *Lab) Vitess(t *testing.T) *servers.Vitess {
	t.Helper()
	return shared(t, l, &l.vitess, "vitess", servers.StartVitess, servers.VitessOptions{Shards: []string{"-80", "80-"}})
}

// OwnNetwork is OwnNodes with each node on a host of its own, which can be cut off from the others.
func (l *Lab) OwnNetwork(t *testing.T, needs string, start startNodes) (nodes []*servers.Database, network *servers.Network) {
	t.Helper()
	cluster := Own(t, l.supervisor, needs, start, true)
	return l.onNodes(t, cluster), cluster.Network
}

// startNodes starts a database on several servers, on this machine or apart, each on a host of its own.
type startNodes = Starter[*servers.Nodes, bool]

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
