package handler_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service/hot"
	"github.com/stockd/stockd/internal/service/strategy"
)

func (a api) assertTooMany(t *testing.T, query, most string) {
	t.Helper()
	got := a.buy(t, query)
	if got.status != http.StatusBadRequest || got.field() != "quantity" || !strings.Contains(got.text, "must be a whole number from 1 to "+most+",") {
		t.Errorf("%s is answered with %d %s, want at most %s", query, got.status, got.text, most)
	}
}

func TestNoKindOfPurchaseHasMoreThanTheMaximum(t *testing.T) {
	a := serveSQLite(t)
	a.options.Catalogue.SetMaxQuantity(3)
	for _, path := range []string{"/reservations?goods_id=1&quantity=4", "/orders?lines=1:4", "/orders?lines=1:2,1:2"} {
		if got := a.post(t, path); got.status != http.StatusBadRequest || got.field() != "quantity" {
			t.Errorf("%s is answered with %d %s", path, got.status, got.text)
		}
	}
	if got := a.post(t, "/orders?lines=1:1,1:2"); got.status != http.StatusCreated {
		t.Errorf("the maximum itself is answered with %d %s", got.status, got.text)
	}
	a.left(t, map[int64]int64{1: 7})
}

func TestAPurchaseHasAtMostTheMaximum(t *testing.T) {
	a := serveSQLite(t)
	a.options.Catalogue.SetMaxQuantity(3)
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 10, "max_quantity": 5}`, http.StatusCreated)
	a.assertTooMany(t, "goods_id=1&quantity=4", "3")
	a.assertTooMany(t, "goods_id=2&quantity=6", "5")
	if got := a.buy(t, "goods_id=1&quantity=3"); got.status != http.StatusOK {
		t.Errorf("the maximum itself is answered with %d %s", got.status, got.text)
	}
	if got := a.buy(t, "goods_id=2&quantity=5"); got.status != http.StatusOK {
		t.Errorf("the maximum of an item above the configuration's is answered with %d %s", got.status, got.text)
	}
	if got := a.get(t, "/goods/2"); got.body["max_quantity"] != 5.0 || got.body["stock"] != 5.0 {
		t.Errorf("the item is %s", got.text)
	}
	a.asAdmin(t, http.MethodPatch, "/goods/2", `{"max_quantity": 1}`, http.StatusOK)
	a.assertTooMany(t, "goods_id=2&quantity=2", "1")
	a.asAdmin(t, http.MethodPatch, "/goods/2", `{"strategy": "mutex"}`, http.StatusOK)
	a.assertTooMany(t, "goods_id=2&quantity=2", "1") // what is not named stays
	if got := a.asAdmin(t, http.MethodPatch, "/goods/2", `{"max_quantity": null}`, http.StatusOK); got.body["max_quantity"] != nil || got.body["strategy"] != "mutex" {
		t.Errorf("cleared, the item is %s", got.text)
	}
	a.assertTooMany(t, "goods_id=2&quantity=4", "3")
}

func TestABadMaximumIsNamed(t *testing.T) {
	a := serveSQLite(t)
	for _, body := range []string{`{"max_quantity": 0}`, `{"max_quantity": 1000001}`, `{"max_quantity": "5"}`, `{"max_quantity": 1.5}`, `{"max_quantity": true}`} {
		if got := a.asAdmin(t, http.MethodPatch, "/goods/1", body, http.StatusBadRequest); got.field() != "max_quantity" {
			t.Errorf("%s is answered with %s", body, got.text)
		}
	}
	a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 10, "max_quantity": 0}`, http.StatusBadRequest)
	a.asAdmin(t, http.MethodPatch, "/goods/404404", `{"max_quantity": 5}`, http.StatusNotFound)
}

// A maximum says nothing about the strategy, and can be set while that is switched off.
func TestAMaximumIsSetBesideAStrategyThatIsOff(t *testing.T) {
	a := serveSQLite(t)
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"strategy": "mutex"}`, http.StatusOK)
	a.asAdmin(t, http.MethodPut, "/strategies/mutex", `{"enabled": false, "reason": "a test"}`, http.StatusOK)
	if got := a.asAdmin(t, http.MethodPatch, "/goods/1", `{"max_quantity": 2}`, http.StatusOK); got.body["max_quantity"] != 2.0 {
		t.Errorf("the item is %s", got.text)
	}
}

// What was sold under a key is replayed, whether it is in the ledger or still pending in
// Redis, also when the maximum is lower by now.
func TestAMaximumHidesNoOrder(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	a := serveHot(t, d, lab.Locks(t, d, backend.Redis), strategy.Registry(), hot.Options{Linger: lockWait})
	first := make(map[string]any)
	for _, name := range []string{"sql-conditional", "redis-stock"} {
		first[name] = a.buyAs(t, "goods_id=1&quantity=3&strategy="+name, "Idempotency-Key", name).body["order_id"]
	}
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"max_quantity": 2}`, http.StatusOK)
	for name, order := range first {
		got := a.buyAs(t, "goods_id=1&quantity=3&strategy="+name, "Idempotency-Key", name)
		if got.status != http.StatusOK || order == nil || got.body["order_id"] != order || got.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: the key is answered with %d %s, want order %v", name, got.status, got.text, order)
		}
	}
	a.assertTooMany(t, "goods_id=1&quantity=3", "2")
}

func TestAPurchaseOfTooMuchUsesNoRate(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Limits.User = handler.Rate{PerSecond: 0.001, Burst: 1} })
	a.options.Catalogue.SetMaxQuantity(3)
	for range 5 {
		a.assertTooMany(t, "goods_id=1&quantity=4&user_id=u", "3")
	}
	if got := a.buy(t, "goods_id=1&quantity=3&user_id=u"); got.status != http.StatusOK {
		t.Errorf("the first purchase is answered with %d %s", got.status, got.text)
	}
}
