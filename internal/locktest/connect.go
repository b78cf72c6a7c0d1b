package locktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
)

// addresses are where the servers of a backend are: all that another process
// needs to connect as this one does.
type addresses struct {
	// Redis is one server; or Sentinels, which know the master under a name and have a
	// password of their own; or the nodes of a cluster.
	Redis            []string `json:"redis"`
	Master           string   `json:"master"`
	SentinelPassword string   `json:"sentinel_password"`
	Cluster          bool     `json:"cluster"`

	Redlock   []string `json:"redlock"`
	ZooKeeper []string `json:"zookeeper"`
	Etcd      []string `json:"etcd"`
	// Driver and DSN are those of a database: the locks' own, or for Redlock the
	// one that issues its tokens.
	Driver string `json:"driver"`
	DSN    string `json:"dsn"`
	// User is that of Redis or etcd, and Password that of the servers above.
	User     string `json:"user"`
	Password string `json:"password"`
	// Auth is that of ZooKeeper, to whose holder every node belongs.
	Auth string `json:"auth"`
	// Prefix is that of the installation; empty is the default.
	Prefix string `json:"prefix"`
	// TTL is a short one that the backend still counts exactly.
	TTL time.Duration `json:"ttl"`
}

// The limits of the clients: short enough for a test, long enough for a busy
// machine.
const (
	answerWithin = time.Second
	connections  = 16
	retry        = 10 * time.Millisecond
)

func (a addresses) connect() (*backend.Clients, error) {
	c := &backend.Clients{Prefix: a.Prefix}
	if len(a.Redis) > 0 {
		c.Redis = a.redis(a.Redis...)
	}
	for _, node := range a.Redlock {
		c.Redlock = append(c.Redlock, a.redis(node))
	}
	if len(a.ZooKeeper) > 0 {
		c.ZooKeeper = backend.NewZooKeeper(backend.ZooKeeperOptions{
			Servers: a.ZooKeeper, SessionTimeout: a.TTL, DialTimeout: answerWithin, Auth: a.Auth,
		})
	}
	var err error
	if len(a.Etcd) > 0 {
		c.Etcd, err = backend.NewEtcd(backend.EtcdOptions{Endpoints: a.Etcd, Username: a.User, Password: a.Password, DialTimeout: answerWithin})
	}
	if err == nil && a.Driver != "" {
		c.DB, c.Dialect, err = backend.OpenPool(backend.SQLOptions{
			Driver: a.Driver, DSN: a.DSN, Password: a.Password,
			MaxOpen: connections, LockWait: time.Second, ConnectTimeout: answerWithin,
		})
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect: %w", err), c.Close())
	}
	return c, nil
}

// redis makes a client of one server, or of those that Sentinels or a cluster name.
func (a addresses) redis(of ...string) redis.UniversalClient {
	return backend.NewRedis(backend.RedisOptions{
		Addresses: of, Username: a.User, Password: a.Password, Cluster: a.Cluster, Master: a.Master, SentinelPassword: a.SentinelPassword,
		Timeout: answerWithin, PoolSize: connections,
	})
}

// replica is one replica of stockd: its clients, and the lock made of them.
type replica struct {
	lock.Locker
	clients *backend.Clients
	deps    lock.Deps
}

// open makes a replica. floor may be nil.
func (a addresses) open(entry lock.Entry, floor func(context.Context, string) (uint64, error)) (*replica, error) {
	clients, err := a.connect()
	if err != nil {
		return nil, err
	}
	deps := lock.Deps{Clients: clients, TTL: a.TTL, Retry: retry, Floor: floor, Releases: lock.NewReleases(), Log: slog.New(slog.DiscardHandler)}
	if clients.DB != nil {
		deps.Issue = sqllock.NewTokens(clients.DB, clients.Dialect).Issue
	}
	return &replica{Locker: entry.New(deps), clients: clients, deps: deps}, nil
}

