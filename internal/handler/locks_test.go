package handler_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// lockServer is a server of a lock that a test may end and bring back.
type lockServer interface {
	Kill(ctx context.Context) error
	Restart(ctx context.Context) error
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
}

// lockBackend is a backend of the registry, and a strategy that needs it.
type lockBackend struct {
	name     backend.Name
	strategy string
	start    func(t *testing.T, into *backend.Clients) lockServer
}

func lockBackends() []lockBackend {
	return []lockBackend{
		{backend.Redis, "redis-reentrant", func(t *testing.T, into *backend.Clients) lockServer {
			server := lab.OwnRedis(t)
			into.RedisOptions = labtest.RedisOptions(server)
			into.Redis = backend.NewRedis(into.RedisOptions)
			return server
		}},
		{backend.ZooKeeper, "zk-sequential", func(t *testing.T, into *backend.Clients) lockServer {
			server := lab.OwnZooKeeper(t)
			into.ZooKeeper = labtest.ZooKeeperClient(server)
			return server
		}},
		{backend.Etcd, "etcd", func(t *testing.T, into *backend.Clients) lockServer {
			server := lab.OwnEtcd(t)
			into.Etcd = labtest.EtcdClient(t, server)
			return server
		}},
	}
}

// A server of a lock that is gone, or unresponsive, is named within the wait limit; the
// replica stays ready, and every other strategy goes on. When the server is
// back, so is its strategy.
func TestALockServerGoneAndBack(t *testing.T) {
	for _, b := range lockBackends() {
		t.Run(string(b.name), func(t *testing.T) {
			t.Parallel() // they wait for a server that does not answer
			d := lab.Database(t, servers.SQLite)
			locks := lab.Locks(t, d)
			server := b.start(t, locks.Clients)
			a := serveWith(t, d, locks)
			buy := fmt.Sprintf("goods_id=1&strategy=%s", b.strategy)
			a.awaitSale(t, buy)
			for _, fault := range []struct {
				name         string
				make, remedy func(context.Context) error
			}{
				{"gone", server.Kill, server.Restart},
				{"unresponsive", server.Pause, server.Resume},
			} {
				must.Do(t, fault.make(t.Context()))
				a.assertNamed(t, fault.name, buy, string(b.name))
				must.Do(t, fault.remedy(t.Context()))
				a.awaitSale(t, buy)
			}
		})
	}
}

// A server that rejects writes is named with the reason, and nothing is sold; the replica is ready unless it is
// the database's.
func TestAServerThatRejectsWritesIsNamed(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	labtest.Open(t, d, "r") // brings the schema up to date
	all, _ := labtest.Connect(t, d)
	defer all.Close() //nolint:errcheck // the test is over
	locks, server := lab.Locks(t, d), lab.OwnRedis(t)
	locks.RedisOptions = labtest.RedisOptions(server)
	locks.Redis = backend.NewRedis(locks.RedisOptions)
	a := serveWith(t, labtest.Restricted(t, d, labtest.ReplicaRights), locks)
	a.awaitSale(t, "goods_id=1&strategy=redis-lua")
	mayAll := locks.RedisOptions
	mayAll.Username = ""
	owner := backend.NewRedis(mayAll)
	defer owner.Close() //nolint:errcheck // the test is over
	for _, c := range []struct {
		name, strategy, why string
		enter, leave        func(context.Context) error
		ready               int
	}{
		{"redis", "redis-lua", "redis rejects writes: its memory is full", func(ctx context.Context) error {
			return owner.ConfigSet(ctx, "maxmemory", "1").Err()
		}, func(ctx context.Context) error { return owner.ConfigSet(ctx, "maxmemory", "0").Err() }, http.StatusOK},
		{"mysql", "sql-conditional", "mysql rejects writes: it is read-only", func(ctx context.Context) error {
			_, err := all.ExecContext(ctx, `SET GLOBAL read_only = 1`)
			return err
		}, func(ctx context.Context) error {
			_, err := all.ExecContext(ctx, `SET GLOBAL read_only = 0`)
			return err
		}, http.StatusServiceUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			must.Do(t, c.enter(t.Context()))
			got := a.buy(t, "goods_id=1&strategy="+c.strategy)
			if got.status != http.StatusServiceUnavailable || got.problem() != "backend-unavailable" || got.body["backend"] != c.name || got.body["detail"] != c.why {
				t.Errorf("a purchase is answered with %d %s", got.status, got.text)
			}
			if !labtest.Eventually(2*time.Second, func() bool {
				got = a.get(t, "/readyz")
				return got.status == c.ready && strings.Contains(got.text, c.why)
			}) {
				t.Errorf("readiness is %d %s", got.status, got.text)
			}
			must.Do(t, c.leave(t.Context()))
			a.awaitSale(t, "goods_id=1&strategy="+c.strategy)
		})
	}
}

// assertNamed holds a replica whose lock server is down to what it owes.
func (a api) assertNamed(t *testing.T, fault, buy, backend string) {
	t.Helper()
	asked := time.Now()
	got := a.buy(t, buy)
	if got.status != http.StatusServiceUnavailable || got.problem() != "backend-unavailable" || got.body["backend"] != backend {
		t.Errorf("%s: answered with %d %s", fault, got.status, got.text)
	}
	if took := time.Since(asked); took > lockWait+time.Second {
		t.Errorf("%s: answered after %s, want about the wait limit of %s", fault, took, lockWait)
	}
	a.buy(t, "goods_id=1").is(t, "")
	ready := a.get(t, "/readyz")
	if status := statusOf(ready, "backends", "name", backend)["status"]; ready.status != http.StatusOK || status != "down" {
		t.Errorf("%s: readiness is %d %s", fault, ready.status, ready.text)
	}
	for _, s := range []struct {
		name      string
		available bool
	}{{"sql-conditional", true}, {buy[len("goods_id=1&strategy="):], false}} {
		if got := statusOf(a.get(t, "/strategies"), "strategies", "name", s.name); got["available"] != s.available {
			t.Errorf("%s: %s is described as %v", fault, s.name, got)
		}
	}
}

