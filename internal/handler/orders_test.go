package handler_test

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// sameOrder checks that an order shows what its sale did.
func sameOrder(t *testing.T, order, sale answer, durable string) {
	t.Helper()
	order.is(t, "", "durable", durable)
	for _, field := range []string{"order_id", "goods_id", "quantity", "strategy", "replica", "token", "remaining", "created_at"} {
		if sale.body[field] == nil || !reflect.DeepEqual(order.body[field], sale.body[field]) {
			t.Errorf("%s of the order is %v, of the sale %v", field, order.body[field], sale.body[field])
		}
	}
}

func TestAnOrderIsFoundAndNothingIsSold(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		a := serve(t, d)
		a = a.with(t, func(o *handler.Options) { o.Reveal = true })
		sale := a.buyAs(t, "goods_id=1&quantity=2&user_id=u-1", "Idempotency-Key", "key&1")
		number, _ := sale.body["order_id"].(string)
		for _, path := range []string{"/orders?request_id=key%261", "/orders/" + number} {
			public, private := a.get(t, path), a.asAdmin(t, http.MethodGet, path, "", http.StatusOK)
			sameOrder(t, public, sale, "sql")
			sameOrder(t, private, sale, "sql")
			if public.body["user_id"] != nil || private.body["user_id"] != "u-1" || public.body["request_id"] != "key&1" {
				t.Errorf("%s shows %s to a client, and %s on the admin API", path, public.text, private.text)
			}
		}
		created, err := time.Parse(time.RFC3339Nano, fmt.Sprint(sale.body["created_at"]))
		if err != nil || time.Since(created).Abs() > time.Minute {
			t.Errorf("it was created at %v (%v)", created, err)
		}
		should.Be(t, a.buyAs(t, "goods_id=1&quantity=2&user_id=u-1", "Idempotency-Key", "key&1").text, sale.text, "again the sale is answered with")
		for _, none := range []string{"/orders?request_id=never", "/orders/404", "/orders/1", "/orders/x"} { // 1 is a restock
			a.get(t, none).is(t, "unknown-order")
		}
		should.Be(t, a.get(t, "/goods/1").body["stock"], 8.0, "are left")
	})
}

// Numbers can be counted through: no stranger reads a sale that way.
func TestNumbersOfOrdersAreNotForEveryClient(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Reveal = false })
	number := fmt.Sprint(a.buy(t, "goods_id=1").body["order_id"])
	a.get(t, "/orders/"+number).is(t, "not-found")
	for _, query := range []string{"", "?goods_id=1", "?after=0&limit=1", "?request_id=", "?request_id=a+b"} {
		a.get(t, "/orders"+query).is(t, "invalid-request")
	}
}

func TestTheAdminAPIPagesThroughOrders(t *testing.T) {
	a := serveItems(t, lab.Database(t, servers.SQLite), map[int64]int64{2: 500})
	for range 5 {
		a.buy(t, "goods_id=2")
		a.buy(t, "goods_id=1")
	}
	next, seen := "0", 0
	for range 4 {
		page := a.asAdmin(t, http.MethodGet, "/orders?goods_id=1&limit=2&after="+next, "", http.StatusOK)
		list, _ := page.body["orders"].([]any)
		seen += len(list)
		if next, _ = page.body["next"].(string); next == "" || list == nil {
			t.Fatalf("a page is %s", page.text)
		}
	}
	should.Be(t, seen, 5, "the pages have … orders")
	a.asAdmin(t, http.MethodGet, "/orders?after="+next, "", http.StatusOK).is(t, "", "next", next)
	a.asAdmin(t, http.MethodGet, "/orders?reader=shipping&after=0", "", http.StatusOK)
	if lags, err := a.options.Feed.Lags(t.Context()); err != nil || len(lags) != 1 || lags["shipping"] <= 0 {
		t.Errorf("a reader at the beginning is behind by %v (%v)", lags, err)
	}
	for query, field := range map[string]string{
		"reader=": "reader", "reader=" + strings.Repeat("r", 65): "reader", "request_id=a&reader=b": "reader",
		"limit=0": "limit", "limit=1001": "limit", "after=-1": "after", "after=x": "after", "goods_id=0": "goods_id",
		"request_id=a&limit=1": "limit", "request_id=a&goods_id=1": "goods_id", "request_id=a&after=0": "after", "request_id=a&steps=false": "steps",
		"user_id=u-1": "user_id", "colour=red": "colour",
	} {
		a.asAdmin(t, http.MethodGet, "/orders?"+query, "", http.StatusBadRequest).names(t, field)
	}
}

