package labtest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

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
	to := servers.Conn{Database: *d}
	for _, need := range needs {
		switch need {
		case backend.Redis:
			to.Redis = l.Redis(t).Conn().Redis
		case backend.Redlock:
			to.Redlock = l.Redlock(t).Conn().Redlock
		case backend.ZooKeeper:
			to.ZooKeeper = l.ZooKeeper(t).Conn().ZooKeeper
		case backend.Etcd:
			to.Etcd = l.Etcd(t).Conn().Etcd
		case backend.Database, backend.MySQL:
		}
	}
	clients := must.Get(to.Connect(servers.Limits{Session: ZooKeeperSession, Timeout: lockTimeout, Pool: lockPool}))(t)
	deps := lock.Deps{
		Clients: clients, TTL: LockTTL, Retry: lockRetry, Releases: lock.NewReleases(),
		Issue: sqllock.NewTokens(clients.DB, clients.Dialect).Issue,
	}
	should.Close(t, deps)
	if err := clients.HasAll(needs); err != nil {
		t.Skip(err)
	}
	return deps
}

// RedisClient is a client of a Redis that may do everything there, unlike a replica.
func RedisClient(r *servers.Redis) redis.UniversalClient {
	o := RedisOptions(r)
	o.Username = ""
	return backend.NewRedis(o)
}

// RedisOptions say how one replica reaches a Redis: with the rights that the documents give it.
func RedisOptions(r *servers.Redis) backend.RedisOptions {
	o := r.Conn().Redis
	o.Timeout, o.PoolSize = lockTimeout, lockPool
	return o
}

// ZooKeeperClient is a client of a ZooKeeper, as one replica has it.
func ZooKeeperClient(z *servers.ZooKeeper) *backend.ZooKeeperClient {
	return backend.NewZooKeeper(backend.ZooKeeperOptions{
		Servers: []string{z.Address}, SessionTimeout: ZooKeeperSession, DialTimeout: lockTimeout,
	})
}

// HoldAndRelease acquires a name within five seconds, releases it, and returns its token.
func HoldAndRelease(t *testing.T, l lock.Locker, name string) (token uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	lease := must.Get(l.Acquire(ctx, name))(t)
	must.Do(t, lease.Release(ctx))
	return lease.Token()
}

// AwaitLoss requires that a lease ends as lost within a time, and that its release says so.
func AwaitLoss(t *testing.T, lease lock.Lease, limit time.Duration) {
	t.Helper()
	select {
	case <-lease.Context().Done():
	case <-time.After(limit):
		t.Fatalf("the loss was not signalled within %s", limit)
	}
	if cause := context.Cause(lease.Context()); !errors.Is(cause, lock.ErrLost) {
		t.Errorf("the lease ended with %v, want %v", cause, lock.ErrLost)
	}
	if err := lease.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("released with %v, want %v", err, lock.ErrLost)
	}
}
