package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// A handoff is the release by one holder and the grant to the next one: what a
// lock costs where all contenders want the same name. Waiters are spread over
// replicas, each of which has clients of its own, and hold the name for no
// longer than it takes to let go.
const (
	waiters     = 64
	replicas    = 3
	handoffName = "handoff"
	handoffTTL  = 10 * time.Second
	handoffWait = 30 * time.Second
	// warmUp is the part of a contest, 1 in so many, that is not counted: until
	// each contender has a connection and a position in the queue.
	warmUp = 4
)

// hold takes the name once and lets go, and tells how long it waited.
type hold func(ctx context.Context) (waited time.Duration, err error)

// contest is made when it is first measured: until then, its sessions need not be kept alive.
type contest struct {
	prepare func() ([]hold, error)
	holds   []hold
	unfair  float64 // the longest wait of the last one over the median
}

func (c *contest) measure(ctx context.Context, each time.Duration) (_ Sample, err error) {
	if c.holds == nil {
		if c.holds, err = c.prepare(); err != nil {
			return Sample{}, fmt.Errorf("prepare: %w", err)
		}
	}
	start := time.Now()
	counted, end := start.Add(each/warmUp), start.Add(each)
	waits := make([][]time.Duration, len(c.holds))
	errs := make([]error, len(c.holds))
	var crowd sync.WaitGroup
	for i, hold := range c.holds {
		crowd.Go(func() {
			for time.Now().Before(end) && ctx.Err() == nil && errs[i] == nil {
				var waited time.Duration
				waited, errs[i] = hold(ctx)
				if errs[i] == nil && time.Now().After(counted) {
					waits[i] = append(waits[i], waited)
				}
			}
		})
	}
	crowd.Wait()
	if err := errors.Join(errs...); err != nil {
		return Sample{}, err
	}
	all := slices.Sorted(slices.Values(slices.Concat(waits...)))
	if len(all) == 0 {
		return Sample{}, fmt.Errorf("no contender held the lock within %s", each)
	}
	c.unfair = all[len(all)-1].Seconds() / max(all[len(all)/2].Seconds(), time.Microsecond.Seconds())
	return Sample{Value: float64(len(all)) / time.Since(counted).Seconds()}, nil
}

// locks are those by themselves, without a stockd around them: each lock that is made on a library's
// connection against the library's own, and how long the unluckiest waits for a lock that is fair. Beside
// them is the memory of a replica that has only its database: a shop that needs no lock.
func (s *stage) locks() Suite {
	suite := Suite{Subjects: []Subject{{
		Name: "resident memory of a replica under 512 connections", Unit: " MiB", AtMost: 64, Measure: s.memory,
	}}}
	contests := make(map[string]*contest) // by the lock's name
	add := func(name string, prepare func() ([]hold, error)) {
		contests[name] = &contest{prepare: prepare}
		suite.Subjects = append(suite.Subjects, Subject{Name: holdsOf(name), Unit: "/s", Measure: contests[name].measure})
	}
	ours := func(name string) { add(name, func() ([]hold, error) { return s.ours(name) }) }
	for _, pair := range []struct {
		name, plain string
		prepare     func() ([]hold, error)
		atLeast     float64
	}{
		{"redsync", "redsync's Mutex", s.plainRedsync, 1},
		{"etcd", "etcd's concurrency.Mutex", s.plainEtcd, 2},
		{"zk-sequential", "go-zookeeper's Lock", s.plainZooKeeper, 1},
	} {
		ours(pair.name)
		add(pair.plain, pair.prepare)
		suite.Ratios = append(suite.Ratios, Ratio{
			Name: pair.name + " / " + pair.plain + ", holds", Of: holdsOf(pair.name), By: holdsOf(pair.plain), AtLeast: pair.atLeast,
		})
	}
	for _, entry := range registry.Locks() {
		if !entry.Guarantees.Fair {
			continue
		}
		if contests[entry.Name] == nil {
			ours(entry.Name)
		}
		fair := contests[entry.Name]
		suite.Subjects = append(suite.Subjects, Subject{
			Name: "longest wait for " + entry.Name + " / median", Unit: "×", AtMost: unfairest,
			Measure: func(context.Context, time.Duration) (Sample, error) { return Sample{Value: fair.unfair}, nil },
		})
	}
	return suite
}

// unfairest bounds the longest wait for a fair lock, in medians.
const unfairest = 5

func holdsOf(name string) string {
	return fmt.Sprintf("holds of %s, %d waiters, %d replicas", name, waiters, replicas)
}

// afterwards closes what a library has connected, at the end.
func (b *bench) afterwards(do func() error) { b.later(func(context.Context) error { return do() }) }

