package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/room"
	"github.com/stockd/stockd/internal/stock"
)

// lockDeps is what the locks of a replica are made of. It waits for no server: one that is
// down is used once it is up.
func lockDeps(c config.Config, watch observation) (lock.Deps, error) {
	pool, err := watch.sqlOptions(c)
	if err != nil {
		return lock.Deps{}, err
	}
	clients, err := lockClients(c, pool)
	if err != nil {
		return lock.Deps{}, err
	}
	watch.follow(clients)
	return lock.Deps{
		Clients: clients, TTL: c.Lock.TTL, Unrenewed: !c.Lock.Renew, Retry: c.Lock.Retry,
		Releases: lock.NewReleases(), Log: watch.log,
		Issue: sqllock.NewTokens(clients.DB, clients.Dialect).Issue,
	}, nil
}

const (
	// longestClaim is how long a consumer may hold orders before another takes them over, unless lock.ttl is
	// shorter: both say how long a replica that has stopped is waited for.
	longestClaim = 5 * time.Second
	// shortestClaim leaves a batch that waits for a busy database to its consumer.
	shortestClaim = time.Second
	// minRemembered is how long Redis knows a request id after the ledger has its order: longer than
	// clients repeat a request, and short enough to bound the memory of a sale.
	minRemembered = time.Minute
)

// redisStockOptions is how redis-stock sells. Its partitions and batches are the defaults of the package: all replicas
// must have the same partitions, and the rest is measured once and not for each shop.
func redisStockOptions(c config.Config, log *slog.Logger, tracer trace.Tracer) redisstock.Options {
	return redisstock.Options{
		Prefix:     c.Prefix,
		ClaimAfter: max(shortestClaim, min(c.Lock.TTL, longestClaim)),
		Remember:   max(minRemembered, 2*c.Deduct.Timeout),
		Tracer:     tracer,
		Log:        log,
	}
}

// openRoom is the waiting room; nil where no item has one.
func openRoom(c config.Config, clients *backend.Clients, inventory *service.Inventory) *room.Room {
	q := c.Queue
	if len(q.Items) == 0 {
		return nil
	}
	return room.New(clients.Redis, room.Options{
		Prefix: clients.KeyPrefix(), All: q.All(), Items: q.IDs(), Rate: q.Rate, Share: q.Share, Admission: q.Admission, Away: q.Away,
		Secret: []byte(q.Secret.Reveal()), Goods: inventory.Goods,
	})
}

// lockSlice is how long a SQL lock waits in the database at a time: in between it checks
// that its request still waits.
const lockSlice = time.Second

func lockClients(c config.Config, o backend.SQLOptions) (*backend.Clients, error) {
	o.MaxOpen, o.LockWait = c.Lock.Connections, lockSlice
	redis, redisErr := encryption("redis", c.Redis.TLS)
	redlock, redlockErr := encryption("redlock", c.Redlock.TLS)
	zookeeper, zookeeperErr := encryption("zookeeper", c.ZooKeeper.TLS)
	etcd, etcdErr := encryption("etcd", c.Etcd.TLS)
	if err := errors.Join(redisErr, redlockErr, zookeeperErr, etcdErr); err != nil {
		return nil, err
	}
	return backend.Connect(backend.Options{
		Prefix: c.Prefix,
		Redis: backend.RedisOptions{
			Addresses: c.Redis.Addresses, Username: c.Redis.Username, Password: c.Redis.Password.Reveal(), TLS: redis,
			SentinelUsername: c.Redis.SentinelUsername, SentinelPassword: c.Redis.SentinelPassword.Reveal(),
			DB: c.Redis.DB, Master: c.Redis.Master, Cluster: c.Redis.Cluster, Replica: c.Replica,
			Timeout: c.Redis.Timeout, PoolSize: c.Redis.MaxOpen,
		},
		Redlock: backend.RedisOptions{
			Addresses: c.Redlock.Addresses, Username: c.Redlock.Username, Password: c.Redlock.Password.Reveal(), TLS: redlock,
			Replica: c.Replica, Timeout: c.Redis.Timeout, PoolSize: c.Redis.MaxOpen,
		},
		ZooKeeper: backend.ZooKeeperOptions{
			Servers: c.ZooKeeper.Addresses, SessionTimeout: c.Lock.TTL, DialTimeout: time.Second, Auth: c.ZooKeeper.Auth.Reveal(), TLS: zookeeper,
		},
		Etcd: backend.EtcdOptions{
			Endpoints: c.Etcd.Endpoints, Username: c.Etcd.Username, Password: c.Etcd.Password.Reveal(), TLS: etcd, DialTimeout: time.Second,
		},
		SQL: o,
	})
}

// firstPing bounds the pings at the start.
const firstPing = 5 * time.Second

// pingAll pings every configured backend, and logs why one does not answer, or rejects writes: a wrong
// certificate or password shows at the start, and not at the first purchase, whose
// client is only answered that the backend is unavailable.
func pingAll(ctx context.Context, store *repo.Store, clients *backend.Clients, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithTimeout(ctx, firstPing)
	var pings sync.WaitGroup
	ask := func(b string, ping func() error) {
		pings.Go(func() {
			err := ping()
			switch {
			case err == nil, errors.Is(err, backend.ErrNotConfigured), errors.Is(ctx.Err(), context.Canceled):
			case errors.Is(err, stock.ErrWritesRejected):
				log.WarnContext(ctx, "backend rejects writes", "backend", b, "error", err)
			default:
				log.WarnContext(ctx, "backend does not answer", "backend", b, "error", err)
			}
		})
	}
	ask(store.Dialect(), func() error { return store.Writable(ctx) })
	for _, b := range backend.LockServers() {
		ask(string(b), func() error { return clients.Ping(ctx, b) })
	}
	return func() {
		cancel()
		pings.Wait()
	}
}
