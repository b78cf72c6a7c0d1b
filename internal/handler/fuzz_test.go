package handler_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry/metrics"
)

// attacked are the options of a replica that has goods 1, more of them than anybody
// buys, and one strategy.
func attacked(f *testing.F) handler.Options {
	f.Helper()
	store := labtest.Open(f, &servers.Database{Driver: repo.SQLite, DSN: filepath.Join(f.TempDir(), "stockd.db")}, "replica-1")
	entries := slices.DeleteFunc(strategy.Registry(), func(e strategy.Entry) bool { return e.Name != "sql-conditional" })
	catalogue := service.NewCatalogue(f.Context(), entries, strategy.Deps{Store: store, Group: strategy.Group{Batch: 5, Units: 1000, Queue: queue}}, 5*time.Second)
	f.Cleanup(func() { _ = catalogue.Close() }) // the test is over
	must.Do(f, catalogue.SetDefault(service.Mode{Strategy: "sql-conditional"}))
	o := handler.Options{
		Catalogue: catalogue, Inventory: service.NewInventory(store, catalogue), Feed: service.NewFeed(store), Reservations: service.NewReservations(store, catalogue, time.Hour, metrics.New(metrics.Build{})),
		TTL: 15 * time.Minute, LongestTTL: time.Hour, PublicConfirm: true, Replica: "replica-1", Choose: true, Reveal: true,
		MaxBody: 4096, Log: slog.New(slog.DiscardHandler), Observer: metrics.New(metrics.Build{}), TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")},
		Limits: handler.Limits{User: rate.Rate{PerSecond: 1e6, Burst: 1e6}, Address: rate.Rate{PerSecond: 1e6, Burst: 1e6}},
	}
	created := serveOnce(handler.Admin(o, admintoken.Single(token)), http.MethodPost, "/goods", "", "goods_id=1&stock=1000000000000", http.Header{
		"Authorization": {"Bearer " + token}, "Content-Type": {"application/x-www-form-urlencoded"},
	})
	if created.Code != http.StatusCreated {
		f.Fatal(created.Body)
	}
	return o
}

// serveOnce has a request served that need not be one that a client could write.
func serveOnce(h http.Handler, method, path, query, body string, header http.Header) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, &http.Request{
		Method: method, URL: &url.URL{Path: path, RawQuery: query}, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(strings.NewReader(body)), Host: "localhost", RemoteAddr: "192.0.2.1:1",
	})
	return w
}

// fit is what a request may be named.
func fit() *regexp.Regexp { return regexp.MustCompile(`^[a-zA-Z0-9\-._~:/+=@]{1,128}$`) }