func (s *stage) ours(name string) ([]hold, error) {
	entry, err := registry.Find(name)
	if err != nil {
		return nil, err
	}
	return holdsOn(func() (lock.Locker, error) {
		clients, err := s.clients()
		if err != nil {
			return nil, err
		}
		locker := entry.New(lock.Deps{Clients: clients, TTL: handoffTTL, Retry: handoffRetry})
		if closer, ok := locker.(io.Closer); ok {
			s.afterwards(closer.Close)
		}
		return locker, nil
	}, func(locker lock.Locker) (hold, error) {
		var lease lock.Lease
		return timed(func(ctx context.Context) (err error) {
			lease, err = locker.Acquire(ctx, handoffName)
			return err
		}, func(ctx context.Context) error { return lease.Release(ctx) }), nil
	})
}

// holdsOn connects each replica, and gives each waiter a hold on one of the connections.
func holdsOn[C any](connect func() (C, error), holdOn func(C) (hold, error)) ([]hold, error) {
	holds := make([]hold, waiters)
	connections := make([]C, replicas)
	for r := range connections {
		var err error
		if connections[r], err = connect(); err != nil {
			return nil, err
		}
	}
	for w := range holds {
		var err error
		if holds[w], err = holdOn(connections[w%replicas]); err != nil {
			return nil, err
		}
	}
	return holds, nil
}

// handoffRetry is the default of lock.retry.
const handoffRetry = 50 * time.Millisecond

func (s *stage) clients() (*backend.Clients, error) {
	etcd, err := backend.NewEtcd(backend.EtcdOptions{
		Endpoints: []string{s.shop.Servers.Etcd.Endpoint}, Username: servers.EtcdUser, Password: s.shop.Servers.Etcd.Password, DialTimeout: time.Second,
	})
	if err != nil {
		return nil, err
	}
	clients := &backend.Clients{
		Redis: s.redis(),
		ZooKeeper: backend.NewZooKeeper(backend.ZooKeeperOptions{
			Servers: []string{s.shop.Servers.ZooKeeper.Address}, SessionTimeout: handoffTTL, DialTimeout: time.Second,
		}),
		Etcd: etcd,
	}
	s.afterwards(clients.Close)
	return clients, nil
}

func (s *stage) redis() redis.UniversalClient {
	return backend.NewRedis(backend.RedisOptions{
		Addresses: []string{s.shop.Servers.Redis.Address}, Password: s.shop.Servers.Redis.Password, Timeout: time.Second, PoolSize: waiters,
	})
}

// plainName is the name of the keys of a library, distinct from those of the registry.
func plainName(library string) string { return "plain-" + library + strconv.Itoa(waiters) }

// The plain libraries, used as their documentation has it: what the locks of the
// registry are held against.

func timed(take, letGo func(ctx context.Context) error) hold {
	return func(ctx context.Context) (time.Duration, error) {
		waiting, cancel := context.WithTimeout(ctx, handoffWait)
		defer cancel()
		asked := time.Now()
		if err := take(waiting); err != nil {
			return 0, err
		}
		waited := time.Since(asked)
		return waited, letGo(ctx)
	}
}

func (s *stage) plainRedsync() ([]hold, error) {
	const endless = 1 << 20 // its default of 32 tries is no wait limit
	return holdsOn(func() (*redsync.Redsync, error) {
		client := s.redis()
		s.afterwards(client.Close)
		return redsync.New(goredis.NewPool(client)), nil
	}, func(pool *redsync.Redsync) (hold, error) {
		mutex := pool.NewMutex(plainName("redsync"), redsync.WithExpiry(handoffTTL), redsync.WithTries(endless))
		return timed(mutex.LockContext, func(ctx context.Context) error {
			_, err := mutex.UnlockContext(ctx)
			return err
		}), nil
	})
}

// plainEtcd is concurrency.Mutex with a session for each waiter: on one session
// two of them would hold it at once.
func (s *stage) plainEtcd() ([]hold, error) {
	return holdsOn(func() (*clientv3.Client, error) {
		client, err := s.shop.Servers.Etcd.Open()
		if err == nil {
			s.afterwards(client.Close)
		}
		return client, err
	}, func(client *clientv3.Client) (hold, error) {
		session, err := concurrency.NewSession(client, concurrency.WithTTL(int(handoffTTL.Seconds())))
		if err != nil {
			return nil, err
		}
		s.afterwards(session.Close)
		mutex := concurrency.NewMutex(session, plainName("etcd"))
		return timed(mutex.Lock, mutex.Unlock), nil
	})
}

// plainZooKeeper is go-zookeeper's Lock, which takes no context.
func (s *stage) plainZooKeeper() ([]hold, error) {
	return holdsOn(func() (*zk.Conn, error) {
		conn, _, err := zk.Connect([]string{s.shop.Servers.ZooKeeper.Address}, handoffTTL, zk.WithLogInfo(false))
		if err == nil {
			s.afterwards(func() error { conn.Close(); return nil })
		}
		return conn, err
	}, func(conn *zk.Conn) (hold, error) {
		l := zk.NewLock(conn, "/"+plainName("zookeeper"), zk.WorldACL(zk.PermAll))
		return timed(
			func(context.Context) error { return l.Lock() },
			func(context.Context) error { return l.Unlock() },
		), nil
	})
}
