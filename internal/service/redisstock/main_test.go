package redisstock_test

import (
	"context"
	"crypto/rand"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// goods is the item that all tests sell; each has a database and keys of its own.
const goods = 1

// shop is a database and a Redis that replicas sell from.
type shop struct {
	database *servers.Database
	address  string // of the Redis
	redis    *servers.Redis
	cluster  bool
	options  redisstock.Options
	store    *repo.Store
	client   redis.UniversalClient // the test's own
	seen     events
}

// open creates the item on MariaDB; nothing is in Redis yet.
func open(t *testing.T, server *servers.Redis, units int64) *shop {
	t.Helper()
	s := &shop{database: lab.Database(t, servers.MariaDB), redis: server, address: server.Address}
	s.options = redisstock.Options{
		Prefix: "test-" + rand.Text(), Partitions: 2, ClaimAfter: 300 * time.Millisecond, Reconcile: time.Hour,
		Linger: time.Millisecond,
	}
	s.store = labtest.Open(t, s.database, "test").As(redisstock.Allocation)
	must.Do(t, s.store.CreateGoods(t.Context(), goods, units, rand.Text()))
	s.client = labtest.RedisClient(server)
	t.Cleanup(func() { s.client.Close() }) //nolint:errcheck // the test is over
	return s
}

// replica starts one replica. It ends with the test, or when it is closed.
func (s *shop) replica(t *testing.T, name string, change ...func(*redisstock.Options, *backend.RedisOptions)) *redisstock.Stock {
	t.Helper()
	options, server := s.options, labtest.RedisOptions(s.redis)
	options.Observer = &s.seen
	options.Replica, server.Addresses, server.Cluster = name, []string{s.address}, s.cluster
	for _, c := range change {
		c(&options, &server)
	}
	store := labtest.Open(t, s.database, name).As(redisstock.Allocation)
	clients := &backend.Clients{RedisOptions: server, Redis: backend.NewRedis(server)}
	replica := redisstock.New(store, clients, options)
	t.Cleanup(func() {
		should.Do(t, replica.Close())
		clients.Close() //nolint:errcheck // the test is over
	})
	return replica
}

// replicaBehind starts one replica, which alone reaches Redis through a proxy.
func (s *shop) replicaBehind(t *testing.T, name string, change ...func(*redisstock.Options, *backend.RedisOptions)) (*redisstock.Stock, *servers.Proxy) {
	t.Helper()
	way := labtest.NewProxy(t, s.address)
	return s.replica(t, name, append(change, at(way.Address))...), way
}

// replicaThrough starts one replica, which alone reaches the database through a proxy.
func (s *shop) replicaThrough(t *testing.T, name string, change ...func(*redisstock.Options, *backend.RedisOptions)) (*redisstock.Stock, *servers.Proxy) {
	t.Helper()
	direct := s.database
	defer func() { s.database = direct }()
	through, way := labtest.Through(t, direct)
	s.database = through
	return s.replica(t, name, change...), way
}

// events are what the replicas of a shop report.
type events struct{ written, deadLettered, compared, repaired atomic.Int64 } // compared: the last time

func (e *events) Written(orders int)   { e.written.Add(int64(orders)) }
func (e *events) DeadLettered()        { e.deadLettered.Add(1) }
func (e *events) Compared(units int64) { e.compared.Store(units) }
func (e *events) Repaired()            { e.repaired.Add(1) }

// assertDeadLettered compares the dead letters, and what the observer has received of them.
func (s *shop) assertDeadLettered(t *testing.T, want int64) {
	t.Helper()
	if n, seen := s.client.XLen(t.Context(), s.key("dead")).Val(), s.seen.deadLettered.Load(); n != want || seen != want {
		t.Errorf("%d orders were dead-lettered, and %d reported so, want %d", n, seen, want)
	}
}

// idle has a consumer that writes one batch and then none for an hour.
func idle(o *redisstock.Options, _ *backend.RedisOptions) { o.Linger = time.Hour }

// at reaches Redis by another address, such as a proxy's.
func at(address string) func(*redisstock.Options, *backend.RedisOptions) {
	return func(_ *redisstock.Options, r *backend.RedisOptions) { r.Addresses = []string{address} }
}

// patient is a replica that no pause of a busy machine makes give up Redis.
func patient(_ *redisstock.Options, r *backend.RedisOptions) { r.Timeout = 10 * time.Second }

func buy(units int64) stock.Purchase {
	return stock.Purchase{RequestID: "test-" + rand.Text(), Quantity: units}
}

// sell sells one purchase and fails the test where it is rejected.
func sell(t *testing.T, r *redisstock.Stock, p stock.Purchase) stock.Order {
	t.Helper()
	o, err := deduct(t, r, p)
	if err != nil || o.Rejected != nil {
		t.Fatalf("not sold: %v, %v", err, o.Rejected)
	}
	return o.Order
}

// begin sells a unit, for which there is a counter then, and waits until the ledger has it.
func begin(t *testing.T, r *redisstock.Stock) []stock.Order {
	t.Helper()
	first := sell(t, r, buy(1))
	settle(t, r)
	return orders(first)
}

// openSold is a shop with a replica that has sold the first unit.
func openSold(t *testing.T, server *servers.Redis, units int64, name string, change ...func(*redisstock.Options, *backend.RedisOptions)) (*shop, *redisstock.Stock, []stock.Order) {
	t.Helper()
	s := open(t, server, units)
	r := s.replica(t, name, change...)
	return s, r, begin(t, r)
}

// rejects buys what must be rejected.
func rejects(t *testing.T, r *redisstock.Stock, p stock.Purchase, want error) {
	t.Helper()
	should.Fail(t, must.Get(deduct(t, r, p))(t).Rejected, want, p, "is answered with")
}

// handTo has a consumer read so many entries, which it then has in hand.
func (s *shop) handTo(t *testing.T, consumer string, entries int) {
	t.Helper()
	read := &redis.XReadGroupArgs{Group: "ledger", Consumer: consumer, Streams: []string{s.key("orders"), ">"}, Count: 100}
	if got, err := s.client.XReadGroup(t.Context(), read).Result(); err != nil || len(got) != 1 || len(got[0].Messages) != entries {
		t.Fatalf("%s has %v in hand (%v), want %d entries", consumer, got, err, entries)
	}
}

// awaitInHand waits until consumers have so many entries in hand.
func (s *shop) awaitInHand(t *testing.T, enough func(entries int64) bool) {
	t.Helper()
	await(t, "entries in hand", func() bool {
		pending, err := s.client.XPending(t.Context(), s.key("orders"), "ledger").Result()
		return err == nil && enough(pending.Count)
	})
}

// rebuild begins an epoch, as a new limit does, and waits for its counter.
func (s *shop) rebuild(t *testing.T, r *redisstock.Stock) {
	t.Helper()
	s.endEpoch(t)
	must.Do(t, r.LimitChanged(t.Context(), goods))
}

// endEpoch ends the epoch in the database alone.
func (s *shop) endEpoch(t *testing.T) {
	t.Helper()
	must.Get(s.sql(t).ExecContext(t.Context(), `UPDATE tb_stock_place SET epoch = epoch + 1 WHERE goods_id = ?`, goods))(t)
}

// restock adds units to the row, and notifies a replica.
func (s *shop) restock(t *testing.T, r *redisstock.Stock, units int64) {
	t.Helper()
	must.Get(s.store.Restock(t.Context(), goods, units, rand.Text()))(t)
	must.Do(t, r.Restocked(t.Context(), goods, units))
}

// orders are the buyers' answers so far.
func orders(reported ...stock.Order) []stock.Order { return reported }

func deduct(t *testing.T, r *redisstock.Stock, p stock.Purchase) (stock.Outcome, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	outcomes, err := r.Deduct(ctx, goods, []stock.Purchase{p})
	if err != nil {
		return stock.Outcome{}, err
	}
	return outcomes[0], nil
}

// settle waits until the ledger has every accepted order.
func settle(t *testing.T, r *redisstock.Stock) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		pending, err := r.Pending(ctx, goods)
		if err == nil && pending == 0 {
			return
		}
		select {
		case <-time.After(5 * time.Millisecond): // without a counter it is unknown until one is rebuilt
		case <-ctx.Done():
			t.Fatalf("%d units are pending in the ledger (%v)", pending, err)
		}
	}
}