// A page has 100 rows unless it says otherwise, and the steps of orders with their kinds where they are asked for.
func TestAPageHasAHundredOrdersAndTheirStepsWhereAsked(t *testing.T) {
	a := serveItems(t, lab.Database(t, servers.SQLite), map[int64]int64{2: 500})
	batch := make([]stock.Purchase, 101)
	for i := range batch {
		batch[i] = stock.Purchase{RequestID: fmt.Sprint("bought-", i), Quantity: 1}
	}
	err := a.store.As("sql-conditional").InTx(t.Context(), func(tx *repo.Tx) error {
		_, err := tx.Append(t.Context(), repo.Sale{GoodsID: 2, Batch: batch})
		return err
	})
	must.Do(t, err)
	for query, want := range map[string]int{"": 100, "&limit=1": 1, "&limit=1000": 101} {
		page := a.asAdmin(t, http.MethodGet, "/orders?goods_id=2"+query, "", http.StatusOK)
		list, _ := page.body["orders"].([]any)
		should.Be(t, len(list), want, "the orders on a page of", query)
	}
	number := fmt.Sprint(a.buy(t, "goods_id=1&quantity=3").body["order_id"])
	a.asAdmin(t, http.MethodPost, "/orders/"+number+"/return", `{"quantity": 1}`, http.StatusOK)
	for steps, want := range map[string]string{"false": "[<nil>]", "true": "[deduct return]"} {
		page := a.asAdmin(t, http.MethodGet, "/orders?goods_id=1&steps="+steps, "", http.StatusOK)
		var kinds []any
		list, _ := page.body["orders"].([]any)
		for _, order := range list {
			kinds = append(kinds, order.(map[string]any)["kind"]) //nolint:forcetypeassert // as the description has it
		}
		should.Be(t, fmt.Sprint(kinds), want, "with steps=… the kinds", steps, kinds, page.text)
	}
}

// blocking is a strategy whose purchases wait.
type blocking struct{ entered, release chan struct{} }

func (b blocking) Deduct(_ context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	b.entered <- struct{}{}
	<-b.release
	return make([]stock.Outcome, len(batch)), stock.ErrBusy
}

// replayed checks that a purchase is answered as it was the first time.
func (a api) replayed(t *testing.T, what, query, key string, first answer) {
	t.Helper()
	if got := a.buyAs(t, query, "Idempotency-Key", key); got.text != first.text || got.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%s: a known key is answered with %d %s, want %s", what, got.status, got.text, first.text)
	}
}

func TestAKnownKeyIsAnsweredBeforeAnythingElse(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	b := blocking{make(chan struct{}), make(chan struct{})}
	a := serveEntries(t, d, lab.Locks(t, d), append(strategy.Registry(), strategy.Entry{
		Name: "blocking", Family: strategy.None, Summary: "waits", New: func(strategy.Deps) strategy.Strategy { return b },
	}))
	const buy = "goods_id=1&user_id=u-1&strategy="
	first := a.buyAs(t, buy+"naive", "Idempotency-Key", "known")
	a.asAdmin(t, http.MethodPut, "/strategies/naive", `{"enabled": false, "reason": "a test"}`, http.StatusOK)
	a.buyAs(t, buy+"naive", "Idempotency-Key", "new").is(t, "strategy-refused")
	a.replayed(t, "its strategy is off", buy+"naive", "known", first)
	a.replayed(t, "the strategy is unknown", buy+"hope", "known", first)
	for query, problem := range map[string]string{buy + "naive&quantity=2": "key-reused", buy + "naive&colour=red": "invalid-request"} {
		a.buyAs(t, query, "Idempotency-Key", "known").is(t, problem)
	}

	limited := a.with(t, func(o *handler.Options) { o.Limits.User = rate.Rate{PerSecond: onceOnly, Burst: 1} })
	limited.replayed(t, "it is counted", buy+"naive", "known", first)
	limited.buy(t, buy+"sql-conditional").is(t, "")
	limited.replayed(t, "the user buys too often", buy+"naive", "known", first)

	full := a.with(t, func(o *handler.Options) { o.MaxDeductions = 1 })
	var crowd sync.WaitGroup
	crowd.Go(func() { full.buy(t, buy+"blocking") })
	<-b.entered
	full.buy(t, buy+"sql-conditional").is(t, "busy")
	full.replayed(t, "the replica sheds load", buy+"naive", "known", first)
	close(b.release)
	crowd.Wait()
}

