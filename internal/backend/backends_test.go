package backend_test

import (
	"context"
	"crypto/tls"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// all are the backends: one that is added has no servers in start, and fails.
func all() []backend.Name { return append(backend.LockServers(), backend.MySQL) }

// answerWithin bounds connections and round trips in these tests.
const answerWithin = time.Second

// A paused server, whose kernel accepts connections that no process answers, fails a ping
// in time, by name, and answers again when it is resumed; over TLS, too.
func TestAPingOfAPausedServerFailsInTime(t *testing.T) {
	const late = 2 * time.Second
	security := newSecurity(t)
	for _, b := range all() {
		for name, s := range map[string]*servers.Security{"plain": nil, "TLS": security} {
			t.Run(string(b)+"/"+name, func(t *testing.T) {
				t.Parallel() // it waits for a server that does not answer
				running, connect := start(t, b, s)
				c := connect(t, encryption(t, s))
				awaitPing(t, c, b)
				pause(t, running)
				begun := time.Now()
				err := ping(t, c, b)
				if took := time.Since(begun); took > answerWithin+late {
					t.Errorf("the ping of a paused server took %s, want at most %s", took, answerWithin)
				}
				assertNames(t, err, b)
				if err := ping(t, connect(t, encryption(t, s)), b); err == nil {
					t.Error("a new client's ping of a paused server succeeds")
				}
				resume(t, running)
				awaitPing(t, c, b)
			})
		}
	}
}

// awaitPing waits until a server answers: on a busy machine a first connection may take
// longer than an answer may.
func awaitPing(t *testing.T, c *backend.Clients, b backend.Name) {
	t.Helper()
	var err error
	if !labtest.Eventually(20*time.Second, func() bool { err = ping(t, c, b); return err == nil }) {
		t.Fatalf("ping: %v", err)
	}
}

// Redis lists the connections of a replica by its name. Names have no blanks there.
func TestRedisListsConnectionsByReplica(t *testing.T) {
	o := labtest.RedisOptions(lab.Redis(t))
	o.Replica, o.Username = "shop 1", "" // a replica may not ask that
	client := backend.NewRedis(o)
	defer client.Close() //nolint:errcheck // the test is over
	list, err := client.ClientList(t.Context()).Result()
	if err != nil || !strings.Contains(list, " name=stockd-shop-1 ") {
		t.Errorf("CLIENT LIST: %v, want a connection stockd-shop-1 in\n%s", err, list)
	}
}

func TestAPingOfWhatIsNotConfiguredSaysSo(t *testing.T) {
	for _, b := range all() {
		err := new(backend.Clients).Ping(t.Context(), b)
		assertNames(t, err, b)
		should.Fail(t, err, backend.ErrNotConfigured, b)
	}
}

// server is a process of a backend.
type server interface {
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// connector adds a client to others; without encryption it is a plain one.
type connector func(c *backend.Clients, encryption *tls.Config) error

// start starts the servers of a backend for one test.
func start(t *testing.T, b backend.Name, s *servers.Security) (running []server, connect func(t *testing.T, encryption *tls.Config) *backend.Clients) {
	t.Helper()
	starters := map[backend.Name]func(*testing.T, *servers.Security) ([]server, connector){
		backend.Redis: startRedis, backend.Redlock: startRedlock, backend.ZooKeeper: startZooKeeper,
		backend.Etcd: startEtcd, backend.MySQL: startMariaDB,
	}
	if starters[b] == nil {
		t.Fatalf("no case for the backend %q", b)
	}
	running, add := starters[b](t, s)
	return running, func(t *testing.T, encryption *tls.Config) *backend.Clients {
		t.Helper()
		c := new(backend.Clients)
		must.Do(t, add(c, encryption))
		t.Cleanup(func() { _ = c.Close() }) // the server may be unresponsive
		return c
	}
}

func startRedis(t *testing.T, s *servers.Security) ([]server, connector) {
	t.Helper()
	one := own(t, func(ctx context.Context, k *servers.Supervisor) (*servers.Redis, error) {
		return servers.StartSecureRedis(ctx, k, s)
	})
	return []server{one}, func(c *backend.Clients, encryption *tls.Config) error {
		c.Redis = redisClient(one, encryption)
		return nil
	}
}

func startRedlock(t *testing.T, s *servers.Security) (running []server, connect connector) {
	t.Helper()
	five := own(t, func(ctx context.Context, k *servers.Supervisor) (*servers.Redlock, error) {
		return servers.StartRedlockWith(ctx, k, servers.RedlockOptions{Security: s})
	})
	for _, node := range five.Nodes {
		running = append(running, node)
	}
	return running, func(c *backend.Clients, encryption *tls.Config) error {
		for _, node := range five.Nodes {
			c.Redlock = append(c.Redlock, redisClient(node, encryption))
		}
		return nil
	}
}

func redisClient(r *servers.Redis, encryption *tls.Config) redis.UniversalClient {
	return backend.NewRedis(backend.RedisOptions{
		Addresses: []string{r.Address}, Username: r.Username, Password: r.Password, TLS: encryption,
		Timeout: answerWithin, PoolSize: 2,
	})
}

func startZooKeeper(t *testing.T, s *servers.Security) ([]server, connector) {
	t.Helper()
	one := own(t, func(ctx context.Context, k *servers.Supervisor) (*servers.ZooKeeper, error) {
		return servers.StartSecureZooKeeper(ctx, k, s)
	})
	return []server{one}, func(c *backend.Clients, encryption *tls.Config) error {
		c.ZooKeeper = backend.NewZooKeeper(backend.ZooKeeperOptions{
			Servers: []string{one.Address}, SessionTimeout: labtest.LockTTL, DialTimeout: answerWithin, TLS: encryption,
		})
		return nil
	}
}

func startEtcd(t *testing.T, s *servers.Security) ([]server, connector) {
	t.Helper()
	one := own(t, func(ctx context.Context, k *servers.Supervisor) (*servers.Etcd, error) {
		return servers.StartSecureEtcd(ctx, k, s)
	})
	return []server{one}, func(c *backend.Clients, encryption *tls.Config) (err error) {
		c.Etcd, err = backend.NewEtcd(etcdOptions(one, encryption))
		return err
	}
}

// etcdOptions log in as the server's user. Without TLS the scheme of the endpoint says so, too.
func etcdOptions(e *servers.Etcd, encryption *tls.Config) backend.EtcdOptions {
	o := backend.EtcdOptions{
		Endpoints: []string{e.Endpoint}, Username: servers.EtcdUser, Password: e.Password, TLS: encryption, DialTimeout: answerWithin,
	}
	if encryption == nil {
		o.Endpoints[0] = strings.Replace(e.Endpoint, "https:", "http:", 1)
	}
	return o
}

func startMariaDB(t *testing.T, s *servers.Security) ([]server, connector) {
	t.Helper()
	one := own(t, func(ctx context.Context, k *servers.Supervisor) (*servers.Database, error) {
		return servers.StartDatabase(ctx, k, servers.Choice{Mode: servers.Local, Database: servers.MariaDB, Security: s})
	})
	return []server{one}, func(c *backend.Clients, encryption *tls.Config) (err error) {
		c.DB, c.Dialect, err = backend.OpenPool(backend.SQLOptions{
			Driver: one.Driver, DSN: one.DSN, Password: one.Password, TLS: encryption,
			LockWait: answerWithin, ConnectTimeout: answerWithin,
		})
		return err
	}
}

// own starts a server, which ends with the test.
func own[S interface {
	Close(ctx context.Context) error
}](t *testing.T, start func(context.Context, *servers.Supervisor) (S, error)) S {
	t.Helper()
	s, err := start(t.Context(), lab.Supervisor())
	if missing, ok := errors.AsType[*servers.MissingError](err); ok {
		labtest.Need(t, missing.What, false, missing.How)
	}
	must.Do(t, err)
	t.Cleanup(func() { _ = s.Close(context.Background()) }) // the supervisor ends what is left
	return s
}

func newSecurity(t *testing.T) *servers.Security {
	t.Helper()
	authority := must.Get(servers.NewAuthority(lab.Supervisor().Folder()))(t)
	return must.Get(servers.NewSecurity(authority, true))(t)
}

// encryption is of a client with its certificate; nil where the server has no TLS.
func encryption(t *testing.T, s *servers.Security) *tls.Config {
	t.Helper()
	return must.Get(s.ClientConfig())(t)
}

func ping(t *testing.T, c *backend.Clients, b backend.Name) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), answerWithin)
	defer cancel()
	return c.Ping(ctx, b)
}

// pause stops the processes, at the latest until the test ends.
func pause(t *testing.T, running []server) {
	t.Helper()
	for _, s := range running {
		must.Do(t, s.Pause(t.Context()))
		t.Cleanup(func() { _ = s.Resume(context.Background()) }) // it may run again
	}
}

func resume(t *testing.T, paused []server) {
	t.Helper()
	for _, s := range paused {
		must.Do(t, s.Resume(t.Context()))
	}
}

func assertNames(t *testing.T, err error, b backend.Name) {
	t.Helper()
	if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != string(b) {
		t.Errorf("the error is %v, want a *stock.BackendError of %s", err, b)
	}
}

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }
