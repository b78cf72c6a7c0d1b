package handler_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/admintoken"
	"github.com/stockd/stockd/internal/handler"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry/metrics"
)

// sendRaw has the admin API serve a request that no HTTP client would send as it is.
func sendRaw(h http.Handler, method, path string, change func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "http://localhost"+path, http.NoBody) //nolint:noctx // it is served at once
	r.Host = "localhost"                                                   // of CONNECT, too
	change(r)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// from has a request come from an address.
func from(address string) func(*http.Request) {
	return func(r *http.Request) { r.RemoteAddr = address + ":1" }
}

// Nothing but the whole token, once, is accepted; the scheme is compared as RFC 9110 wants.
func TestOnlyTheWholeTokenIsAccepted(t *testing.T) {
	admin := handler.Admin(handler.Options{Log: slog.New(slog.DiscardHandler), MaxBody: 1024, Observer: metrics.New(metrics.Build{})}, admintoken.Single(token))
	for i, c := range []struct {
		name   string
		values []string
		want   int
	}{
		{"as it is", []string{"Bearer " + token}, http.StatusNotFound},
		{"the scheme in lower case", []string{"bearer " + token}, http.StatusNotFound},
		{"the scheme in upper case", []string{"BEARER " + token}, http.StatusNotFound},
		{"none", nil, http.StatusUnauthorized},
		{"empty", []string{""}, http.StatusUnauthorized},
		{"an empty token", []string{"Bearer "}, http.StatusUnauthorized},
		{"the scheme alone", []string{"Bearer"}, http.StatusUnauthorized},
		{"no scheme", []string{token}, http.StatusUnauthorized},
		{"another scheme", []string{"Basic " + token}, http.StatusUnauthorized},
		{"a suffix", []string{"Bearer " + token + "x"}, http.StatusUnauthorized},
		{"a blank behind", []string{"Bearer " + token + " "}, http.StatusUnauthorized},
		{"a second token behind", []string{"Bearer " + token + ", Bearer " + token}, http.StatusUnauthorized},
		{"a NUL behind", []string{"Bearer " + token + "\x00"}, http.StatusUnauthorized},
		{"a prefix before it", []string{"Bearer x" + token}, http.StatusUnauthorized},
		{"two blanks before it", []string{"Bearer  " + token}, http.StatusUnauthorized},
		{"all but the last", []string{"Bearer " + token[:len(token)-1]}, http.StatusUnauthorized},
		{"all but the first", []string{"Bearer " + token[1:]}, http.StatusUnauthorized},
		{"in upper case", []string{"Bearer " + strings.ToUpper(token)}, http.StatusUnauthorized},
		{"twice", []string{"Bearer " + token, "Bearer " + token}, http.StatusUnauthorized},
		{"and a wrong one", []string{"Bearer " + token, "Bearer wrong"}, http.StatusUnauthorized},
	} {
		got := sendRaw(admin, http.MethodGet, "/nowhere", func(r *http.Request) {
			from(fmt.Sprintf("198.51.100.%d", i))(r)
			r.Header["Authorization"] = c.values
		})
		should.Be(t, got.Code, c.want, "answered", c.name, got.Body)
	}
}

// Without a token no answer of the admin API reveals what is there, or switched on.
func TestWithoutATokenEveryPathIsTheSame(t *testing.T) {
	o := handler.Options{Log: slog.New(slog.DiscardHandler), MaxBody: 1024, Observer: metrics.New(metrics.Build{}), Pprof: true, Routes: openLab(t).Routes(), Metrics: metrics.New(metrics.Build{}).Handler()}
	for name, admin := range map[string]http.Handler{
		"all on":  handler.Admin(o, admintoken.Single(token)),
		"all off": handler.Admin(handler.Options{Log: o.Log, MaxBody: o.MaxBody, Observer: o.Observer}, admintoken.Single(token)),
	} {
		var first string
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "HOPE"} {
			for _, path := range []string{
				"/", "/goods", "/goods/", "/goods/1", "/goods/1/restock", "/strategies", "/strategies/naive", "/orders", "/metrics", "/readyz/",
				"/debug/pprof/", "/debug/pprof/heap", "/lab/faults", "/nowhere", "//goods", "/goods/..", "/goods/../healthz", "/healthz/", "/Healthz", "/*",
			} {
				got := sendRaw(admin, method, path, func(r *http.Request) {
					r.Header.Set("X-Request-ID", "the-same")
					if path == "/*" { // OPTIONS * asks for the whole server
						r.RequestURI, r.URL.Path = "*", "*"
					}
				})
				answer := fmt.Sprint(got.Code, got.Result().Header, got.Body)
				if first == "" {
					first = answer
				}
				if answer != first || got.Code != http.StatusUnauthorized {
					t.Errorf("%s: %s %s is answered with %s, want %s", name, method, path, answer, first)
				}
			}
		}
		should.Be(t, sendRaw(admin, "GET", "/healthz", func(*http.Request) {}).Code, http.StatusOK, name, "/healthz is answered with")
	}
}

