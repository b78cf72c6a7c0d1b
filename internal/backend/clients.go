// Package backend makes every connection to a server: limited in time, named, prefixed,
// secured, and pinged. Redis knows a connection by its client name, and MySQL by its attribute
// program_name; ZooKeeper, etcd and SQLite have no names for connections.
package backend

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Name names a server, or a number of servers, that locks are kept in.
type Name string

// The backends.
const (
	Database  Name = "database"  // any SQL database of stockd
	MySQL     Name = "mysql"     // one with row locks and named locks: MySQL or MariaDB
	Redis     Name = "redis"     // one Redis, a Sentinel's master, or a cluster
	Redlock   Name = "redlock"   // several independent masters
	ZooKeeper Name = "zookeeper" // an ensemble
	Etcd      Name = "etcd"      // a cluster
)

// LockServers lists those that are not the stock's own database.
func LockServers() []Name { return []Name{Redis, Redlock, ZooKeeper, Etcd} }

// ErrNotConfigured tells that no address of a backend was given.
var ErrNotConfigured = errors.New("not configured")

// Clients are the connections of one replica, shared by its locks. What is nil
// is not configured. None of them waits for its server before it is used, and
// each finds its server again by itself.
type Clients struct {
	// Prefix begins every key in Redis, ZooKeeper and etcd. Two installations that share
	// servers have different ones. Letters, digits, and . _ - between them. Empty: "stockd".
	Prefix string

	// DB is the locks' own small pool, so that waiters for a lock never take a connection from
	// the purchases. Dialect is "mysql" or "sqlite".
	DB      *sql.DB
	Dialect string

	Redis redis.UniversalClient
	// RedisOptions are those of Redis, for AnotherRedis.
	RedisOptions RedisOptions
	Redlock      []redis.UniversalClient
	ZooKeeper    *ZooKeeperClient
	Etcd         *clientv3.Client
}

// Options say how to reach the servers of a replica. What has no address, or no driver, is not configured.
type Options struct {
	Prefix string
	// Redlock are as many masters as it has addresses.
	Redis, Redlock RedisOptions
	ZooKeeper      ZooKeeperOptions
	Etcd           EtcdOptions
	SQL            SQLOptions
}

