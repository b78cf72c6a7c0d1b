package backend_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

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
				running, to := start(t, b, s)
				c := connect(t, to, s)
				awaitPing(t, c, b)
				pause(t, running)
				begun := time.Now()
				err := ping(t, c, b)
				if took := time.Since(begun); took > answerWithin+late {
					t.Errorf("the ping of a paused server took %s, want at most %s", took, answerWithin)
				}
				assertNames(t, err, b)
				if err := ping(t, connect(t, to, s), b); err == nil {
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

// start starts the servers of a backend for one test.
func start(t *testing.T, b backend.Name, s *servers.Security) (running []server, to servers.Conn) {
	t.Helper()
	k := lab.Supervisor()
	switch b {
	case backend.Redis:
		one := labtest.Own(t, k, "redis", servers.StartSecureRedis, s)
		return []server{one}, one.Conn()
	case backend.Redlock:
		five := labtest.Own(t, k, "redis", servers.StartRedlockWith, servers.RedlockOptions{Security: s})
		for _, node := range five.Nodes {
			running = append(running, node)
		}
		return running, five.Conn()
	case backend.ZooKeeper:
		one := labtest.Own(t, k, "zookeeper", servers.StartSecureZooKeeper, s)
		return []server{one}, one.Conn()
	case backend.Etcd:
		one := labtest.Own(t, k, "etcd", servers.StartSecureEtcd, s)
		return []server{one}, one.Conn()
	case backend.MySQL:
		one := labtest.Own(t, k, "mariadb", servers.StartDatabase, servers.Choice{Mode: servers.Local, Database: servers.MariaDB, Security: s})
		return []server{one}, servers.Conn{Database: *one}
	default:
		t.Fatalf("no case for the backend %q", b)
		return nil, to
	}
}

// connect has a client's certificate where there is security.
func connect(t *testing.T, to servers.Conn, s *servers.Security) *backend.Clients {
	t.Helper()
	o := backend.Options{Redis: to.Redis, Redlock: to.Redlock, ZooKeeper: to.ZooKeeper, Etcd: to.Etcd, SQL: backend.SQLOptions{
		Driver: to.Database.Driver, DSN: to.Database.DSN, Password: to.Database.Password, LockWait: answerWithin, ConnectTimeout: answerWithin,
	}}
	o.Redis.Timeout, o.Redlock.Timeout, o.ZooKeeper.DialTimeout, o.Etcd.DialTimeout = answerWithin, answerWithin, answerWithin, answerWithin
	o.Redis.PoolSize, o.Redlock.PoolSize, o.ZooKeeper.SessionTimeout = 2, 2, labtest.LockTTL
	encryption := must.Get(s.ClientConfig())(t)
	o.Redis.TLS, o.Redlock.TLS, o.ZooKeeper.TLS, o.Etcd.TLS, o.SQL.TLS = encryption, encryption, encryption, encryption, encryption
	c := must.Get(backend.Connect(o))(t)
	t.Cleanup(func() { _ = c.Close() }) // the server may be unresponsive
	return c
}

func newSecurity(t *testing.T) *servers.Security {
	t.Helper()
	authority := must.Get(servers.NewAuthority(lab.Supervisor().Folder()))(t)
	return must.Get(servers.NewSecurity(authority, true))(t)
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
