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
	"github.com/stockd/stockd/internal/telemetry"
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
	r := request(t, http.MethodPost, a.public.URL+"/deduct?"+query, "", "")
	r.Header.Set(header, value)
	return send(t, r)
}

func TestARequestIDIsTakenAndReturned(t *testing.T) {
	var log bytes.Buffer
	a := serveSQLite(t).with(t, func(o *handler.Options) {
		o.Log = slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	})
	for _, query := range []string{"goods_id=1", "goods_id=none"} {
		got := a.buyAs(t, query, "X-Request-ID", "balancer/7:a.b_c~d+e=@")
		if id := got.header.Get("X-Request-ID"); id != "balancer/7:a.b_c~d+e=@" {
			t.Errorf("the answer to %s is named %q", query, id)
		}
		if got.status != http.StatusOK && got.body["instance"] != "urn:stockd:request:balancer/7:a.b_c~d+e=@" {
			t.Errorf("the problem does not name the request: %s", got.text)
		}
	}
	a.public.Close() // so that all of the log is written
	if named := strings.Count(log.String(), `request_id="balancer/7:a.b_c~d+e=@"`); named != 2 {
		t.Errorf("the log names the request %d times, want 2:\n%s", named, &log)
	}
}

// What is not fit for a log is replaced, and no request fails for it.
func TestARequestIDIsBounded(t *testing.T) {
	a := serveSQLite(t)
	seen := make(map[string]bool)
	for _, id := range []string{"", strings.Repeat("x", 129), "two words", `<script>alert(1)</script>`, `"; DROP TABLE`, "naïve", "a\tb"} {
		got := a.buyAs(t, "goods_id=none", "X-Request-ID", id)
		returned := got.header.Get("X-Request-ID")
		if returned == id || returned == "" || len(returned) > 40 || seen[returned] {
			t.Errorf("%q is answered as %q", id, returned)
		}
		seen[returned] = true
	}
	longest := strings.Repeat("x", 128)
	if got := a.buyAs(t, "goods_id=1", "X-Request-ID", longest).header.Get("X-Request-ID"); got != longest {
		t.Errorf("the longest request id is answered as %q", got)
	}
}

const onceOnly = 0.001 // a second: no test takes a quarter of an hour

func TestARateByUser(t *testing.T) {
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Limits.User = handler.Rate{PerSecond: onceOnly, Burst: 2} })
	for i, c := range []struct {
		path string
		want int
	}{
		{"/deduct", http.StatusOK}, {"/reservations", http.StatusCreated}, {"/reservations", http.StatusTooManyRequests}, {"/deduct", http.StatusTooManyRequests},
	} {
		got := a.post(t, c.path+"?goods_id=1&user_id=u-1")
		if got.status != c.want {
			t.Errorf("purchase %d is answered with %d %s", i+1, got.status, got.text)
		}
		if c.want == http.StatusTooManyRequests && (got.problem() != "rate-limited" || !within(got.header.Get("Retry-After"), 1000, 1002)) {
			t.Errorf("too often is answered with %s, Retry-After %q", got.text, got.header.Get("Retry-After"))
		}
	}
	for _, query := range []string{"goods_id=1&user_id=u-2", "goods_id=1&user_id=u-3"} {
		if got := a.buy(t, query); got.status != http.StatusOK {
			t.Errorf("%s is answered with %d %s", query, got.status, got.text)
		}
	}
	if got := a.get(t, "/goods/1").body["stock"]; got != 6.0 {
		t.Errorf("%v are left, want 6: what was rejected was sold, or the reverse", got)
	}
}

// No client becomes another one by a header.
func TestAForgedAddressIsNotBelieved(t *testing.T) {
	limited := func(o *handler.Options) { o.Limits.Address = handler.Rate{PerSecond: onceOnly, Burst: 1} }
	for _, c := range []struct {
		name    string
		proxies []string
		second  string // the X-Forwarded-For of a second request; the first has 192.0.2.1
		status  int
	}{
		{"no proxy is trusted", nil, "192.0.2.2", http.StatusTooManyRequests},
		{"another proxy is trusted", []string{"192.0.2.0/24"}, "192.0.2.2", http.StatusTooManyRequests},
		{"a proxy is trusted", []string{"127.0.0.1"}, "192.0.2.2", http.StatusOK},
		{"a proxy is trusted, what its client forged is not", []string{"127.0.0.0/8"}, "192.0.2.2, 192.0.2.1", http.StatusTooManyRequests},
		{"a proxy is trusted, a header that is none is not", []string{"127.0.0.1"}, "' OR 1=1", http.StatusOK}, // it is the proxy's own
	} {
		t.Run(c.name, func(t *testing.T) {
			a := serveSQLite(t).with(t, limited).with(t, func(o *handler.Options) { o.TrustedProxies = c.proxies })
			if got := a.buyAs(t, "goods_id=1", "X-Forwarded-For", "192.0.2.1"); got.status != http.StatusOK {
				t.Fatalf("the first request is answered with %d %s", got.status, got.text)
			}
			got := a.buyAs(t, "goods_id=1", "X-Forwarded-For", c.second)
			if got.status != c.status || got.status != http.StatusOK && got.problem() != "rate-limited" {
				t.Errorf("the second is answered with %d %s, want %d", got.status, got.text, c.status)
			}
			for _, path := range []string{"/readyz", "/healthz"} {
				if got := a.get(t, path); got.status != http.StatusOK {
					t.Errorf("the balancer's question %s is counted: %d %s", path, got.status, got.text)
				}
			}
		})
	}
}

// The balancer learns of it, and so does every client with a connection; they
// are served all the same.
func TestAReplicaThatStopsSaysSo(t *testing.T) {
	var stopping atomic.Bool
	a := serveSQLite(t).with(t, func(o *handler.Options) { o.Stopping = stopping.Load })
	if got := a.get(t, "/readyz"); got.status != http.StatusOK {
		t.Fatalf("before it is %d %s", got.status, got.text)
	}
	stopping.Store(true)
	if got := a.get(t, "/readyz"); got.status != http.StatusServiceUnavailable || got.problem() != "stopping" {
		t.Errorf("/readyz is answered with %d %s", got.status, got.text)
	}
	response, err := http.DefaultClient.Do(request(t, http.MethodPost, a.public.URL+"/deduct?goods_id=1", "", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // only its head was wanted
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("a purchase is answered with %s, and the connection is closed: %v", response.Status, response.Close)
	}
	a = a.withAdmin(t, func(*handler.Options) {})
	for _, url := range []string{a.public.URL + "/readyz", a.public.URL + "/nowhere", a.admin.URL + "/goods/1"} {
		response, err := http.DefaultClient.Do(request(t, http.MethodGet, url, "", ""))
		if err != nil {
			t.Fatal(err)
		}
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
	r := request(t, http.MethodGet, a.admin.URL+path, "", "")
	r.Header.Set("Authorization", "Bearer "+token)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it has been read
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// within tells whether a header is a whole number between two.
func within(header string, least, most int) bool {
	seconds, err := strconv.Atoi(header)
	return err == nil && seconds >= least && seconds <= most
}
