package handler_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry"
	"github.com/stockd/stockd/internal/telemetry/metrics"
)

// with serves the same replica with other options.
func (a api) with(t *testing.T, change func(o *handler.Options)) api {
	t.Helper()
	change(&a.options)
	a.public = httptest.NewServer(handler.Public(a.options))
	t.Cleanup(a.public.Close)
	return a
}

// buyAs buys with one more header.
func (a api) buyAs(t *testing.T, query, header, value string) answer {
	t.Helper()
	return a.post(t, "/deduct?"+query, header, value)
}

func TestARequestIDIsTakenAndReturned(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).with(t, func(o *handler.Options) {
		o.Log = slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	})
	for _, query := range []string{"goods_id=1", "goods_id=none"} {
		got := a.buyAs(t, query, "X-Request-ID", "balancer/7:a.b_c~d+e=@")
		should.Be(t, got.header.Get("X-Request-ID"), "balancer/7:a.b_c~d+e=@", "the answer to", query)
		if got.status != http.StatusOK && got.body["instance"] != "urn:stockd:request:balancer/7:a.b_c~d+e=@" {
			t.Errorf("the problem does not name the request: %s", got.text)
		}
	}
	a.public.Close() // so that all of the log is written
	should.Be(t, strings.Count(log.String(), `request_id="balancer/7:a.b_c~d+e=@"`), 2, "the log names the request", &log)
}

const onceOnly = 0.001 // a second: no test takes a quarter of an hour

// What belongs to one buyer, what an admin reads and every problem stays out of caches; what all may read may be kept.
func TestWhatIsNotForAllIsNotStored(t *testing.T) {
	a := serveSQLite(t)
	a.ownerKeyed(t, "k-1", "/goods?goods_id=2&stock=1")
	const key = "0123456789abcdef-order"
	a.post(t, "/deduct?goods_id=1&user_id=u-1", "Idempotency-Key", key)
	for _, c := range []struct{ api, method, path, want string }{
		{a.public.URL, http.MethodPost, "/deduct?goods_id=1", "no-store"},
		{a.public.URL, http.MethodPost, "/reservations?goods_id=1", "no-store"},
		{a.public.URL, http.MethodGet, "/reservations/1", "no-store"},
		{a.public.URL, http.MethodGet, "/orders?user_id=u-1&request_id=" + key, "no-store"},
		{a.public.URL, http.MethodGet, "/orders/1", "no-store"},
		{a.public.URL, http.MethodGet, "/readyz", "no-store"},
		{a.public.URL, http.MethodGet, "/nowhere", "no-store"},
		{a.public.URL, http.MethodPut, "/goods/1", "no-store"},
		{a.public.URL, http.MethodGet, "/goods/99", "no-store"}, // it may be on sale soon
		{a.public.URL, http.MethodGet, "/goods/1", ""},
		{a.public.URL, http.MethodGet, "/strategies", ""},
		{a.public.URL, http.MethodGet, "/openapi.yaml", ""},
		{a.admin.URL, http.MethodGet, "/goods/1", "no-store"},
		{a.admin.URL, http.MethodGet, "/orders?goods_id=1", "no-store"},
		{a.admin.URL, http.MethodGet, "/readyz", "no-store"},
	} {
		r := request(t, c.method, c.api+c.path, "", "")
		if c.api == a.admin.URL {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response := must.Get(http.DefaultClient.Do(r))(t)
		must.Do(t, response.Body.Close())
		should.Be(t, response.Header.Get("Cache-Control"), c.want, c.method, c.path, response.Status)
	}
}

// A probe asks the admin API, which no crowd fills, and has no token.
func TestTheAdminAPITellsAProbeWhetherItIsReady(t *testing.T) {
	var stopping atomic.Bool
	a := serveSQLite(t).withAdmin(t, func(o *handler.Options) { o.Stopping = stopping.Load })
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		r := request(t, http.MethodGet, a.admin.URL+"/readyz", "", "")
		r.Host = "rebound.example" // as a load balancer may ask
		got := send(t, r)
		should.Be(t, got.status, want, "it is answered with", got.text)
		stopping.Store(true)
	}
}

