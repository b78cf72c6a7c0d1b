package backend_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// configured are clients of every backend, at addresses where no server is: none of them is waited for.
func configured(t *testing.T) *backend.Clients {
	t.Helper()
	const nowhere = "127.0.0.1:1"
	c := &backend.Clients{
		Redis:     backend.NewRedis(backend.RedisOptions{Addresses: []string{nowhere}, Timeout: answerWithin, PoolSize: 1}),
		Redlock:   []redis.UniversalClient{backend.NewRedis(backend.RedisOptions{Addresses: []string{nowhere}, Timeout: answerWithin, PoolSize: 1})},
		ZooKeeper: backend.NewZooKeeper(backend.ZooKeeperOptions{Servers: []string{nowhere}, DialTimeout: 10 * time.Millisecond}),
	}
	var err error
	if c.Etcd, err = backend.NewEtcd(backend.EtcdOptions{Endpoints: []string{nowhere}, DialTimeout: answerWithin}); err != nil {
		t.Fatal(err)
	}
	c.DB, c.Dialect, err = backend.OpenPool(backend.SQLOptions{Driver: string(backend.MySQL), DSN: "root@tcp(" + nowhere + ")/stock", ConnectTimeout: answerWithin})
	must.Do(t, err)
	return c
}

func TestEachBackendIsConfiguredByItsOwnClient(t *testing.T) {
	whole := configured(t)
	t.Cleanup(func() { _ = whole.Close() }) // closed by a test of its own
	every := append(all(), backend.Database)
	should.Do(t, whole.HasAll(every))
	for of, c := range map[backend.Name]*backend.Clients{
		backend.Redis: {Redis: whole.Redis}, backend.Redlock: {Redlock: whole.Redlock}, backend.ZooKeeper: {ZooKeeper: whole.ZooKeeper},
		backend.Etcd: {Etcd: whole.Etcd}, backend.Database: {DB: whole.DB, Dialect: backend.SQLite}, "": nil,
	} {
		for _, b := range append(every, "nothing") {
			if err := c.Has(b); (err == nil) != (b == of) || err != nil && !errors.Is(err, backend.ErrNotConfigured) {
				t.Errorf("with a client of %q, %s is configured: %v", of, b, err)
			} else if err != nil {
				assertNames(t, err, b)
			}
			if err := c.HasAll([]backend.Name{of, b}); of != "" && (err == nil) != (b == of) {
				t.Errorf("with a client of %q, it and %s are configured: %v", of, b, err)
			}
		}
	}
	file := &backend.Clients{DB: whole.DB, Dialect: backend.SQLite}
	if err := file.Has(backend.MySQL); err == nil || !strings.Contains(err.Error(), "sqlite has neither") {
		t.Errorf("the locks of MySQL in a file: %v, want why they are not to be had", err)
	}
}

func TestKeysBeginWithThePrefixOfTheInstallation(t *testing.T) {
	var none *backend.Clients
	for want, c := range map[string]*backend.Clients{"stockd": none, "shop": {Prefix: "shop"}} {
		should.Be(t, c.KeyPrefix(), want, "keys begin")
	}
	should.Be(t, new(backend.Clients).KeyPrefix(), "stockd", "without a prefix keys begin")
}

