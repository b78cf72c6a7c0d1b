package handler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

func TestNoTwoProcessesNameTheirRequestsAlike(t *testing.T) {
	seen := make(map[string]bool)
	for range 500 {
		e, w := newEngine(Options{Log: slog.New(slog.DiscardHandler), Observer: new(requests), Replica: "shop-1"}, public), httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
		id := w.Header().Get("X-Request-ID")
		if seen[id] || strings.Contains(id, "shop-1") {
			t.Fatalf("a request of another process is named %q as well, or after its replica", id)
		}
		seen[id] = true
	}
}

// Half of an answer must not be taken for a whole one.
func TestAPanicInMidAnswerCutsTheConnection(t *testing.T) {
	var log bytes.Buffer
	seen := new(requests)
	e := newEngine(Options{Log: slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, nil))), MaxBody: 1024, Observer: seen}, public)
	e.GET("/half", func(c *gin.Context) {
		c.String(http.StatusOK, `{"order_id": `)
		c.Writer.Flush()
		panic("out of ink")
	})
	server := httptest.NewServer(e)
	defer server.Close()
	request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/half", http.NoBody))(t)
	request.Header.Set("X-Request-ID", "mine")
	response := must.Get(http.DefaultClient.Do(request))(t)
	defer response.Body.Close() //nolint:errcheck // it was cut
	if content, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("the answer seems to be whole: %q", content)
	}
	server.Close()
	if !slices.Equal(seen.ended, []string{"public /half 200"}) || seen.panicked != 1 {
		t.Errorf("the observer is notified of %+v", seen)
	}
	should.Contain(t, log.String(), "out of ink", "request_id=mine", "middleware_internal_test.go")
}

// A handler that aborts is no bug: the server cuts the connection, and it is neither logged nor counted as a panic.
func TestAnAbortedAnswerIsNoPanic(t *testing.T) {
	var log bytes.Buffer
	seen := new(requests)
	e := newEngine(Options{Log: slog.New(slog.NewTextHandler(&log, nil)), MaxBody: 1024, Observer: seen}, public)
	e.GET("/", func(*gin.Context) { panic(http.ErrAbortHandler) })
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint,err113 // the server compares it
			t.Errorf("the server gets %v", cause)
		}
		if log.Len() > 0 || seen.panicked != 0 || len(seen.ended) != 1 {
			t.Errorf("the observer is notified of %+v, and the log has %s", seen, &log)
		}
	}()
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody))
}

