//go:build prove

package strategy_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// trips are the requests that one sale waits for: statements to the database, and
// requests to the other server; to each of them, where they are several.
type trips struct{ database, server int }

// unmet is what a sale costs without contention; docs/choosing.md says the same.
func unmet() map[string]trips {
	return map[string]trips{
		"naive": {5, 0}, "naive-decrement": {5, 0}, "mutex": {5, 0}, "mutex-per-request": {5, 0}, "mutex-in-tx": {5, 0}, "channel": {5, 0},
		"sql-conditional": {4, 0}, "sql-procedure": {1, 0}, "sql-optimistic": {5, 0}, "sql-for-update": {5, 0}, "sql-bucket": {4, 0}, "sql-unit": {5, 0},
		"redis-get-set": {5, 2}, "redis-get-set-locked": {5, 4}, "redis-decr": {4, 1}, "redis-list": {4, 1}, "redis-stock": {0, 1},
		"sql-insert-lock": {11, 0}, "sql-row-lock": {12, 0}, "sql-version-lock": {8, 0}, "sql-named-lock": {11, 0},
		"redis-setnx": {5, 2}, "redis-setnx-ttl": {5, 2}, "redis-setnx-owner": {5, 3}, "redis-getset": {5, 2},
		"redis-lua": {5, 2}, "redis-reentrant": {5, 2}, "redis-fair": {5, 2}, "redsync": {5, 2}, "redlock": {6, 2},
		"zk-ephemeral": {5, 2}, "zk-herd": {5, 3}, "zk-sequential": {5, 2}, "etcd": {5, 2},
	}
}

// rejected is what a rejection costs of an item that is sold out, for the strategies
// without a lock outside of the replica: one read at most.
func rejected() map[string]trips {
	return map[string]trips{
		"naive": {1, 0}, "naive-decrement": {1, 0}, "mutex": {1, 0}, "mutex-per-request": {1, 0}, "channel": {1, 0},
		"sql-conditional": {1, 0}, "sql-procedure": {1, 0}, "sql-optimistic": {1, 0}, "sql-for-update": {1, 0}, "sql-bucket": {1, 0}, "sql-unit": {1, 0},
		"redis-get-set": {1, 1}, "redis-decr": {1, 2}, "redis-list": {1, 1}, "redis-stock": {0, 0},
	}
}

// TestProveRoundTrips counts what the servers are asked in the course of sales
// without contention.
func TestProveRoundTrips(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	store := labtest.Open(t, d, "replica-1")
	pool, _, err := d.Pool(2, time.Second)
	must.Do(t, err)
	defer pool.Close() //nolint:errcheck // it was only asked
	for i, entry := range strategy.Registry() {
		t.Run(entry.Name, func(t *testing.T) {
			locks := lab.Locks(t, d, entry.Needs...)
			locks.TTL = time.Minute // so that nothing is renewed meanwhile
			ask := asked(t, pool, locks.Clients, entry.Needs)
			s := entry.New(strategy.Deps{
				Store: store.As(entry.Name), LockWait: time.Second, Lock: locks, RedisStock: redisstock.Options{Prefix: rand.Text()},
				Retry: strategy.Retry{Tries: 5, Step: time.Millisecond, Max: time.Millisecond}, Buckets: 5, UnitRows: 50,
			})
			if closer, ok := s.(io.Closer); ok {
				defer closer.Close() //nolint:errcheck // the test is over
			}
			got := tripsOf(t, s, store, int64(i+1), ask)
			want, listed := unmet()[entry.Name]
			if !listed {
				t.Errorf("%s is not listed in unmet, nor in docs/strategies.md", entry.Name)
			}
			should.Be(t, got, want, "a sale takes")
			if want, ok := rejected()[entry.Name]; ok {
				should.Be(t, rejectionTripsOf(t, s, int64(i+1), ask), want, "a rejection takes")
			}
		})
	}
}

// tripsOf sells one after the other, and divides what was asked meanwhile.
func tripsOf(t *testing.T, s strategy.Strategy, store *repo.Store, goods int64, ask func() (database, server int64)) trips {
	t.Helper()
	const sales, units = 40, 1000
	must.Do(t, store.CreateGoods(t.Context(), goods, units, rand.Text()))
	sell := func(times int) {
		for range times {
			outcomes, err := s.Deduct(t.Context(), goods, []stock.Purchase{buyOne()})
			if err != nil || outcomes[0].Rejected != nil {
				t.Fatalf("sell: %+v, %v", outcomes, err)
			}
		}
	}
	sell(5) // connections, sessions and scripts are there after that
	time.Sleep(200 * time.Millisecond)
	database, server := ask()
	sell(sales)
	databaseAfter, serverAfter := ask()
	each := func(n int64) int { return int(math.Round(float64(n) / sales)) }
	return trips{each(databaseAfter - database), each(serverAfter - server)}
}