// statusOf finds the entry of a list whose field has the value.
func statusOf(got answer, list, field, value string) map[string]any {
	entries, _ := got.body[list].([]any)
	for _, e := range entries {
		if entry, _ := e.(map[string]any); entry[field] == value {
			return entry
		}
	}
	return nil
}

// awaitSale buys until it is sold to: a client finds its server again in time.
func (a api) awaitSale(t *testing.T, buy string) {
	t.Helper()
	var got answer
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if got = a.buy(t, buy); got.status == http.StatusOK {
			return
		}
	}
	t.Fatalf("no sale within 20s: %d %s", got.status, got.text)
}

// The answer says where the order is written down. durable=sql waits for the
// ledger; the strategies that write it themselves always have.
func TestTheAnswerSaysHowDurableItIs(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveWith(t, d, lab.Locks(t, d, backend.Redis))
	for i, c := range []struct{ query, durable string }{
		{"strategy=redis-stock", "redis"},
		{"strategy=redis-stock&durable=redis", "redis"},
		{"strategy=redis-stock&durable=sql", "sql"},
		{"strategy=sql-conditional", "sql"},
		{"strategy=sql-conditional&durable=redis", "sql"},
	} {
		a.asAdmin(t, http.MethodPost, "/goods", fmt.Sprintf(`{"goods_id":%d,"stock":10}`, i+2), http.StatusCreated)
		got := a.buy(t, fmt.Sprintf("goods_id=%d&%s", i+2, c.query))
		if got.status != http.StatusOK || got.body["durable"] != c.durable {
			t.Errorf("%s is answered with %d %v, want durable %q", c.query, got.status, got.body, c.durable)
		}
	}
	if got := a.buy(t, "goods_id=1&durable=yes"); got.status != http.StatusBadRequest {
		t.Errorf("durable=yes is answered with %d %v", got.status, got.body)
	}
	got := a.asAdmin(t, http.MethodGet, "/goods/2/drift", "", http.StatusOK)
	if got.body["installed"] != true {
		t.Errorf("the drift is %v", got.body)
	}
}

func TestGroupIsAFlagThatComposesWithFence(t *testing.T) {
	a := serveSQLite(t)
	a.buy(t, "goods_id=1&group=maybe").names(t, "group")
	a.buy(t, "goods_id=1&group=true&fence=true").names(t, "fence")
	got := a.buy(t, "goods_id=1&group=true&fence=true&strategy=sql-version-lock")
	if token, _ := got.body["token"].(float64); got.status != http.StatusOK || token < 1 {
		t.Errorf("grouped and fenced is answered with %d %s", got.status, got.text)
	}
}

// While a lock is held the queue of an item fills, and is blocked: one more is
// busy at once, and a key that was sold under is answered all the same.
func TestABlockedQueueIsBusy(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	locks := lab.Locks(t, d)
	a := serveWith(t, d, locks)
	const buy = "/deduct?goods_id=1&group=true&strategy=sql-insert-lock"
	keyed := func() answer {
		r := request(t, http.MethodPost, a.public.URL+buy, "", "")
		r.Header.Set("Idempotency-Key", "known")
		return send(t, r)
	}
	keyed().is(t, "")
	release := hold(t, locks)
	const tooMany = 60
	full := make(chan struct{}, 1+queue+tooMany)
	var crowd sync.WaitGroup
	for range cap(full) {
		crowd.Go(func() {
			got := send(t, request(t, http.MethodPost, a.public.URL+buy, "", ""))
			if detail, _ := got.body["detail"].(string); !strings.Contains(detail, "wait already") {
				return
			}
			full <- struct{}{}
			if got.status != http.StatusServiceUnavailable || got.problem() != "busy" || got.header.Get("Retry-After") == "" {
				t.Errorf("of a full queue: %d %s", got.status, got.text)
			}
		})
	}
	// Ten of sixty: each batch that gives up the lock makes a few places free.
	for range 10 {
		select {
		case <-full:
		case <-time.After(30 * time.Second):
			t.Fatal("a blocked queue takes every request")
		}
	}
	for range 3 {
		asked := time.Now()
		if got := keyed(); got.status != http.StatusOK || got.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("a known key, while the queue is blocked: %d %s", got.status, got.text)
		}
		if took := time.Since(asked); took > lockWait {
			t.Errorf("a known key is answered after %s, the queue waits for a lock that is held for longer", took)
		}
	}
	release()
	crowd.Wait()
}

// hold takes the lock of goods 1 in SQL.
func hold(t *testing.T, locks lock.Deps) (release func()) {
	t.Helper()
	for _, entry := range registry.Locks() {
		if entry.Name != "sql-insert-lock" {
			continue
		}
		lease := must.Get(entry.New(locks).Acquire(t.Context(), "goods/1"))(t)
		return func() {
			should.Do(t, lease.Release(t.Context()))
		}
	}
	t.Fatal("there is no sql-insert-lock")
	return nil
}
