package handler

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// Half of an answer must not be taken for a whole one.
func TestAPanicInMidAnswerCutsTheConnection(t *testing.T) {
	var log bytes.Buffer
	e := newEngine(Options{Log: slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, nil))), MaxBody: 1024}, public)
	e.GET("/half", func(c *gin.Context) {
		c.String(http.StatusOK, `{"order_id": `)
		c.Writer.Flush()
		panic("out of ink")
	})
	server := httptest.NewServer(e)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/half", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("X-Request-ID", "mine")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was cut
	if content, err := io.ReadAll(response.Body); err == nil {
		t.Errorf("the answer seems to be whole: %q", content)
	}
	server.Close()
	for _, want := range []string{"out of ink", "request_id=mine", "middleware_internal_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q: %s", want, &log)
		}
	}
}

func TestARequestIDThatIsFitForALogIsKept(t *testing.T) {
	e := newEngine(Options{Log: slog.New(slog.DiscardHandler)}, public)
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

// statuses is an observer of the ends of requests.
type statuses struct {
	unobserved

	seen []int
}

func (s *statuses) Ended(_, _ string, status int) { s.seen = append(s.seen, status) }

// The log and the observer get what the request was answered with; the log has the caller's trace,
// and what needs an operator at the level of errors.
func TestWhatARequestWasAnsweredWithIsLoggedAndObserved(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	for _, c := range []struct {
		err    error
		status int
		want   string
	}{
		{errors.New("broken"), http.StatusInternalServerError, `msg="request failed"`},
		{&stock.BackendError{Backend: "mysql", Err: io.EOF}, http.StatusServiceUnavailable, "backend=mysql"},
		{stock.ErrBusy, http.StatusServiceUnavailable, ""},
		{stock.ErrUnknownGoods, http.StatusNotFound, ""},
	} {
		var log bytes.Buffer
		seen := new(statuses)
		o := Options{Log: slog.New(telemetry.LogHandler(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))), Observer: seen}
		e := newEngine(o, public)
		e.GET("/", o.ok(func(*gin.Context) (any, error) { return nil, c.err }))
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
		r.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		e.ServeHTTP(w, r)
		failed, served, _ := strings.Cut(log.String(), "level=DEBUG")
		if !slices.Equal(seen.seen, []int{c.status}) || !strings.Contains(served, "status="+strconv.Itoa(c.status)) || !strings.Contains(served, "trace_id="+trace) {
			t.Errorf("%v is answered with %d, observed as %v and logged as %s", c.err, w.Code, seen.seen, served)
		}
		if !strings.Contains(failed, c.want) || strings.Contains(failed, "level=ERROR") != (c.want != "") {
			t.Errorf("%v is logged for the operator as %q, want %q", c.err, failed, c.want)
		}
	}
}

// The server does not read the rest of a body that is too large.
func TestABodyThatIsTooLargeClosesItsConnection(t *testing.T) {
	e := newEngine(Options{Log: slog.New(slog.DiscardHandler), MaxBody: 4}, public)
	e.POST("/", func(c *gin.Context) {
		_, err := readForm(c.Request)
		answer(c, err)
	})
	server := httptest.NewServer(e)
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, strings.NewReader("12345"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close() //nolint:errcheck // it was read
	if response.StatusCode != http.StatusRequestEntityTooLarge || !response.Close {
		t.Errorf("answered with %s, closed: %v", response.Status, response.Close)
	}
}
