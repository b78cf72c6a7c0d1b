package handler_test

import (
	"net/http"
	"testing"
)

//contract:api.changeGoods A limit holds
//contract:api.schemas PerUser:
func TestABuyerIsLimitedPerItem(t *testing.T) {
	a := serveSQLite(t)
	if got := a.asAdmin(t, http.MethodPost, "/goods", `{"goods_id": 2, "stock": 10, "per_user": 3}`, http.StatusCreated); got.body["per_user"] != 3.0 {
		t.Errorf("created as %s, want a limit of 3", got.text)
	}
	if got := a.get(t, "/goods/2"); got.body["per_user"] != 3.0 {
		t.Errorf("the item is %s, want a limit of 3", got.text)
	}
	first := a.buyAs(t, "goods_id=2&quantity=2&user_id=a", "Idempotency-Key", "sold")
	if first.status != http.StatusOK {
		t.Fatalf("within the limit the answer is %d %s", first.status, first.text)
	}
	for range 2 { // the second time under a new key
		got := a.buyAs(t, "goods_id=2&quantity=2&user_id=a", "Idempotency-Key", "rejected")
		if got.status != http.StatusConflict || got.problem() != "user-limit" || got.body["per_user"] != 3.0 || got.body["has"] != 2.0 {
			t.Errorf("beyond the limit the answer is %d %s", got.status, got.text)
		}
		if got.header.Get("Retry-After") != "" {
			t.Error("waiting does not help")
		}
	}
	if got := a.buyAs(t, "goods_id=2&quantity=2&user_id=a", "Idempotency-Key", "sold"); got.text != first.text {
		t.Errorf("the key that was sold is answered with %s, then with %s", first.text, got.text)
	}
	if got := a.buy(t, "goods_id=2"); got.status != http.StatusBadRequest || got.field() != "user_id" {
		t.Errorf("without a user_id the answer is %d %s", got.status, got.text)
	}
	if got := a.asAdmin(t, http.MethodPatch, "/goods/2", `{"per_user": 4}`, http.StatusOK); got.body["per_user"] != 4.0 || got.body["stock"] != 8.0 {
		t.Errorf("changed to %s, want a limit of 4 and 8 in stock", got.text)
	}
	if got := a.buyAs(t, "goods_id=2&quantity=2&user_id=a", "Idempotency-Key", "rejected"); got.status != http.StatusOK {
		t.Errorf("under a higher limit the answer is %d %s", got.status, got.text)
	}
	if got := a.asAdmin(t, http.MethodGet, "/goods/2/audit?full=true", "", http.StatusOK); got.body["clean"] != true || got.body["buyers"] == nil {
		t.Errorf("the audit is %s", got.text)
	}
	a.asAdmin(t, http.MethodPatch, "/goods/2", `{"per_user": 0}`, http.StatusOK)
	if got := a.buy(t, "goods_id=2&quantity=6"); got.status != http.StatusOK {
		t.Errorf("without a limit the answer is %d %s", got.status, got.text)
	}
}

//contract:api.changeGoods An empty strategy
func TestABadLimitIsNamed(t *testing.T) {
	a := serveSQLite(t)
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{http.MethodPost, "/goods", `{"goods_id": 3, "stock": 1, "per_user": -1}`, http.StatusBadRequest, "per_user"},
		{http.MethodPost, "/goods", `{"goods_id": 3, "stock": 1, "per_user": 1000000001}`, http.StatusBadRequest, "per_user"},
		{http.MethodPatch, "/goods/1", `{"per_user": "many"}`, http.StatusBadRequest, "per_user"},
		{http.MethodPatch, "/goods/1", `{"per_user": null}`, http.StatusBadRequest, "per_user"},
		{http.MethodPatch, "/goods/1", `{}`, http.StatusBadRequest, "per_user"},
		{http.MethodPatch, "/goods/1", `{"stock": 3}`, http.StatusBadRequest, "stock"},
		{http.MethodPatch, "/goods/x", `{"per_user": 3}`, http.StatusBadRequest, "goods_id"},
		{http.MethodPatch, "/goods/9", `{"per_user": 3}`, http.StatusNotFound, ""},
	} {
		if got := a.asAdmin(t, c.method, c.path, c.body, c.status); got.field() != c.field {
			t.Errorf("%s %s %s names %q, want %q: %s", c.method, c.path, c.body, got.field(), c.field, got.text)
		}
	}
	if got := send(t, request(t, http.MethodPatch, a.public.URL+"/goods/1", jsonType, `{"per_user": 3}`)); got.status != http.StatusMethodNotAllowed {
		t.Errorf("a buyer who sets a limit is answered with %d %s", got.status, got.text)
	}
}