// connected returns the replica when its backends have answered it, and each of its independent
// masters: a request has a second for its answer, and a master half of one to vote, in which a busy
// machine does not also connect, and log in.
func (r *replica) connected(t *testing.T) *replica {
	t.Helper()
	for _, b := range []backend.Name{backend.Redis, backend.ZooKeeper, backend.Etcd, backend.Database} {
		if r.clients.Has(b) == nil {
			labtest.AwaitAnswer(t, string(b), patience, func() error { return r.clients.Ping(t.Context(), b) })
		}
	}
	for i, master := range r.clients.Redlock {
		labtest.AwaitAnswer(t, fmt.Sprintf("master %d", i+1), patience, func() error { return master.Ping(t.Context()).Err() })
	}
	return r
}

// Close closes the lock and then what it was made of, as a replica does.
func (r *replica) Close() error {
	var err error
	if closer, ok := r.Locker.(io.Closer); ok {
		err = closer.Close()
	}
	return errors.Join(err, r.deps.Close())
}

// served reports whether the backend is a server, and not a file.
func (a addresses) served() bool { return a.Driver != repo.SQLite || len(a.Redlock) > 0 }

func (a addresses) each(t *testing.T, instead func(address string) string) addresses {
	t.Helper()
	all := func(from []string) (to []string) {
		for _, address := range from {
			scheme, host, ok := strings.Cut(address, "://")
			if ok {
				to = append(to, scheme+"://"+instead(host))
			} else {
				to = append(to, instead(address))
			}
		}
		return to
	}
	a.Redis, a.Redlock, a.ZooKeeper, a.Etcd = all(a.Redis), all(a.Redlock), all(a.ZooKeeper), all(a.Etcd)
	if a.Driver == repo.MySQL {
		c := must.Get(mysql.ParseDSN(a.DSN))(t)
		c.Addr = instead(c.Addr)
		a.DSN = c.FormatDSN()
	}
	return a
}

func (a addresses) through(t *testing.T) (fronts addresses, cuts proxies) {
	t.Helper()
	fronts = a.each(t, func(target string) string {
		proxy := labtest.NewProxy(t, target)
		cuts = append(cuts, proxy)
		return proxy.Address
	})
	return fronts, cuts
}

// proxies stand between one replica and its servers.
type proxies []*servers.Proxy

// silence makes the servers accept requests and not answer, or ends that.
func (p proxies) silence(silent bool) {
	for _, one := range p {
		one.Hang(silent)
	}
}

// freeze keeps all bytes from the servers, and from their clients.
func (p proxies) freeze() {
	for _, one := range p {
		one.Freeze()
	}
}

func (p proxies) thaw() {
	for _, one := range p {
		one.Thaw()
	}
}

func (p proxies) cut() {
	for _, one := range p {
		one.Cut()
	}
}

// lose ends the connection to each server at the n-th request with these bytes, before or
// after the server gets it.
func (p proxies) lose(n int, sent string, deliver bool) (armed triggers) {
	for _, one := range p {
		armed = append(armed, labtest.LoseNth(one, n, sent, deliver))
	}
	return armed
}

func (p proxies) arm(rule servers.Rule) (armed triggers) {
	for _, one := range p {
		armed = append(armed, one.Arm(rule))
	}
	return armed
}

// triggers are rules that were armed.
type triggers []*servers.Trigger

// seen is the number of matching requests at the server that had most of them.
func (p triggers) seen() (n int) {
	for _, one := range p {
		n = max(n, one.Seen())
	}
	return n
}

// await waits until a request has met its rule at one of the servers.
func (p triggers) await(t *testing.T) {
	t.Helper()
	met := func(one *servers.Trigger) bool {
		select {
		case <-one.Reached():
			return true
		default:
			return false
		}
	}
	labtest.Await(t, "the request that is to be held", patience, func() bool { return slices.ContainsFunc(p, met) })
}

// disarm ends that, and reports whether a connection was ended.
func (p triggers) disarm() (met bool) {
	for _, one := range p {
		met = one.Disarm() || met
	}
	return met
}
