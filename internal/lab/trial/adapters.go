package trial

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/pause"
)

func adapters() map[string]opener {
	return map[string]opener{
		"redsync":                   openRedsync(),
		"redsync x5":                openRedsync(),
		"redsync x5, SetNXOnExtend": openRedsync(redsync.WithSetNXOnExtend()),
		"redislock":                 openRedislock,
		"SET NX PX, DEL":            openByHand,
		"zk Lock":                   openZK,
		"etcd Mutex":                openEtcd(takeMutex),
		"etcd Election":             openEtcd(takeElection),
		"GET_LOCK":                  openSQL(getLock),
		"FOR UPDATE":                openSQL(forUpdate),
	}
}

var errNotOurs = errors.New("the server does not have it as ours")

// clusterLook is how often clients ask a Redis Cluster for its masters. By default it is once a minute: until then no lock
// of a master that has died is granted.
const clusterLook = time.Second

// redis are clients with the defaults of their library, as the documents of the locks make them, but for clusterLook.
func (c Conn) redis() (clients []redis.UniversalClient, closeAll func() error) {
	for _, o := range []backend.RedisOptions{c.Redis, c.Redlock} {
		if o.Cluster {
			clients = append(clients, redis.NewClusterClient(&redis.ClusterOptions{Addrs: o.Addresses, Password: o.Password, ClusterStateReloadInterval: clusterLook}))
			continue
		}
		for _, address := range o.Addresses {
			clients = append(clients, redis.NewClient(&redis.Options{Addr: address, Password: o.Password}))
		}
	}
	return clients, func() (err error) {
		for _, client := range clients {
			err = errors.Join(err, client.Close())
		}
		return err
	}
}

// openRedsync has mutexes wait without a limit of tries.
func openRedsync(options ...redsync.Option) opener {
	done := func(ok bool, err error) error {
		if ok {
			return nil
		}
		return errors.Join(errNotOurs, err)
	}
	return func(c Conn) (lock.Locker, func() error, error) {
		clients, closeAll := c.redis()
		pools := make([]redsyncredis.Pool, len(clients))
		for i, client := range clients {
			pools[i] = goredis.NewPool(client)
		}
		rs := redsync.New(pools...)
		return locker{c.Lease, func(ctx context.Context, name string) (*held, error) {
			m := rs.NewMutex(name, append(options, redsync.WithExpiry(c.Lease), redsync.WithTries(math.MaxInt))...)
			return &held{
				until:   m.Until,
				extend:  func(ctx context.Context) error { return done(m.ExtendContext(ctx)) },
				release: func(ctx context.Context) error { return done(m.UnlockContext(ctx)) },
			}, m.LockContext(ctx)
		}}, closeAll, nil
	}
}

func openRedislock(c Conn) (lock.Locker, func() error, error) {
	clients, closeAll := c.redis()
	client := redislock.New(clients[0])
	return locker{c.Lease, func(ctx context.Context, name string) (*held, error) {
		l, err := client.Obtain(ctx, name, c.Lease, &redislock.Options{RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond)})
		return &held{release: l.Release, extend: func(ctx context.Context) error { return l.Refresh(ctx, c.Lease, nil) }}, err
	}}, closeAll, nil
}

// openByHand is the lock of most blogs: it is not renewed, and its DEL does not ask whose the key is.
func openByHand(c Conn) (lock.Locker, func() error, error) {
	clients, closeAll := c.redis()
	return locker{c.Lease, func(ctx context.Context, name string) (*held, error) {
		for {
			ok, err := clients[0].SetNX(ctx, name, rand.Text(), c.Lease).Result()
			if ok || err != nil {
				return &held{release: func(ctx context.Context) error { return clients[0].Del(ctx, name).Err() }}, err
			}
			if err := pause.For(ctx, 100*time.Millisecond); err != nil {
				return nil, err
			}
		}
	}}, closeAll, nil
}

// openZK watches the session beside the lock. Lock takes no context: where its caller leaves, it is given back when
// it comes.
func openZK(c Conn) (lock.Locker, func() error, error) {
	conn, err := servers.OpenZooKeeper(c.Lease, c.ZooKeeper.Servers...)
	return locker{c.Lease, func(ctx context.Context, name string) (*held, error) {
		l, got := zk.NewLock(conn, "/trial-"+name, zk.WorldACL(zk.PermAll)), make(chan error, 1)
		go func() { got <- l.Lock() }()
		select {
		case err := <-got:
			return &held{
				release: func(context.Context) error { return l.Unlock() },
				alive:   func() bool { return conn.State() == zk.StateHasSession },
			}, err
		case <-ctx.Done():
			go func() {
				if <-got == nil {
					_ = l.Unlock() // no caller is there
				}
			}()
			return nil, ctx.Err()
		}
	}}, func() error { conn.Close(); return nil }, err
}

