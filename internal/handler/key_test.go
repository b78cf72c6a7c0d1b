package handler_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

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
