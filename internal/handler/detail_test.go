package handler_test

import (
	"net/http"
	"strings"
	"testing"
)

// A detail says once what is wrong, with the value and what is allowed.
func TestADetailNamesTheValueAndWhatIsAllowed(t *testing.T) {
	a := serveSQLite(t)
	for _, c := range []struct {
		name, method, url, body, want string
	}{
		{"an item that is not there", http.MethodGet, a.public.URL + "/goods/99/audit", "", "item 99: unknown item"},
		{"a purchase of it", http.MethodPost, a.public.URL + "/deduct", `{"goods_id": 99}`, "item 99: unknown item"},
		{"a basket with it", http.MethodPost, a.public.URL + "/orders", `{"lines": [{"goods_id": 1}, {"goods_id": 99}]}`, "item 99: unknown item"},
		{"an item that is there", http.MethodPost, a.admin.URL + "/goods", `{"goods_id": 1, "stock": 1}`, "item 1: exists already"},
		{"an unknown strategy of an item", http.MethodPatch, a.admin.URL + "/goods/1", `{"strategy": "hope"}`, "strategy must be one of naive, naive-decrement, "},
		{"another method", http.MethodPut, a.public.URL + "/deduct", "", "/deduct takes POST, not PUT"},
		{"half of an object", http.MethodPost, a.public.URL + "/deduct", `{"goods_id": 1`, "body is not one JSON object: it ends too early"},
		{"half of a name", http.MethodPost, a.public.URL + "/deduct", `{"goods_`, "body is not one JSON object: it ends too early"},
		{"half of a list", http.MethodPost, a.public.URL + "/orders", `{"lines": [{"goods_id": 1}`, "body is not one JSON object: it ends too early"},
	} {
		r := request(t, c.method, c.url, jsonType, c.body)
		r.Header.Set("Authorization", "Bearer "+token)
		if got, _ := send(t, r).body["detail"].(string); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: the detail is %q, want %q", c.name, got, c.want)
		}
	}
}