// The balancer learns of it, and so does every client with a connection; they
// are served all the same.
func TestAReplicaThatStopsSaysSo(t *testing.T) {
	var stopping atomic.Bool
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Stopping = stopping.Load })
	a.get(t, "/readyz").is(t, "")
	stopping.Store(true)
	a.get(t, "/readyz").is(t, "stopping")
	response := must.Get(http.DefaultClient.Do(request(t, http.MethodPost, a.public.URL+"/deduct?goods_id=1", "", "")))(t)
	defer response.Body.Close() //nolint:errcheck // only its head was wanted
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("a purchase is answered with %s, and the connection is closed: %v", response.Status, response.Close)
	}
	a = a.withAdmin(t, func(*handler.Options) {})
	for _, url := range []string{a.public.URL + "/readyz", a.public.URL + "/nowhere", a.admin.URL + "/goods/1"} {
		response := must.Get(http.DefaultClient.Do(request(t, http.MethodGet, url, "", "")))(t)
		response.Body.Close() //nolint:errcheck // only its head was wanted
		if !response.Close {
			t.Errorf("%s leaves its connection open", url)
		}
	}
}

// withAdmin serves the same replica's admin API with other options.
func (a api) withAdmin(t *testing.T, change func(o *handler.Options)) api {
	t.Helper()
	change(&a.options)
	a.admin = httptest.NewServer(handler.Admin(a.options, admintoken.Single(token)))
	t.Cleanup(a.admin.Close)
	return a
}

// ownersText is what the owner is answered that is no JSON.
func (a api) ownersText(t *testing.T, path string) (status int, text string) {
	t.Helper()
	r := a.ownerRequest(t, http.MethodGet, path)
	response := must.Get(http.DefaultClient.Do(r))(t)
	defer response.Body.Close() //nolint:errcheck // it has been read
	content := must.Get(io.ReadAll(response.Body))(t)
	return response.StatusCode, string(content)
}

// within tells whether a header is a whole number between two.
func within(header string, least, most int) bool {
	seconds, err := strconv.Atoi(header)
	return err == nil && seconds >= least && seconds <= most
}

// A path is served as it is written, or it is rejected: nothing is redirected, cleaned or
// decoded into another path, and no header moves it. A proxy that allows some paths has allowed what is served.
func TestNoPathIsTakenForAnother(t *testing.T) {
	o := handler.Options{Log: slog.New(slog.DiscardHandler), MaxBody: 1024, Reveal: true, Observer: metrics.New(metrics.Build{})}
	public, admin := handler.Public(o), handler.Admin(o, admintoken.Single(token))
	change := func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("X-Forwarded-Prefix", "//rebound.example")
		r.Header.Set("X-Forwarded-Host", "rebound.example")
		r.Header.Set("X-Original-Url", "/goods/1")
	}
	for _, c := range []struct {
		name   string
		h      http.Handler
		method string
		paths  []string
	}{
		{"the public API", public, http.MethodPost, []string{
			"/deduct/", "//deduct", "/./deduct", "/deduct/..", "/deduct/../deduct", "/orders/../deduct", "/DEDUCT", "/Deduct", "/deduct//", "/deduct%2f", "/%2e%2e/deduct", "/deduct%00", "/deduct;x=1", "/ded%75ct",
		}},
		{"the public API", public, http.MethodGet, []string{"/goods/1/", "//goods/1", "/goods//1", "/goods/1/../../goods/1", "/GOODS/1", "/goods", "/goods/", "/readyz/", "/healthz/", "//healthz", "/goods/1%2Faudit", "/goods%2F1"}},
		{"the admin API", admin, http.MethodPost, []string{"/goods/", "//goods", "/goods/../goods", "/Goods", "/goods/1/restock/", "/goods//restock/"}},
		{"the admin API", admin, http.MethodGet, []string{"/goods/1/audit/", "//metrics", "/strategies/"}},
	} {
		for _, path := range c.paths {
			got := sendRaw(c.h, c.method, path, change)
			served := got.Code != http.StatusNotFound && got.Code != http.StatusMethodNotAllowed && got.Code != http.StatusBadRequest
			if served || got.Header().Get("Location") != "" {
				t.Errorf("%s: %s %s is answered with %d %v", c.name, c.method, path, got.Code, got.Header())
			}
		}
	}
}
