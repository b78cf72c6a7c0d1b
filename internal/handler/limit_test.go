package handler_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

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

// What is allowed is allowed to its edge, and names its field beyond.
func TestTheLargestValueOfAFieldIsAllowed(t *testing.T) {
	a := serveSQLite(t)
	for _, c := range []struct {
		field, method, path string
		largest, more       string
		status              int
	}{
		{"per_user", http.MethodPatch, "/goods/1?per_user=", "1000000000", "1000000001", http.StatusOK},
		{"max_quantity", http.MethodPatch, "/goods/1?max_quantity=", "1000000", "1000001", http.StatusOK},
		{"stock", http.MethodPost, "/goods?goods_id=2&stock=", "1000000000000", "1000000000001", http.StatusCreated},
		{"goods_id", http.MethodPost, "/goods?stock=1&goods_id=", "9223372036854775807", "9223372036854775808", http.StatusCreated},
		{"quantity", http.MethodPost, "/goods/2/restock?quantity=", "1000000000000", "1000000000001", http.StatusConflict},
		{"limit", http.MethodGet, "/orders?limit=", "1000", "1001", http.StatusOK},
		{"reader", http.MethodGet, "/orders?reader=", strings.Repeat("é", 64), strings.Repeat("é", 65), http.StatusOK},
		{"request_id", http.MethodGet, "/orders?request_id=", strings.Repeat("k", 128), strings.Repeat("k", 129), http.StatusNotFound},
		{"payment_reference", http.MethodPost, "/reservations/none/confirm?payment_reference=", strings.Repeat("p", 128), strings.Repeat("p", 129), http.StatusNotFound},
		{"reason", http.MethodPut, "/strategies/mutex?enabled=false&reason=", strings.Repeat("r", 200), strings.Repeat("r", 201), http.StatusOK},
	} {
		a.asAdmin(t, c.method, c.path+url.QueryEscape(c.largest), "", c.status)
		if got := a.asAdmin(t, c.method, c.path+url.QueryEscape(c.more), "", http.StatusBadRequest); got.field() != c.field {
			t.Errorf("%s of %s is answered with %s", c.field, c.more, got.text)
		}
	}
	a.asAdmin(t, http.MethodPatch, "/goods/1", `{"per_user": 0, "max_quantity": null}`, http.StatusOK)
	for query, problem := range map[string]string{"quantity=1000000": "insufficient-stock", "strategy=" + strings.Repeat("s", 64): "unknown-strategy", "strategy=" + strings.Repeat("s", 65): "invalid-request"} {
		if got := a.buy(t, "goods_id=1&"+query); got.problem() != problem {
			t.Errorf("a purchase with %s is answered with %d %s", query, got.status, got.text)
		}
	}
}
