package labtest

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// The limits of locks in tests: short enough for a test, long enough for a busy
// machine.
const (
	LockTTL = 2 * time.Second
	// ZooKeeperSession is the session of a ZooKeeper client. Its library pings each third of it, and hangs up
	// after two thirds without an answer, which is the loss of every lease: it bears a delay of client or server
	// of one third. At a load of 50 on two cores delays of a second are common: in 150 s, five sessions of 2 s
	// lost 87 connections, and five of 6 s lost 8.
	ZooKeeperSession = 6 * time.Second

	lockRetry   = 5 * time.Millisecond
	lockTimeout = 5 * time.Second
	lockPool    = 8
)

// Locks is what locks are made of that need these backends, as one replica on a
// database has it. The servers are the lab's; what is missing on this machine
// skips the test, or fails it where it is required. The connections end with
// the test.
func (l *Lab) Locks(t *testing.T, d *servers.Database, needs ...backend.Name) lock.Deps {
	t.Helper()
	pool, dialect, err := d.Pool(lockPool, lockTimeout)
	must.Do(t, err)
	clients := &backend.Clients{DB: pool, Dialect: dialect}
	deps := lock.Deps{
		Clients: clients, TTL: LockTTL, Retry: lockRetry, Releases: lock.NewReleases(),
		Issue: sqllock.NewTokens(pool, dialect).Issue,
	}
	should.Close(t, deps)
	for _, need := range needs {
		l.connect(t, clients, need)
	}
	return deps
}

func (l *Lab) connect(t *testing.T, clients *backend.Clients, need backend.Name) {
	t.Helper()
	switch need {
	case backend.Redis:
		clients.RedisOptions = RedisOptions(l.Redis(t))
		clients.Redis = backend.NewRedis(clients.RedisOptions)
	case backend.Redlock:
		for _, node := range l.Redlock(t).Nodes {
			clients.Redlock = append(clients.Redlock, backend.NewRedis(RedisOptions(node)))
		}
	case backend.ZooKeeper:
		clients.ZooKeeper = ZooKeeperClient(l.ZooKeeper(t))
	case backend.Etcd:
		clients.Etcd = EtcdClient(t, l.Etcd(t))
	case backend.MySQL:
		if err := clients.Has(backend.MySQL); err != nil {
			t.Skip(err)
		}
	case backend.Database:
	}
}

// RedisClient is a client of a Redis that may do everything there, unlike a replica.
func RedisClient(r *servers.Redis) redis.UniversalClient {
	o := RedisOptions(r)
	o.Username = ""
	return backend.NewRedis(o)
}

// RedisOptions say how one replica reaches a Redis: with the rights that the documents give it.
func RedisOptions(r *servers.Redis) backend.RedisOptions {
	return backend.RedisOptions{
		Addresses: []string{r.Address}, Username: servers.RedisUser, Password: r.Password, Timeout: lockTimeout, PoolSize: lockPool,
	}
}

// ZooKeeperClient is a client of a ZooKeeper, as one replica has it.
func ZooKeeperClient(z *servers.ZooKeeper) *backend.ZooKeeperClient {
	return backend.NewZooKeeper(backend.ZooKeeperOptions{
		Servers: []string{z.Address}, SessionTimeout: ZooKeeperSession, DialTimeout: lockTimeout,
	})
}

// EtcdClient is a client of an etcd, as one replica has it: with the rights that the documents give it.
func EtcdClient(t *testing.T, e *servers.Etcd) *clientv3.Client {
	t.Helper()
	client, err := backend.NewEtcd(backend.EtcdOptions{
		Endpoints: []string{e.Endpoint}, Username: servers.EtcdUser, Password: e.Password, DialTimeout: lockTimeout,
	})
	must.Do(t, err)
	return client
}
