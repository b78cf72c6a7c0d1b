package bench

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/go-zookeeper/zk"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/stockd/stockd/internal/backend"
)

// The plain libraries, used as their documentation has it: what the locks of the
// registry are held against.

// timed holds once by a library's own lock and unlock.
func timed(take, letGo func(ctx context.Context) error) hold {
	return func(ctx context.Context) (time.Duration, error) {
		waiting, cancel := context.WithTimeout(ctx, handoverWait)
		defer cancel()
		asked := time.Now()
		if err := take(waiting); err != nil {
			return 0, err
		}
		waited := time.Since(asked)
		return waited, letGo(ctx)
	}
}

// plainRedsync is redsync's own Mutex.
func (h *handover) plainRedsync() (*contest, error) {
	c := &contest{}
	pools := make([]*redsync.Redsync, replicas)
	for r := range pools {
		client := backend.NewRedis(backend.RedisOptions{
			Addresses: []string{h.backends.Redis.Address}, Password: h.backends.Redis.Password, Timeout: time.Second, PoolSize: waiters,
		})
		h.closers = append(h.closers, client.Close)
		pools[r] = redsync.New(goredis.NewPool(client))
	}
	const endless = 1 << 20 // its default of 32 tries is no wait limit
	for w := range waiters {
		mutex := pools[w%replicas].NewMutex(plainName("redsync"), redsync.WithExpiry(handoverTTL), redsync.WithTries(endless))
		c.holds = append(c.holds, timed(mutex.LockContext, func(ctx context.Context) error {
			_, err := mutex.UnlockContext(ctx)
			return err
		}))
	}
	return c, nil
}

// plainEtcd is concurrency.Mutex with a session for each waiter: on one session
// two of them would hold it at once.
func (h *handover) plainEtcd() (*contest, error) {
	c := &contest{}
	clients := make([]*clientv3.Client, replicas)
	for r := range clients {
		client, err := clientv3.New(clientv3.Config{
			Endpoints: []string{h.backends.Etcd.Endpoint}, DialTimeout: time.Second, Logger: zap.NewNop(),
		})
		if err != nil {
			return nil, err
		}
		h.closers = append(h.closers, client.Close)
		clients[r] = client
	}
	for w := range waiters {
		session, err := concurrency.NewSession(clients[w%replicas], concurrency.WithTTL(int(handoverTTL.Seconds())))
		if err != nil {
			return nil, err
		}
		h.closers = append(h.closers, session.Close)
		mutex := concurrency.NewMutex(session, plainName("etcd"))
		c.holds = append(c.holds, timed(mutex.Lock, mutex.Unlock))
	}
	return c, nil
}

// plainZooKeeper is go-zookeeper's Lock, which takes no context.
func (h *handover) plainZooKeeper() (*contest, error) {
	c := &contest{}
	conns := make([]*zk.Conn, replicas)
	for r := range conns {
		conn, _, err := zk.Connect([]string{h.backends.ZooKeeper.Address}, handoverTTL, zk.WithLogInfo(false))
		if err != nil {
			return nil, err
		}
		h.closers = append(h.closers, func() error { conn.Close(); return nil })
		conns[r] = conn
	}
	for w := range waiters {
		l := zk.NewLock(conns[w%replicas], "/"+plainName("zookeeper"), zk.WorldACL(zk.PermAll))
		c.holds = append(c.holds, timed(
			func(context.Context) error { return l.Lock() },
			func(context.Context) error { return l.Unlock() },
		))
	}
	return c, nil
}