func (s *shop) audit(t *testing.T) stock.Audit {
	t.Helper()
	return must.Get(s.store.Audit(t.Context(), goods))(t)
}

// assertExact compares the ledger with the buyers' answers, one row each, and
// Redis against the ledger.
func (s *shop) assertExact(t *testing.T, r *redisstock.Stock, reported []stock.Order) {
	t.Helper()
	settle(t, r)
	s.assertInLedger(t, reported)
	a := s.audit(t)
	if !a.Clean || a.Orders != int64(len(reported)) {
		t.Errorf("%d purchases were accepted, the audit is %+v", len(reported), a)
	}
	d, err := r.Drift(t.Context(), goods)
	if err != nil || d.Drift != 0 || !d.Loaded || d.Rebuilding != nil {
		t.Errorf("Redis and the ledger differ: %+v (%v)", d, err)
	}
}

func (s *shop) assertInLedger(t *testing.T, reported []stock.Order) {
	t.Helper()
	for _, order := range reported {
		orders := must.Get(s.store.Orders(t.Context(), order.RequestID))(t)
		must.Be(t, orders[order.RequestID], order, "the ledger has")
	}
}

// stream is the key of the orders of the item, counter that of its counter.
func (s *shop) key(name string) string { return s.options.Prefix + ":{stock-1}:" + name }

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	labtest.Await(t, what, 10*time.Second, is)
}