// Ten wrong tokens of an address within a minute, and it has to wait, with a wrong one or with none: a right
// one is admitted, since a client that shares the address must not lock the admin out. Other addresses behind the
// same proxy, and right tokens, do not count.
func TestWrongTokensAreThrottledByAddress(t *testing.T) {
	var log bytes.Buffer
	n := observed()
	admin := handler.Admin(handler.Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)), MaxBody: 1024, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}, Observer: n,
	}, admintoken.Single(token))
	send := func(client, given string) *httptest.ResponseRecorder {
		return sendRaw(admin, http.MethodGet, "/nowhere", func(r *http.Request) {
			from("192.0.2.1")(r)
			r.Header.Set("X-Forwarded-For", client)
			if given != "" {
				r.Header.Set("Authorization", given)
			}
		})
	}
	const right, wrong, basic = "Bearer " + token, "Bearer wrong-token-of-a-stranger", "Basic wrong-token-of-a-stranger"
	for i := range 30 {
		got := send("2001:db8::1", right)
		must.Be(t, got.Code, http.StatusNotFound, "right token", i, "is answered with", got.Body)
		got = send("2001:db8::1", "")
		must.Be(t, got.Code, http.StatusUnauthorized, "request", i, "without a token is answered with", got.Body)
	}
	for i := range 10 {
		got := send(fmt.Sprintf("2001:db8::%d", i+1), []string{wrong, basic}[i%2])
		should.Be(t, got.Code, http.StatusUnauthorized, "wrong token", i+1, "is answered with", got.Body)
	}
	for range 30 {
		got := send("2001:db8::ffff", right)
		must.Be(t, got.Code, http.StatusNotFound, "after ten wrong ones the right token is answered with", got.Body)
	}
	for _, given := range []string{wrong, basic, ""} {
		got := send("2001:db8::ffff", given)
		if got.Code != http.StatusTooManyRequests || !within(got.Header().Get("Retry-After"), 3, 8) || !strings.Contains(got.Body.String(), "urn:stockd:problem:rate-limited") {
			t.Errorf("after ten wrong ones %q is answered with %d %v %s", given, got.Code, got.Header(), got.Body)
		}
	}
	got := send("2001:db8:0:1::1", "")
	should.Be(t, got.Code, http.StatusUnauthorized, "another one behind the same proxy is answered with", got.Body)
	seen := n.seen()
	should.Be(t, seen["limited by token"], 3, "three requests were throttled, and the observer was notified of", seen)
	// The log of a replica writes those that repeat at a bounded rate.
	lines := strings.Count(log.String(), "wrong admin token")
	if lines != 10 || !strings.Contains(log.String(), "client=2001:db8::1 method=GET path=/nowhere audit=true") || strings.Contains(log.String(), "stranger") {
		t.Errorf("ten wrong tokens are logged in %d lines:\n%s", lines, &log)
	}
}

// A page whose name was made to resolve to this machine is not served.
func TestTheAdminAPIServesItsOwnHostsOnly(t *testing.T) {
	serve := func(hosts ...string) http.Handler {
		return handler.Admin(handler.Options{Log: slog.New(slog.DiscardHandler), MaxBody: 1024, Observer: metrics.New(metrics.Build{}), AdminHosts: hosts}, admintoken.Single(token))
	}
	named, open := serve("shop.internal"), serve("*")
	for host, want := range map[string]int{
		"127.0.0.1:8081": http.StatusNotFound, "192.0.2.7": http.StatusNotFound, "[::1]:8081": http.StatusNotFound, "[::1]": http.StatusNotFound,
		"localhost": http.StatusNotFound, "LOCALHOST.:8081": http.StatusNotFound, "shop.internal": http.StatusNotFound, "Shop.Internal:8081": http.StatusNotFound,
		"rebound.example": http.StatusMisdirectedRequest, "rebound.example:8081": http.StatusMisdirectedRequest,
		"127.0.0.1.rebound.example": http.StatusMisdirectedRequest, "localhost.rebound.example": http.StatusMisdirectedRequest,
		"x.shop.internal": http.StatusMisdirectedRequest, "shop.internal.example": http.StatusMisdirectedRequest,
		"": http.StatusMisdirectedRequest, "*": http.StatusMisdirectedRequest, "127.0.0.1@rebound.example": http.StatusMisdirectedRequest,
	} {
		change := func(r *http.Request) {
			r.Host = host
			r.Header.Set("Authorization", "Bearer "+token)
		}
		got := sendRaw(named, http.MethodGet, "/nowhere", change)
		should.Be(t, got.Code, want, "host", host, "is answered with", got.Body)
		got = sendRaw(open, http.MethodGet, "/nowhere", change)
		should.Be(t, got.Code, http.StatusNotFound, "where all are allowed host", host, "is answered with", got.Body)
	}
	// It is rejected before its token is looked at.
	for range 20 {
		got := sendRaw(named, http.MethodPost, "/goods", func(r *http.Request) {
			r.Host = "rebound.example"
			r.Header.Set("Authorization", "Bearer wrong")
		})
		if got.Code != http.StatusMisdirectedRequest || got.Result().Header.Get("Allow") != "" {
			t.Fatalf("a wrong token of another host is answered with %d %v %s", got.Code, got.Result().Header, got.Body)
		}
	}
}

func TestProfilesAreForTheAdminWhereEnabled(t *testing.T) {
	const path = "/debug/pprof/goroutine?debug=1"
	a := serveSQLite(t)
	a.asAdmin(t, http.MethodGet, path, "", http.StatusNotFound).is(t, "not-found")
	a = a.withAdmin(t, func(o *handler.Options) { o.Pprof = true })
	send(t, request(t, http.MethodGet, a.admin.URL+path, "", "")).is(t, "unauthorized")
	a.get(t, path).is(t, "not-found")
	for path, want := range map[string]string{
		path: "goroutine profile:", "/debug/pprof/": "goroutine", "/debug/pprof/profile?seconds=1": "\x1f\x8b",
		"/debug/pprof/trace?seconds=0.01": "go 1", "/debug/pprof/symbol": "num_symbols: 1",
	} {
		if status, text := a.ownersText(t, path); status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("%s with the token: %d %.200q", path, status, text)
		}
	}
	for _, path := range []string{"/debug/pprof/cmdline", "/debug/pprof/hope"} {
		a.asAdmin(t, http.MethodGet, path, "", http.StatusNotFound).is(t, "not-found")
	}
}