// A request is one span, a part of its caller's trace, and what it calls belongs to it.
func TestARequestIsASpan(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	spans := tracetest.NewSpanRecorder()
	e := newEngine(Options{Log: slog.New(slog.DiscardHandler), Observer: new(requests), MaxBody: 1024, Tracer: sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")}, public)
	var within trace.SpanContext
	e.GET("/orders/:id", func(c *gin.Context) {
		within = trace.SpanContextFromContext(c.Request.Context())
		c.Status(http.StatusAccepted)
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/orders/7", http.NoBody)
	r.Header.Set("Traceparent", "00-"+id+"-b7ad6b7169203331-01")
	r.Header.Set("X-Request-ID", "mine")
	e.ServeHTTP(httptest.NewRecorder(), r)
	ended := spans.Ended()
	must.Be(t, len(ended), 1, "the spans that have ended")
	span := ended[0]
	if span.Name() != "GET /orders/:id" || span.SpanKind() != trace.SpanKindServer || !within.Equal(span.SpanContext()) ||
		span.SpanContext().TraceID().String() != id || span.Parent().SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("the span is %s of kind %s, %v within %v, and its request %v", span.Name(), span.SpanKind(), span.SpanContext(), span.Parent(), within)
	}
	got := make(map[string]string)
	for _, a := range span.Attributes() {
		got[string(a.Key)] = a.Value.String()
	}
	want := map[string]string{"http.request.method": "GET", "http.route": "/orders/:id", "http.response.status_code": "202", "stockd.request_id": "mine"}
	if !maps.Equal(got, want) {
		t.Errorf("the span has %v, want %v", got, want)
	}
}

func TestATimeIsShownInUTCWithMicroseconds(t *testing.T) {
	at := time.Date(2026, time.May, 4, 1, 2, 3, 4_000, time.FixedZone("CEST", 7200))
	should.Be(t, timestamp(at), "2026-05-03T23:02:03.000004Z", at)
}

func TestARequestIDThatIsFitForALogIsKept(t *testing.T) {
	e := newEngine(Options{Log: slog.New(slog.DiscardHandler), Observer: new(requests)}, public)
	for id, kept := range map[string]bool{
		"az": true, "AZ": true, "09": true, "-._~:/+=@": true, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "": false, "a b": false, "{": false, "[": false, "`": false, "é": false, "a\x7f": false,
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set("X-Request-ID", id)
		e.ServeHTTP(w, r)
		if got := w.Header().Get("X-Request-ID"); (got == id) != kept || got == "" {
			t.Errorf("the request id %q is answered as %q, want it kept: %v", id, got, kept)
		}
	}
}

// requests is an observer of requests.
type requests struct {
	Observer

	began, ended []string
	panicked     int
}

func (r *requests) Began(listener string) { r.began = append(r.began, listener) }

func (r *requests) Ended(listener, route string, status int) {
	r.ended = append(r.ended, fmt.Sprint(listener, " ", route, " ", status))
}

func (r *requests) Panicked() { r.panicked++ }

// The log and the observer get what the request was answered with; the log has the caller's trace,
// and what needs an operator at the level of errors.
func TestWhatARequestWasAnsweredWithIsLoggedAndObserved(t *testing.T) {
	const id = "0af7651916cd43dd8448eb211c80319c"
	for _, c := range []struct {
		listener string
		err      error
		status   int
		want     string
	}{
		{public, errors.New("broken"), http.StatusInternalServerError, `msg="request failed"`},
		{admin, &stock.BackendError{Backend: "mysql", Err: io.EOF}, http.StatusServiceUnavailable, "backend=mysql"},
		{public, stock.ErrBusy, http.StatusServiceUnavailable, ""},
		{public, context.DeadlineExceeded, http.StatusServiceUnavailable, ""},
		{public, newProblem(http.StatusServiceUnavailable, "stopping", "This replica is about to stop"), http.StatusServiceUnavailable, ""},
		{admin, stock.ErrUnknownGoods, http.StatusNotFound, ""},
	} {
		var log bytes.Buffer
		seen := new(requests)
		o := Options{Log: slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))), Observer: seen}
		e := newEngine(o, c.listener)
		e.GET("/", o.ok(func(*gin.Context) (any, error) { return nil, c.err }))
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set("Traceparent", "00-"+id+"-b7ad6b7169203331-01")
		e.ServeHTTP(w, r)
		failed, served, _ := strings.Cut(log.String(), "level=DEBUG")
		if !slices.Equal(seen.began, []string{c.listener}) || !slices.Equal(seen.ended, []string{fmt.Sprint(c.listener, " / ", c.status)}) ||
			!strings.Contains(served, "status="+strconv.Itoa(c.status)) || !strings.Contains(served, "trace_id="+id) {
			t.Errorf("%v is answered with %d, observed as %v and logged as %s", c.err, w.Code, seen.ended, served)
		}
		if !strings.Contains(failed, c.want) || strings.Contains(failed, "level=ERROR") != (c.want != "") {
			t.Errorf("%v is logged for the operator as %q, want %q", c.err, failed, c.want)
		}
	}
}

// The server does not read the rest of a body that is too large.
func TestABodyThatIsTooLargeClosesItsConnection(t *testing.T) {
	e := newEngine(Options{Log: slog.New(slog.DiscardHandler), Observer: new(requests), MaxBody: 4}, public)
	e.POST("/", func(c *gin.Context) {
		answer(c, readForm(c.Request).err())
	})
	server := httptest.NewServer(e)
	defer server.Close()
	for body, large := range map[string]bool{"1234": false, "12345": true} {
		request := must.Get(http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader(body)))(t)
		response := must.Get(http.DefaultClient.Do(request))(t)
		response.Body.Close() //nolint:errcheck // only its head was wanted
		if (response.StatusCode == http.StatusRequestEntityTooLarge) != large || response.Close != large {
			t.Errorf("%d bytes of 4 are answered with %s, closed: %v", len(body), response.Status, response.Close)
		}
	}
}

// A purchase in a query has no body: reading that would cost half a KiB each time.
func TestNoBodyIsNotRead(t *testing.T) {
	e := newEngine(Options{Log: slog.New(slog.DiscardHandler), Observer: new(requests), MaxBody: 4}, public)
	e.POST("/", func(c *gin.Context) {
		should.Be(t, c.Request.Body == http.NoBody, true, "a request without a body has none")
	})
	e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody))
}

// FuzzHost reads any Host header as a browser would read the host of a page: two readers
// that differ would let a page of another name in.
func FuzzHost(f *testing.F) {
	for _, seed := range []string{"127.0.0.1:8081", "[::1]:8081", "::1", "localhost", "LOCALHOST.:1", "evil.example", "127.0.0.1.evil.example:80", "[::1", "a:b:c", "[fe80::1%25eth0]:1", ":1", "", "evil.example:localhost"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		host := hostOf(header)
		_, err := netip.ParseAddr(host)
		if err != nil && host != "localhost" {
			return // it is served only where it is listed
		}
		page, err := url.Parse("http://" + header + "/")
		if err != nil || page.Host != header {
			return // no browser goes there
		}
		name := strings.ToLower(strings.TrimSuffix(page.Hostname(), "."))
		if _, err := netip.ParseAddr(name); err != nil && name != "localhost" {
			t.Errorf("%q is read as %q, and by a browser as %q", header, host, name)
		}
	})
}