// civil wants an answer that is meant: what was asked for, or a problem that tells
// the client what is wrong, and none of the server's making.
func civil(t *testing.T, w *httptest.ResponseRecorder, allowed ...int) {
	t.Helper()
	if !slices.Contains(allowed, w.Code) {
		t.Errorf("it is answered with %d %s", w.Code, w.Body)
	}
	if id := w.Header().Get("X-Request-ID"); !fit().MatchString(id) {
		t.Errorf("it is named %q", id)
	}
	if w.Code < 400 {
		return
	}
	var p struct {
		Type   string `json:"type"`
		Status int    `json:"status"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || !strings.HasPrefix(p.Type, handler.TypePrefix) || p.Status != w.Code ||
		w.Header().Get("Content-Type") != "application/problem+json" {
		t.Errorf("it is answered with %d %s (%v), which is no problem", w.Code, w.Body, err)
	}
}

// Whatever is sent as a purchase is one within bounds, or the client's mistake.
func FuzzDeduct(f *testing.F) {
	for _, seed := range [][6]string{
		{"goods_id=1", "", "", "", "", ""},
		{"goods_id=1&quantity=2&user_id=u-1&group=true", "", "", "key-1", "balancer/7", "198.51.100.1"},
		{"strategy=sql-conditional", "application/json", `{"goods_id": 1, "quantity": 3, "user_id": 17, "group": false}`, "", "", "10.0.0.1, 192.0.2.7"},
		{"", "application/x-www-form-urlencoded", "goods_id=1&quantity=1000000&durable=sql", "", "", "2001:db8::1%eth0"},
		{"goods_id=1&goods_id=1", "", "", "two words", `<script>`, "' OR 1=1"},
		{"goods_id=9223372036854775808&quantity=-1", "application/json; charset=utf-8", `{"quantity": 1e3}`, strings.Repeat("k", 129), strings.Repeat("x", 129), ","},
		{"%zz", "application/json", `{"goods_id": {"$gt": 0}}`, "\x00", "\r\nX: y", "\xff"},
		{"goods_id=1;fence=true", "text/plain", "[1]", "", "", ""},
		{"goods_id=1&fence=true&user_id=%ff", "application/json", `{"goods_id": 1} {}`, "", "", ""},
	} {
		f.Add(seed[0], seed[1], seed[2], seed[3], seed[4], seed[5])
	}
	public := handler.Public(attacked(f))
	f.Fuzz(func(t *testing.T, query, media, body, key, id, forwarded string) {
		header := http.Header{"Content-Type": {media}, "X-Request-Id": {id}, "X-Forwarded-For": {forwarded}}
		if key != "" {
			header.Set("Idempotency-Key", key)
		}
		w := serveOnce(public, http.MethodPost, "/deduct", query, body, header)
		civil(t, w, http.StatusOK, http.StatusBadRequest, http.StatusNotFound, http.StatusConflict,
			http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity)
		if w.Code != http.StatusOK {
			return
		}
		var sold struct {
			OrderID  string `json:"order_id"`
			GoodsID  int64  `json:"goods_id"`
			Quantity int64  `json:"quantity"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &sold); err != nil || sold.OrderID == "" || sold.GoodsID != 1 ||
			sold.Quantity < 1 || sold.Quantity > stock.MaxQuantity || len(key) > stock.MaxRequestID || fit().MatchString(id) && w.Header().Get("X-Request-ID") != id {
			t.Errorf("%s is sold, named %q (%v)", w.Body, w.Header().Get("X-Request-ID"), err)
		}
	})
}

// The admin's requests, ids in paths among them, are within bounds or rejected.
func FuzzAdmin(f *testing.F) {
	f.Add("1", "quantity=5", "", "")
	f.Add("2", "", "application/json", `{"goods_id": 2, "stock": 10}`)
	f.Add("-1", "full=true", "application/x-www-form-urlencoded", "goods_id=3&stock=1000000000001")
	f.Add("9223372036854775808", "quantity=1000000000000", "application/json", `{"goods_id": "4", "stock": null}`)
	f.Add("1/../2", "goods_id=5&stock=0", "application/json", `{"goods_id": 5}`)
	f.Add("%31\x00", "full=maybe", "text/html", "\xff")
	f.Add("1", "max_quantity=5&per_user=0", "", "")
	f.Add("1", "", "application/json", `{"max_quantity": null, "per_user": 1000000001}`)
	f.Add("6", "", "application/json", `{"goods_id": 6, "stock": 1, "max_quantity": 1000001}`)
	f.Add("1", "max_quantity=", "application/x-www-form-urlencoded", "strategy=sql-conditional&group=true&fence=false")
	admin := handler.Admin(attacked(f), admintoken.Single(token))
	f.Fuzz(func(t *testing.T, id, query, media, body string) {
		header := http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {media}}
		for _, r := range [][2]string{
			{http.MethodPost, "/goods"},
			{http.MethodPost, "/goods/" + id + "/restock"},
			{http.MethodPatch, "/goods/" + id},
			{http.MethodGet, "/goods/" + id},
			{http.MethodGet, "/goods/" + id + "/audit"},
		} {
			w := serveOnce(admin, r[0], r[1], query, body, header)
			civil(t, w, http.StatusOK, http.StatusCreated, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed,
				http.StatusConflict, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
			var goods struct {
				Stock       int64  `json:"stock"`
				MaxQuantity *int64 `json:"max_quantity"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &goods); err != nil || goods.Stock < 0 || goods.Stock > stock.MaxStock ||
				goods.MaxQuantity != nil && (*goods.MaxQuantity < 1 || *goods.MaxQuantity > stock.MaxQuantity) {
				t.Errorf("%s %s is answered with %s (%v)", r[0], r[1], w.Body, err)
			}
		}
	})
}
