package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

// Contender acquires locks as one replica does, on its own connections and without
// a stock. Its leases are recorded.
type Contender struct {
	Name string
	// TTL is that of its locks, Retry their pause between two tries.
	TTL, Retry time.Duration
	// Timeout is for how long a ZooKeeper, or one of several masters, may be silent.
	Timeout time.Duration
	// Now is the clock of locks that write times; nil: time.Now.
	Now func() time.Time

	try     *Try
	clients *backend.Clients
	record  *failpoint.Registry
	lockers map[string]lock.Locker
	closers []func() error
}

// The limits of a contender where a part does not say otherwise.
const (
	contenderTTL     = 2 * time.Second
	contenderRetry   = 10 * time.Millisecond
	contenderTimeout = time.Second
	contenderPool    = 8
)

// Contend makes a contender with connections to what a lock needs. It ends with the try.
func (x *Try) Contend(name string, needs ...Need) *Contender {
	record, err := failpoint.Open(failpoint.Options{Replica: name, Writer: x.History, Log: slog.New(slog.DiscardHandler)})
	x.Must(err)
	c := &Contender{
		Name: name, TTL: contenderTTL, Retry: contenderRetry, Timeout: contenderTimeout,
		try: x, clients: &backend.Clients{}, record: record, lockers: make(map[string]lock.Locker),
	}
	x.Later(c.close)
	for _, need := range needs {
		c.Connect(need)
	}
	return c
}

// Connect has the contender go to a backend of the run.
func (c *Contender) Connect(need Need) {
	b, err := c.try.Backends, error(nil)
	switch need {
	case MySQL:
		c.clients.DB, c.clients.Dialect, err = b.Database.Pool(contenderPool, contenderTimeout)
	case Redis:
		c.UseRedis(redisOptions(b.Redis.Address, b.Redis.Password))
	case Redlock:
		for _, node := range b.Redlock.Nodes {
			c.UseMasters([]string{node.Address}, node.Password)
		}
	case ZooKeeper:
		c.UseZooKeeper(b.ZooKeeper.Address, c.TTL)
	case Etcd:
		c.UseEtcd(b.Etcd, b.Etcd.Endpoint)
	}
	c.try.Must(err)
}

// UseEtcd has the contender go to this server at an address.
func (c *Contender) UseEtcd(e *servers.Etcd, endpoint string) {
	var err error
	c.clients.Etcd, err = backend.NewEtcd(backend.EtcdOptions{
		Endpoints: []string{endpoint}, Username: servers.EtcdUser, Password: e.Password, DialTimeout: contenderTimeout,
	})
	c.try.Must(err)
}

// UseRedis has the contender go to this server.
func (c *Contender) UseRedis(o backend.RedisOptions) {
	o.PoolSize = contenderPool
	c.clients.RedisOptions, c.clients.Redis = o, backend.NewRedis(o)
}

// UseMasters has the contender ask these masters, and returns its connections.
func (c *Contender) UseMasters(addresses []string, password string) []redis.UniversalClient {
	for _, address := range addresses {
		o := redisOptions(address, password)
		o.Timeout = c.Timeout
		c.clients.Redlock = append(c.clients.Redlock, backend.NewRedis(o))
	}
	return c.clients.Redlock
}

func redisOptions(address, password string) backend.RedisOptions {
	return backend.RedisOptions{Addresses: []string{address}, Password: password, Timeout: contenderTimeout, PoolSize: contenderPool}
}

// UseZooKeeper has the contender go to this server, with sessions that last for so
// long when it is silent.
func (c *Contender) UseZooKeeper(address string, session time.Duration) {
	c.clients.ZooKeeper = backend.NewZooKeeper(backend.ZooKeeperOptions{
		Servers: []string{address}, SessionTimeout: session, DialTimeout: c.Timeout,
	})
}

// Locker is a lock of the registry, or one of the sources.
func (c *Contender) Locker(kind string) lock.Locker {
	if c.lockers[kind] != nil {
		return c.lockers[kind]
	}
	all := append(registry.Locks(), sourcelock.Registry()...)
	at := slices.IndexFunc(all, func(e lock.Entry) bool { return e.Name == kind })
	if at < 0 {
		c.try.Must(fmt.Errorf("%q is not a lock", kind))
	}
	c.lockers[kind] = c.Record(kind, all[at].New(lock.Deps{Clients: c.clients, TTL: c.TTL, Retry: c.Retry, Now: c.Now}))
	return c.lockers[kind]
}

// Unrecorded is a lock whose leases are not written down.
func (c *Contender) Unrecorded(kind string) lock.Locker {
	if recorded, ok := c.Locker(kind).(interface{ Unwrap() lock.Locker }); ok {
		return recorded.Unwrap()
	}
	return c.Locker(kind)
}

// Warm has a lock of the registry taken once under a name of its own, so that
// no measurement includes the cost of connecting. It is not recorded.
func (c *Contender) Warm(kind string) {
	ctx, cancel := context.WithTimeout(c.try, warmWithin)
	defer cancel()
	lease, err := c.Unrecorded(kind).Acquire(ctx, "lab/warm/"+c.Name)
	if err != nil {
		err = fmt.Errorf("warm up %s: %w", c.Name, err)
	} else {
		err = lease.Release(ctx)
	}
	c.try.Must(err)
}

// warmWithin bounds the first connection on a machine that is busy.
const warmWithin = 20 * time.Second

// Record has the leases of any lock written down as this contender's, and closes
// it with the try where it is an io.Closer.
func (c *Contender) Record(kind string, locker lock.Locker) lock.Locker {
	if closer, ok := locker.(io.Closer); ok {
		c.closers = append(c.closers, closer.Close)
	}
	return c.record.Record(kind, locker)
}

func (c *Contender) close() error {
	var err error
	for _, do := range append(c.closers, c.clients.Close, c.record.Close) {
		err = errors.Join(err, do())
	}
	return err
}