// A client with an IPv6 address has more of them than could be remembered.
func TestAddressesAreCountedByTheirNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":          "192.0.2.1",
		"::ffff:192.0.2.1":   "192.0.2.1", // as a proxy on a dual-stack socket sends it
		"2001:db8:1:2::1":    "2001:db8:1:2::/64",
		"2001:db8:1:2:f::99": "2001:db8:1:2::/64",
		"fe80::1%eth0":       "fe80::/64",
	} {
		should.Be(t, network(address), want, address)
	}
}

// Of what a trusted proxy sends, only X-Forwarded-For counts, and of that the right-most
// address that is not a trusted proxy's: whatever stands left of it, or in another
// header, a client may have written itself.
func TestTheAddressOfAClientIsWhatTheProxiesAppended(t *testing.T) {
	const proxy = "10.0.0.1:40000"
	type headers = http.Header
	for name, c := range map[string]struct {
		peer string
		sent headers
		want string
	}{
		"a proxy names a client":       {proxy, headers{"X-Forwarded-For": {"192.0.2.1"}}, "192.0.2.1"},
		"X-Real-IP beside it":          {proxy, headers{"X-Real-Ip": {"198.51.100.9"}, "X-Forwarded-For": {"192.0.2.1"}}, "192.0.2.1"},
		"X-Real-IP alone":              {proxy, headers{"X-Real-Ip": {"198.51.100.9"}}, "10.0.0.1"},
		"other headers":                {proxy, headers{"Forwarded": {"for=198.51.100.9"}, "X-Client-Ip": {"198.51.100.9"}, "Cf-Connecting-Ip": {"198.51.100.9"}}, "10.0.0.1"},
		"a forged address on the left": {proxy, headers{"X-Forwarded-For": {"198.51.100.9, 192.0.2.1"}}, "192.0.2.1"},
		"several hops":                 {proxy, headers{"X-Forwarded-For": {"198.51.100.9, 192.0.2.1, 10.0.0.3,10.0.0.2"}}, "192.0.2.1"},
		"a line of each":               {proxy, headers{"X-Forwarded-For": {"198.51.100.9", "192.0.2.1"}}, "192.0.2.1"},
		"a line of each, and a hop":    {proxy, headers{"X-Forwarded-For": {"198.51.100.9", "192.0.2.1, 10.0.0.2"}}, "192.0.2.1"},
		"nothing but proxies":          {proxy, headers{"X-Forwarded-For": {"10.0.0.3, 10.0.0.2"}}, "10.0.0.3"},
		"garbage":                      {proxy, headers{"X-Forwarded-For": {"' OR 1=1"}}, "10.0.0.1"},
		"garbage on the left":          {proxy, headers{"X-Forwarded-For": {"' OR 1=1, 192.0.2.1"}}, "192.0.2.1"},
		"garbage on the right":         {proxy, headers{"X-Forwarded-For": {"192.0.2.1, unknown"}}, "10.0.0.1"},
		"an address with a port":       {proxy, headers{"X-Forwarded-For": {"192.0.2.1:1234"}}, "10.0.0.1"},
		"nothing":                      {proxy, headers{"X-Forwarded-For": {""}}, "10.0.0.1"},
		"IPv6":                         {"[2001:db8::1]:40000", headers{"X-Forwarded-For": {"2001:db8:1:2::5"}}, "2001:db8:1:2::5"},
		"IPv4 in IPv6":                 {"[::ffff:10.0.0.1]:40000", headers{"X-Forwarded-For": {"192.0.2.1"}}, "192.0.2.1"},
		"a zone":                       {proxy, headers{"X-Forwarded-For": {"fe80::1%eth0"}}, "10.0.0.1"},
		"a peer that is not trusted":   {"192.0.2.7:40000", headers{"X-Forwarded-For": {"198.51.100.9"}, "X-Real-Ip": {"198.51.100.9"}}, "192.0.2.7"},
		"a peer that has a zone":       {"[fe80::1%eth0]:40000", headers{"X-Forwarded-For": {"198.51.100.9"}}, "fe80::1"}, // all of its /64 are limited as one
		"a proxy that has a zone":      {"[fe80::2%eth0]:40000", headers{"X-Forwarded-For": {"198.51.100.9"}}, "198.51.100.9"},
	} {
		t.Run(name, func(t *testing.T) {
			should.Be(t, clientOf(c.peer, c.sent), c.want, c.sent, c.peer)
		})
	}
}

// clientOf is the client that a listener counts a request for.
func clientOf(peer string, sent http.Header) (address string) {
	e := newEngine(Options{Log: slog.New(slog.DiscardHandler), Observer: new(requests), MaxBody: 1024, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8::1/128"), netip.MustParsePrefix("fe80::2/128")}}, public)
	e.GET("/", func(c *gin.Context) { address = c.ClientIP() })
	r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
	r.RemoteAddr, r.Header = peer, sent
	e.ServeHTTP(httptest.NewRecorder(), r)
	return address
}