// servePending is a replica whose second order by redis-stock and those after it stay
// out of the ledger, and the sale of the second.
func servePending(t *testing.T) (a api, sale answer, redis *servers.Redis) {
	t.Helper()
	d := lab.Database(t, servers.SQLite)
	redis = lab.OwnRedis(t)
	locks := lab.Locks(t, d)
	locks.RedisOptions = labtest.RedisOptions(redis)
	locks.Redis = backend.NewRedis(locks.RedisOptions)
	a = serveRedisStock(t, d, locks, strategy.Registry(), redisstock.Options{Linger: time.Hour, Partitions: 3})
	a = a.with(t, func(o *handler.Options) { o.Reveal = true })
	written := a.buy(t, "goods_id=1&strategy=redis-stock&durable=sql")
	sale = a.buyAs(t, "goods_id=1&user_id=u-1&strategy=redis-stock", "Idempotency-Key", "pending")
	if written.status != http.StatusOK || sale.status != http.StatusOK || sale.body["durable"] != "redis" {
		t.Fatalf("sold %s and %s", written.text, sale.text)
	}
	if err := a.options.Catalogue.LookAtSwitches(t.Context()); err != nil { // as it is done twice a second
		t.Fatal(err)
	}
	return a, sale, redis
}

func TestAPendingOrderIsFound(t *testing.T) {
	a, sale, redis := servePending(t)
	number := fmt.Sprint(sale.body["order_id"])
	paths := []string{"/orders?request_id=pending&user_id=u-1", "/orders/" + number}
	for _, path := range paths {
		sameOrder(t, a.get(t, path), sale, "redis")
		a.asAdmin(t, http.MethodGet, path, "", http.StatusOK).is(t, "", "user_id", "u-1")
	}
	other := strings.Replace(number, number[len(number)-4:], "0000", 1)
	for _, none := range []string{"/orders?request_id=never", "/orders/" + other} {
		a.get(t, none).is(t, "unknown-order")
	}
	must.Do(t, redis.Kill(t.Context()))
	for _, path := range append(paths, "/orders?request_id=never", "/orders/"+other) {
		a.get(t, path).is(t, "backend-unavailable", "backend", "redis")
	}
	a.get(t, "/orders/404").is(t, "unknown-order") // a number of the ledger
}

// Where nothing was ever sold from Redis, it has no orders, and is not asked.
func TestRedisIsNotAskedForOrdersItNeverHad(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	redis := lab.OwnRedis(t)
	locks := lab.Locks(t, d)
	locks.RedisOptions = labtest.RedisOptions(redis)
	locks.Redis = backend.NewRedis(locks.RedisOptions)
	a := serveWith(t, d, locks)
	must.Do(t, redis.Kill(t.Context()))
	a.get(t, "/orders?request_id=never").is(t, "unknown-order")
	a.buyAs(t, "goods_id=1&strategy=hope", "Idempotency-Key", "new").is(t, "unknown-strategy")
}