// Close closes each client, and returns the failure of any.
func TestNoConnectionOutlivesItsClients(t *testing.T) {
	c := configured(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_ = c.Ping(ctx, backend.ZooKeeper) // begins its session
	must.Do(t, c.Close())
	for b, closed := range map[backend.Name]error{
		backend.Redis: redis.ErrClosed, backend.Redlock: redis.ErrClosed, backend.ZooKeeper: zk.ErrClosing, backend.MySQL: nil,
	} {
		if err := c.Ping(ctx, b); err == nil || closed == nil && !strings.Contains(err.Error(), "closed") || !errors.Is(err, closed) && closed != nil {
			t.Errorf("%s is used after Close: %v", b, err)
		}
	}
	if c.Etcd.Ctx().Err() == nil {
		t.Error("etcd is used after Close")
	}
	should.Fail(t, c.Close(), redis.ErrClosed)
}

// Half of the nodes are no majority.
func TestMoreThanHalfOfTheNodesMustAnswer(t *testing.T) {
	up := labtest.RedisClient(lab.Redis(t))
	defer hangUp(t, up)
	port := must.Get(servers.FreePort())(t)
	down := backend.NewRedis(backend.RedisOptions{Addresses: []string{servers.Loopback(port)}, Timeout: answerWithin, PoolSize: 5})
	defer hangUp(t, down)
	for nodes, answers := range map[string]bool{"u": true, "d": false, "ud": false, "uud": true, "udd": false, "uudd": false, "duuud": true} {
		c := new(backend.Clients)
		for _, node := range nodes {
			c.Redlock = append(c.Redlock, map[rune]redis.UniversalClient{'u': up, 'd': down}[node])
		}
		err := c.Ping(t.Context(), backend.Redlock)
		if (err == nil) != answers {
			t.Errorf("of the nodes %s a majority answers: %v (%v)", nodes, err == nil, err)
		}
		if err != nil && (!strings.Contains(err.Error(), "refused") || !errors.Is(err, backend.ErrNotConnected)) {
			t.Errorf("%v does not say why the others do not answer", err)
		}
	}
}

type key struct{}

// A round trip of a wait goes on for a little after it, and no longer.
func TestARoundTripOutlastsItsWaitByALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := context.WithValue(t.Context(), key{}, "value")
		for name, c := range map[string]struct {
			until time.Duration
			ends  time.Duration
		}{"a wait": {time.Second, time.Second + 250*time.Millisecond}, "a wait that is over": {-time.Minute, 250 * time.Millisecond}} {
			ctx, cancel := context.WithDeadline(parent, time.Now().Add(c.until))
			start := time.Now()
			own, free := backend.Uncut(ctx)
			cancel()
			if own.Err() != nil || own.Value(key{}) != "value" {
				t.Errorf("%s: the round trip ends with its request: %v", name, own.Err())
			}
			<-own.Done()
			should.Be(t, time.Since(start), c.ends, "the round trip ends", name)
			free()
		}
		ctx, cancel := context.WithCancel(parent)
		own, free := backend.Uncut(ctx)
		defer free()
		cancel()
		if _, limited := own.Deadline(); limited || own.Err() != nil {
			t.Error("without a deadline, a round trip of a request that was cancelled ends")
		}
		ctx, cancel = context.WithTimeout(parent, time.Hour)
		defer cancel()
		own, free = backend.Uncut(ctx)
		if free(); own.Err() == nil {
			t.Error("a round trip that is over keeps its timer")
		}
	})
}

// A pool of locks has two connections at least: the token of one that holds the first is
// issued on the second.
func TestAPoolOfLocksHasAConnectionForTokens(t *testing.T) {
	for most, want := range map[int]int{0: 2, 1: 2, 2: 2, 5: 5} {
		pool, dialect, err := backend.OpenPool(backend.SQLOptions{Driver: backend.SQLite, DSN: t.TempDir() + "/stock.db", MaxOpen: most})
		must.Do(t, err)
		if n := pool.Stats().MaxOpenConnections; n != want || dialect != backend.SQLite {
			t.Errorf("with %d connections a pool of %s has %d, want %d", most, dialect, n, want)
		}
		closePool(t, pool)
	}
}

func TestADatabaseThatIsNotKnownIsNotOpened(t *testing.T) {
	for _, o := range []backend.SQLOptions{
		{Driver: "postgres", DSN: "x"}, {Driver: backend.SQLite}, {Driver: string(backend.MySQL), DSN: "no DSN"}, {Driver: backend.SQLite, DSN: t.TempDir() + "/no/folder"},
	} {
		if _, _, err := backend.OpenPool(o); err == nil || !strings.Contains(err.Error(), o.Driver) {
			t.Errorf("%+v: %v, want an error that names the driver", o, err)
		}
	}
}

func closePool(t testing.TB, pool *sql.DB) {
	t.Helper()
	must.Do(t, pool.Close())
}