// rejectionTripsOf sells the rest, and divides what is asked for rejections.
func rejectionTripsOf(t *testing.T, s strategy.Strategy, goods int64, ask func() (database, server int64)) trips {
	t.Helper()
	const rejections, rest = 40, 1000 - 45
	buy := func(quantity int64) error {
		outcomes := must.Get(s.Deduct(t.Context(), goods, []stock.Purchase{{RequestID: rand.Text(), Quantity: quantity}}))(t)
		return outcomes[0].Rejected
	}
	must.Do(t, buy(rest))              // sell the rest
	time.Sleep(200 * time.Millisecond) // consumers write it meanwhile
	for range 5 {
		should.Fail(t, buy(1), stock.ErrInsufficientStock, "a purchase of an item that is sold out is answered with")
	}
	database, server := ask()
	for range rejections {
		_ = buy(1)
	}
	databaseAfter, serverAfter := ask()
	each := func(n int64) int { return int(math.Round(float64(n) / rejections)) }
	return trips{each(databaseAfter - database), each(serverAfter - server)}
}

func buyOne() stock.Purchase { return stock.Purchase{RequestID: rand.Text(), Quantity: 1} }

// asked tells what the database and the server of a lock were asked so far.
func asked(t *testing.T, pool *sql.DB, clients *backend.Clients, needs []backend.Name) func() (database, server int64) {
	t.Helper()
	server := func() int64 { return 0 }
	for _, need := range needs {
		switch need {
		case backend.Redis:
			server = countRedis(clients.Redis)
		case backend.Redlock:
			server = countRedis(clients.Redlock[0])
		case backend.ZooKeeper:
			server = func() int64 { return zooKeeperAsked(t) }
		case backend.Etcd:
			server = func() int64 { return etcdAsked(t) }
		case backend.MySQL, backend.Database:
		}
	}
	return func() (int64, int64) {
		var name string
		var n int64
		must.Do(t, pool.QueryRowContext(t.Context(), `SHOW GLOBAL STATUS LIKE 'Questions'`).Scan(&name, &n))
		return n, server()
	}
}

// countRedis counts what a client of Redis sends, a pipeline as one.
func countRedis(client redis.UniversalClient) func() int64 {
	n := new(atomic.Int64)
	client.AddHook(locktest.Hook(func(_ context.Context, send func() error, _ ...redis.Cmder) error {
		n.Add(1)
		return send()
	}))
	return n.Load
}

func zooKeeperAsked(t *testing.T) (n int64) {
	t.Helper()
	answer := must.Get(lab.ZooKeeper(t).Ask(t.Context(), "srvr"))(t)
	for line := range strings.Lines(answer) {
		if _, err := fmt.Sscanf(line, "Received: %d", &n); err == nil {
			return n
		}
	}
	t.Fatalf("ZooKeeper does not tell what it received: %s", answer)
	return 0
}

func etcdAsked(t *testing.T) (n int64) {
	t.Helper()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, lab.Etcd(t).Endpoint+"/metrics", http.NoBody))(t)
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close() //nolint:errcheck // it was read
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), "grpc_server_msg_received_total{") || !strings.Contains(lines.Text(), `"etcdserverpb.KV"`) {
			continue
		}
		var count float64
		must.Get(fmt.Sscan(lines.Text()[strings.LastIndexByte(lines.Text(), ' ')+1:], &count))(t)
		n += int64(count)
	}
	return n
}

// What a reservation takes beside its hold, which is a sale with one statement more.
func TestProveRoundTripsOfAReservation(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	store := labtest.Open(t, d, "replica-1").As("sql-conditional")
	pool, _, err := d.Pool(2, time.Second)
	must.Do(t, err)
	defer pool.Close() //nolint:errcheck // it was only asked
	must.Do(t, store.CreateGoods(t.Context(), 1, 1000, rand.Text()))
	all := strategy.Registry()
	entry := all[slices.IndexFunc(all, func(e strategy.Entry) bool { return e.Name == "sql-conditional" })]
	s := entry.New(strategy.Deps{Store: store, Retry: strategy.Retry{Tries: 5}})
	ask := asked(t, pool, &backend.Clients{}, nil)
	const times = 40
	var held []string // what a hold has added, and another step takes
	take := func(n int) (numbers []string) {
		numbers, held = held[:n], held[n:]
		return numbers
	}
	hold := func() error {
		p := buyOne()
		p.Number, p.TTL = uuid.Must(uuid.NewV7()).String(), time.Hour
		held = append(held, p.Number)
		_, err := s.Deduct(t.Context(), 1, []stock.Purchase{p})
		return err
	}
	for _, step := range []struct {
		name        string
		times, want int64
		do          func() error
	}{
		{"a purchase", times, 4, func() error { _, err := s.Deduct(t.Context(), 1, []stock.Purchase{buyOne()}); return err }},
		{"a hold", 5 * times, 5, hold},
		{"a confirmation", times, 5, func() error { _, _, err := store.ConfirmAll(t.Context(), take(1)); return err }},
		{"forty confirmations together", 3, 5, func() error { _, _, err := store.ConfirmAll(t.Context(), take(times)); return err }},
		{"a release", times, 7, func() error { _, _, err := store.Release(t.Context(), take(1)[0]); return err }},
	} {
		before, _ := ask()
		begun := time.Now()
		for range step.times {
			must.Do(t, step.do())
		}
		took := time.Since(begun)
		after, _ := ask()
		should.Be(t, int64(math.Round(float64(after-before)/float64(step.times))), step.want, step.name)
		t.Logf("%s: %s", step.name, took/time.Duration(step.times))
	}
}