// Connect makes the clients of a replica.
func Connect(o Options) (c *Clients, err error) {
	c = &Clients{Prefix: o.Prefix, RedisOptions: o.Redis}
	if len(o.Redis.Addresses) > 0 {
		c.Redis = NewRedis(o.Redis)
	}
	for i := range o.Redlock.Addresses {
		master := o.Redlock
		master.Addresses = master.Addresses[i : i+1]
		c.Redlock = append(c.Redlock, NewRedis(master))
	}
	if len(o.ZooKeeper.Servers) > 0 {
		c.ZooKeeper = NewZooKeeper(o.ZooKeeper)
	}
	if len(o.Etcd.Endpoints) > 0 {
		c.Etcd, err = NewEtcd(o.Etcd)
	}
	if err == nil && o.SQL.Driver != "" {
		c.DB, c.Dialect, err = OpenPool(o.SQL)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// KeyPrefix is Prefix, or its default.
func (c *Clients) KeyPrefix() string {
	if c == nil || c.Prefix == "" {
		return program
	}
	return c.Prefix
}

// AnotherRedis is one more client of Redis, for commands that block: they would occupy the shared
// connections. The caller closes it.
func (c *Clients) AnotherRedis(connections int) redis.UniversalClient {
	o := c.RedisOptions
	o.PoolSize = connections
	return NewRedis(o)
}

// Has returns nil where a backend is configured, and otherwise an error that is
// a *stock.BackendError and ErrNotConfigured.
func (c *Clients) Has(b Name) error {
	if c.pings(b) != nil {
		return nil
	}
	err := ErrNotConfigured
	if b == MySQL && c != nil && c.DB != nil {
		err = fmt.Errorf("%w: %s has neither row locks nor named locks", ErrNotConfigured, c.Dialect)
	}
	return Failure(b, err)
}

// HasAll returns what Has returns of the first backend that is not configured.
func (c *Clients) HasAll(list []Name) error {
	for _, b := range list {
		if err := c.Has(b); err != nil {
			return err
		}
	}
	return nil
}

// Ping asks a server of locks whether it takes writes, by one that changes nothing: a server that is read-only,
// full, or lacks replicas answers reads. The database is asked for a sign of life; repo.Store.Writable asks for
// more. The error is a *stock.BackendError; it is ErrNotConfigured where no address is configured.
func (c *Clients) Ping(ctx context.Context, b Name) error {
	if err := c.Has(b); err != nil {
		return err
	}
	if err := c.pings(b)(ctx); err != nil {
		return Failure(b, err)
	}
	return nil
}

// pings is what Ping asks a backend, nil where none is configured.
func (c *Clients) pings(b Name) func(context.Context) error {
	prefix := c.KeyPrefix()
	switch {
	case c == nil:
	case b == Database && c.DB != nil, b == MySQL && c.DB != nil && c.Dialect == string(MySQL):
		return c.DB.PingContext
	case b == Redis && c.Redis != nil:
		return func(ctx context.Context) error { return pingRedis(ctx, c.Redis, prefix) }
	case b == Redlock && len(c.Redlock) > 0:
		return func(ctx context.Context) error { return pingMajority(ctx, c.Redlock, prefix) }
	case b == ZooKeeper && c.ZooKeeper != nil:
		return func(ctx context.Context) error { return c.ZooKeeper.ping(ctx, "/"+prefix) }
	case b == Etcd && c.Etcd != nil:
		return func(ctx context.Context) error { return pingEtcd(ctx, c.Etcd, prefix+"/ping") }
	}
	return nil
}

// pingRedis sets a key only where it is there, and it never is. The server looks before that at its memory,
// its replicas and the rights of the user.
func pingRedis(ctx context.Context, client redis.UniversalClient, prefix string) error {
	err := client.SetXX(ctx, prefix+":ping", "", time.Second).Err()
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// pingMajority asks all nodes at once: more than half of them must take writes.
func pingMajority(ctx context.Context, nodes []redis.UniversalClient, prefix string) error {
	answers := make(chan error, len(nodes))
	for _, node := range nodes {
		go func() { answers <- pingRedis(ctx, node, prefix) }()
	}
	var errs []error
	for range nodes {
		if err := <-answers; err != nil {
			errs = append(errs, err)
		}
	}
	if up := len(nodes) - len(errs); up <= len(nodes)/2 {
		return fmt.Errorf("%d of %d nodes take writes, and more than half are needed: %w", up, len(nodes), errors.Join(errs...))
	}
	return nil
}

// Close ends the connections.
func (c *Clients) Close() error {
	var errs []error
	if c.DB != nil {
		errs = append(errs, c.DB.Close())
	}
	if c.Redis != nil {
		errs = append(errs, HangUp(c.Redis))
	}
	for _, node := range c.Redlock {
		errs = append(errs, HangUp(node))
	}
	if c.ZooKeeper != nil {
		c.ZooKeeper.Close()
	}
	if c.Etcd != nil {
		errs = append(errs, c.Etcd.Close())
	}
	return errors.Join(errs...)
}

// HangUp closes a client. A server that closed the connection first, as one does that rejects the
// client's certificate, is no failure.
func HangUp(client io.Closer) error {
	err := client.Close()
	if _, gone := errors.AsType[*net.OpError](err); gone {
		return nil
	}
	return err
}

// AnswerWithin is how long after the end of a wait the backend's answer to a
// question that was asked before is still awaited.
const AnswerWithin = 250 * time.Millisecond

// Uncut is a context for one round trip during a wait. It outlasts the end of the wait: an
// answer that no one received may have been a grant, and a hung backend must not look like
// lock contention.
func Uncut(ctx context.Context) (context.Context, context.CancelFunc) {
	own := context.WithoutCancel(ctx)
	deadline, limited := ctx.Deadline()
	if !limited {
		return own, func() {}
	}
	if now := time.Now(); deadline.Before(now) {
		deadline = now
	}
	return context.WithDeadline(own, deadline.Add(AnswerWithin))
}

// Outlasting is a context for one round trip that ends AnswerWithin after ctx does, however that ends, and no later than
// end: an answer that is on its way may be that to a commit, which a client that hangs up must not make unknown.
func Outlasting(ctx context.Context, end time.Time) (context.Context, context.CancelFunc) {
	own, cancel := context.WithDeadline(context.WithoutCancel(ctx), end)
	unlink := context.AfterFunc(ctx, func() {
		grace := time.AfterFunc(AnswerWithin, cancel)
		context.AfterFunc(own, func() { grace.Stop() })
	})
	return own, func() {
		unlink()
		cancel()
	}
}

// ErrUnanswered marks a request that was sent and not answered in time. The server may
// still execute it.
var ErrUnanswered = errors.New("no answer in time")