// Those that do not ask get none of them.
func TestAReaderGetsTheKindsThatItAsksFor(t *testing.T) {
	a := serveSQLite(t)
	a.buy(t, "goods_id=1")
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"per_user": 3, "strategy": "mutex", "max_quantity": 2}`, http.StatusOK)
	a.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 5}`, http.StatusOK)
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"starts_at": "2098-01-01T00:00:00Z", "ends_at": "2099-01-01T00:00:00Z"}`, http.StatusOK)
	list := func(query string) string {
		return a.asAdmin(t, http.MethodGet, "/orders?"+query, "", http.StatusOK).text
	}
	got := list("kinds=limit,strategy,sale,restock&goods_id=1&reader=r")
	for _, want := range []string{`"starts_at":"2098-01-01T00:00:00Z","ends_at":"2099-01-01T00:00:00Z"`, `"per_user":3`, `"strategy":"mutex"`, `"max_quantity":2`, `"quantity":5`} {
		should.Be(t, strings.Count(got, want), 1, "the changes have", want, got)
	}
	should.Be(t, strings.Count(got, `"kind":`), 5, "the rows of", got)
	for _, query := range []string{"", "steps=true", "kinds=deduct"} {
		should.Be(t, strings.Count(list(query), `"order_id":`), 1, "the rows of", query)
	}
	for query, field := range map[string]string{"kinds=restock,hope": "kinds", "kinds=": "kinds", "kinds=limit&steps=true": "steps", "kinds=limit&request_id=k": "kinds"} {
		should.Be(t, a.asAdmin(t, http.MethodGet, "/orders?"+query, "", http.StatusBadRequest).field(), field, "the field of", query)
	}
}

// keyed buys under a key.
func (a api) keyed(t *testing.T, key, query string) answer {
	t.Helper()
	return a.buyAs(t, query, "Idempotency-Key", key)
}

// ownerKeyed posts to the admin API under a key.
func (a api) ownerKeyed(t *testing.T, key, path string) answer {
	t.Helper()
	r := a.ownerRequest(t, http.MethodPost, path)
	r.Header.Set("Idempotency-Key", key)
	return send(t, r)
}

// distinctBuyers buys under one key for three buyers, twice each, and returns the orders.
func (a api) distinctBuyers(t *testing.T, key, query string) map[string]string {
	t.Helper()
	orders, buyers := make(map[string]string), make(map[any]string)
	for _, user := range []string{"", "&user_id=u-1", "&user_id=u-2"} {
		first := a.keyed(t, key, query+user)
		again := a.keyed(t, key, query+user)
		if first.status != http.StatusOK || first.header.Get("Idempotency-Replayed") != "" || again.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%q is answered with %d %s, and again with %d %s", query+user, first.status, first.text, again.status, again.text)
		}
		number := first.body["order_id"]
		if other, taken := buyers[number]; taken || number != again.body["order_id"] {
			t.Errorf("%q has order %v and then %v; %q has it as well: %v", user, number, again.body["order_id"], other, taken)
		}
		buyers[number], orders[user] = user, fmt.Sprint(number)
	}
	return orders
}

func TestAKeyOfAnotherBuyerIsAnotherKey(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveRedisStock(t, d, lab.Locks(t, d, backend.Redis), strategy.Registry(), redisstock.Options{Linger: time.Millisecond, Partitions: 2})
	a.asAdmin(t, http.MethodPost, "/goods/1/restock", `{"quantity": 100}`, http.StatusOK)
	for _, strategy := range []string{"sql-conditional", "sql-bucket", "mutex&group=true", "redis-stock", "redis-stock&durable=sql", "redis-decr"} {
		a.distinctBuyers(t, "checkout-"+strategy, "goods_id=1&strategy="+strategy)
	}
	longest := strings.Repeat("k", stock.MaxRequestID)
	a.distinctBuyers(t, longest, "goods_id=1&strategy=redis-stock")
	a.get(t, "/orders?user_id=u-1&request_id="+longest).is(t, "", "request_id", longest)
}

// What a key was used for is shown to its users only.
func TestAReusedKeyRevealsNothing(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	a := serveRedisStock(t, d, lab.Locks(t, d, backend.Redis), strategy.Registry(), redisstock.Options{Linger: time.Hour, Partitions: 2})
	for _, strategy := range []string{"sql-conditional", "redis-stock"} {
		a.keyed(t, strategy, "goods_id=1&user_id=u-1&quantity=3&strategy="+strategy)
		a.keyed(t, strategy, "goods_id=1&user_id=u-1&quantity=2&strategy="+strategy).is(t, "key-reused", "detail", stock.ErrKeyReused.Error())
	}
}

func TestAnOrderIsFoundByItsBuyer(t *testing.T) {
	a := serveSQLite(t)
	orders := a.distinctBuyers(t, "key", "goods_id=1")
	a.keyed(t, "key-of-another", "goods_id=1")
	for user, number := range orders {
		path := "/orders?request_id=key" + user
		for _, got := range []answer{a.get(t, path), a.asAdmin(t, http.MethodGet, path, "", http.StatusOK)} {
			got.is(t, "", "order_id", number, "request_id", "key")
		}
	}
	a.get(t, "/orders?request_id=key&user_id=u-3").is(t, "unknown-order")
	a.keyed(t, "single", "goods_id=1&user_id=u-1")
	a.get(t, "/orders?request_id=single").is(t, "", "request_id", "single")
	a.keyed(t, "single", "goods_id=1&user_id=u-2")
	a.get(t, "/orders?request_id=single").names(t, "user_id")
	a.asAdmin(t, http.MethodGet, "/orders?user_id=u-1", "", http.StatusBadRequest).names(t, "user_id")
	page := a.asAdmin(t, http.MethodGet, "/orders?goods_id=1", "", http.StatusOK)
	if strings.Contains(page.text, `"key u`) || strings.Count(page.text, `"request_id":"key"`) != len(orders) {
		t.Errorf("the admin API lists %s", page.text)
	}
}
