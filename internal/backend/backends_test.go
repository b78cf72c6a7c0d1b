package backend_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/stock"
)

// all are the backends: one that is added has no case in connect, and fails.
func all() []backend.Name { return append(backend.LockServers(), backend.MySQL) }

// connect makes the clients of one backend behind proxies.
func connect(t *testing.T, b backend.Name) (*backend.Clients, []*servers.Proxy) {
	t.Helper()
	var ways []*servers.Proxy
	behind := func(address string) string {
		way := labtest.NewProxy(t, address)
		ways = append(ways, way)
		return way.Address
	}
	client := func(r *servers.Redis) redis.UniversalClient {
		o := labtest.RedisOptions(r)
		o.Addresses = []string{behind(r.Address)}
		return backend.NewRedis(o)
	}
	c := new(backend.Clients)
	var err error
	switch b {
	case backend.Redis:
		c.Redis = client(lab.Redis(t))
	case backend.Redlock:
		for _, node := range lab.Redlock(t).Nodes {
			c.Redlock = append(c.Redlock, client(node))
		}
	case backend.ZooKeeper:
		c.ZooKeeper = backend.NewZooKeeper(backend.ZooKeeperOptions{
			Servers: []string{behind(lab.ZooKeeper(t).Address)}, SessionTimeout: labtest.LockTTL, DialTimeout: time.Second,
		})
	case backend.Etcd:
		endpoint := strings.TrimPrefix(lab.Etcd(t).Endpoint, "http://")
		c.Etcd, err = backend.NewEtcd(backend.EtcdOptions{Endpoints: []string{behind(endpoint)}, DialTimeout: time.Second})
	case backend.MySQL, backend.Database:
		through, way := labtest.Through(t, lab.Database(t, servers.MariaDB))
		ways = append(ways, way)
		c.DB, c.Dialect, err = backend.OpenPool(backend.SQLOptions{
			Driver: through.Driver, DSN: through.DSN, Password: through.Password,
			LockWait: time.Second, ConnectTimeout: time.Second,
		})
	default:
		t.Fatalf("no case for the backend %q", b)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the server may be unresponsive
	return c, ways
}

// A server that accepts connections and answers nothing fails a ping in time, by name, and
// answers again when it is back.
func TestAPingOfAHungServerFailsInTime(t *testing.T) {
	const limit, late = time.Second, 2 * time.Second
	for _, b := range all() {
		t.Run(string(b), func(t *testing.T) {
			c, ways := connect(t, b)
			ping := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				return c.Ping(ctx, b)
			}
			if err := ping(); err != nil {
				t.Fatalf("ping: %v", err)
			}
			for _, way := range ways {
				way.Mute(true)
			}
			start := time.Now()
			err := ping()
			if took := time.Since(start); took > limit+late {
				t.Errorf("the ping of a hung server took %s, want at most %s", took, limit)
			}
			if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != string(b) {
				t.Errorf("the ping of a hung server fails with %v, want a *stock.BackendError of %s", err, b)
			}
			for _, way := range ways {
				way.Mute(false)
			}
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
				if err = ping(); err == nil {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("ping after the server is back: %v", err)
				}
			}
		})
	}
}

func TestAPingOfWhatIsNotConfiguredSaysSo(t *testing.T) {
	for _, b := range all() {
		err := new(backend.Clients).Ping(t.Context(), b)
		if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != string(b) || !errors.Is(err, backend.ErrNotConfigured) {
			t.Errorf("%s: %v, want a *stock.BackendError that is %v", b, err, backend.ErrNotConfigured)
		}
	}
}

// Two installations on the same servers, with different prefixes, hold the same name at
// the same time.
func TestInstallationsWithDifferentPrefixesDoNotMeet(t *testing.T) {
	for _, entry := range registry.Locks() {
		if !slices.Contains(backend.LockServers(), entry.Needs[0]) {
			continue // a database is an installation's own
		}
		t.Run(entry.Name, func(t *testing.T) {
			d := lab.Database(t, servers.SQLite)
			labtest.Open(t, d, "r") // brings the schema up to date
			for _, prefix := range []string{"one", "two", "one.2"} {
				deps := lab.Locks(t, d, entry.Needs[0])
				deps.Prefix, deps.TTL = prefix, time.Minute // longer than any wait here
				holds(t, entry.New(deps), prefix)
			}
		})
	}
}

// holds takes a name until the test ends.
func holds(t *testing.T, l lock.Locker, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	lease, err := l.Acquire(ctx, "shared")
	if err != nil {
		t.Fatalf("prefix %s: %v", prefix, err)
	}
	t.Cleanup(func() {
		_ = lease.Release(context.Background()) // its TTL may be over
		if closer, ok := l.(interface{ Close() error }); ok {
			_ = closer.Close() // the test is over
		}
	})
}