func takeMutex(ctx context.Context, s *concurrency.Session, name string) (*held, error) {
	m := concurrency.NewMutex(s, name)
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return &held{token: m.Header().Revision, release: m.Unlock}, nil
}

func takeElection(ctx context.Context, s *concurrency.Session, name string) (*held, error) {
	e := concurrency.NewElection(s, name)
	err := e.Campaign(ctx, "holder")
	return &held{token: e.Rev(), release: e.Resign}, err
}

// maxSessions has room for those of a client that wait at once.
const maxSessions = 128

// openEtcd gives each hold a session of its own, as two mutexes of one session do not exclude each other. A session stays
// for the next hold, as in a program that makes it once.
func openEtcd(take func(ctx context.Context, s *concurrency.Session, name string) (*held, error)) opener {
	return func(c Conn) (lock.Locker, func() error, error) {
		client, err := clientv3.New(clientv3.Config{Endpoints: c.Etcd.Endpoints, Username: c.Etcd.Username, Password: c.Etcd.Password, DialTimeout: c.Lease, Logger: zap.NewNop()})
		free := make(chan *concurrency.Session, maxSessions)
		return locker{c.Lease, func(ctx context.Context, name string) (h *held, err error) {
			var s *concurrency.Session
			select {
			case s = <-free:
			default:
				if s, err = concurrency.NewSession(client, concurrency.WithTTL(int(c.Lease.Seconds()))); err != nil {
					return nil, err
				}
			}
			back := func() {
				if s.Ctx().Err() == nil {
					free <- s
				}
			}
			if h, err = take(ctx, s, name); err != nil {
				back()
				return nil, err
			}
			release := h.release
			h.alive = func() bool { return s.Ctx().Err() == nil }
			h.release = func(ctx context.Context) error { defer back(); return release(ctx) }
			return h, nil
		}}, client.Close, err
	}
}

// openSQL takes the name on a connection of its own.
func openSQL(take func(ctx context.Context, conn *sql.Conn, name string) (release func(context.Context) error, err error)) opener {
	return func(c Conn) (lock.Locker, func() error, error) {
		db, err := c.Database.Raw()
		return locker{c.Lease, func(ctx context.Context, name string) (*held, error) {
			conn, err := db.Conn(ctx)
			if err != nil {
				return nil, err
			}
			release, err := take(ctx, conn, name)
			if err != nil {
				return nil, errors.Join(err, conn.Close())
			}
			return &held{release: func(ctx context.Context) error { return errors.Join(release(ctx), conn.Close()) }}, nil
		}}, db.Close, err
	}
}

func getLock(ctx context.Context, conn *sql.Conn, name string) (func(context.Context) error, error) {
	ask := func(ctx context.Context, statement string) (got bool, err error) {
		return got, conn.QueryRowContext(ctx, statement, name).Scan(&got)
	}
	got, err := ask(ctx, "SELECT GET_LOCK(?, 60)")
	if err == nil && !got {
		err = errNotOurs
	}
	return func(ctx context.Context) error { _, err := ask(ctx, "SELECT RELEASE_LOCK(?)"); return err }, err
}

// forUpdate locks a row that is there, in a transaction that stays open.
func forUpdate(ctx context.Context, conn *sql.Conn, name string) (func(context.Context) error, error) {
	tx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return nil, err
	}
	if err := tx.QueryRowContext(ctx, "SELECT name FROM trial_lock WHERE name = ? FOR UPDATE", name).Scan(new(string)); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return func(context.Context) error { return tx.Commit() }, nil
}

// What a replica has, where its owner says nothing: of connections to a Redis, and of those of the locks in SQL. What they
// have no place for waits in the replica.
const redisConnections, sqlConnections = 32, 8

// own is a lock of stockd's, on the connections of a replica.
func (c Conn) own(entry lock.Entry) (_ lock.Locker, closeAll func() error, err error) {
	limits := servers.Limits{Session: c.Lease, Timeout: time.Second, Pool: redisConnections}
	if c.Database.Driver != "" {
		limits.Pool = sqlConnections
	}
	if len(c.Redlock.Addresses) > 0 {
		c.Database = c.Numbers
	}
	all, err := c.Connect(limits)
	if err != nil {
		return nil, nil, err
	}
	d := lock.Deps{Clients: all, TTL: c.Lease, Retry: 50 * time.Millisecond, Releases: lock.NewReleases(), Log: slog.New(slog.DiscardHandler)}
	if all.DB != nil {
		d.Issue = sqllock.NewTokens(all.DB, all.Dialect).Issue
	}
	return entry.New(d), d.Close, nil
}
