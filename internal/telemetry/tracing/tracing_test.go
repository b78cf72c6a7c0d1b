package tracing_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry/tracing"
)

// local receives spans, and samples all of them or none.
type local struct {
	*tracetest.SpanRecorder
	sdk.Sampler
}

func open(t *testing.T, o tracing.Options) *tracing.Tracing {
	t.Helper()
	return must.Get(tracing.Open(t.Context(), o))(t)
}

// from is a context with the caller's span.
func from(t *testing.T, flags trace.TraceFlags) context.Context {
	t.Helper()
	return trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{15: 255}, SpanID: trace.SpanID{1}, TraceFlags: flags,
	}))
}

// A caller that does not sample is honored, and one that samples where it is trusted. Where nothing is sent, the
// one that receives spans here decides alone.
func TestWhoDecidesWhatIsTraced(t *testing.T) {
	const endpoint = "http://127.0.0.1:1"
	for _, c := range []struct {
		name                       string
		o                          tracing.Options
		alone, sampled, notSampled bool
	}{
		{"all", tracing.Options{Endpoint: endpoint, Sample: 1}, true, true, false},
		{"none", tracing.Options{Endpoint: endpoint}, false, false, false},
		{"none but the caller's", tracing.Options{Endpoint: endpoint, TrustParent: true}, false, true, false},
		{"all here", tracing.Options{Local: local{tracetest.NewSpanRecorder(), sdk.AlwaysSample()}}, true, true, true},
		{"none here", tracing.Options{Local: local{tracetest.NewSpanRecorder(), sdk.NeverSample()}, Sample: 1, TrustParent: true}, false, false, false},
		{"sent, and received here", tracing.Options{Endpoint: endpoint, Local: local{tracetest.NewSpanRecorder(), sdk.AlwaysSample()}}, false, false, false},
	} {
		tracer := open(t, c.o).Tracer()
		for parent, want := range map[context.Context]bool{t.Context(): c.alone, from(t, trace.FlagsSampled): c.sampled, from(t, 0): c.notSampled} {
			ctx, span := tracer.Start(parent, "request")
			should.Be(t, span.IsRecording(), want, "a request of … is traced", c.name, trace.SpanContextFromContext(parent))
			_, step := tracer.Start(ctx, "step")
			should.Be(t, step.IsRecording(), want, c.name, "a step of a request of", trace.SpanContextFromContext(parent), "is traced")
		}
	}
}

// What is left is sent at the end, to the path of traces, and names the replica.
func TestSpansAreSentWithTheNameOfTheirReplica(t *testing.T) {
	for _, slash := range []string{"", "/"} {
		var mu sync.Mutex
		var got []string
		collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			content, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, r.URL.Path+" "+string(content))
		}))
		traces := open(t, tracing.Options{Endpoint: collector.URL + slash, Sample: 1, Replica: "replica-7", Version: "v1.2.3"})
		_, span := traces.Tracer().Start(t.Context(), "the request")
		span.End()
		must.Do(t, traces.Close())
		collector.Close()
		if len(got) != 1 || !strings.HasPrefix(got[0], "/v1/traces ") {
			t.Fatalf("the collector got %q", got)
		}
		should.Contain(t, got[0], "the request", "service.name", "stockd", "service.instance.id", "replica-7", "service.version", "v1.2.3")
	}
}

// unresponsive receives spans, and does not end before it has to.
type unresponsive struct {
	local

	err error
}

func (u unresponsive) Shutdown(ctx context.Context) error {
	if u.err != nil {
		return u.err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestTheEndWaitsForSpansNoLongerThanThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("broken")
		for _, want := range []error{nil, broken} {
			began := time.Now()
			traces := open(t, tracing.Options{Local: unresponsive{local{tracetest.NewSpanRecorder(), sdk.AlwaysSample()}, want}})
			if err := traces.Close(); !errors.Is(err, want) || want == nil && time.Since(began) != 3*time.Second {
				t.Errorf("it ends after %s with %v, want %v", time.Since(began), err, want)
			}
		}
	})
}

// database is a driver and a connection, whose statements fail.
type database struct{}

func (database) Connect(context.Context) (driver.Conn, error) { return database{}, nil }
func (database) Driver() driver.Driver                        { return nil }
func (database) Prepare(string) (driver.Stmt, error)          { return nil, driver.ErrSkip }
func (database) Close() error                                 { return nil }
func (database) Begin() (driver.Tx, error)                    { return nil, driver.ErrSkip }

func (database) ExecContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Result, error) {
	if strings.HasPrefix(query, "DELETE") {
		return nil, errors.New("no such value: hidden")
	}
	return driver.RowsAffected(1), nil
}

// A statement of a traced request is a span, which has neither its text nor values, nor an error that quotes them.
func TestASpanOfAStatementShowsNoValue(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	traces := open(t, tracing.Options{Local: local{spans, sdk.AlwaysSample()}})
	pool := traces.OpenDB(database{})
	defer pool.Close() //nolint:errcheck // it has no connections
	must.Get(pool.ExecContext(t.Context(), "UPDATE items SET a = 'hidden'"))(t)
	if ended := spans.Ended(); len(ended) != 0 {
		t.Errorf("without a traced request there is the span %s", ended[0].Name())
	}
	ctx, request := traces.Tracer().Start(t.Context(), "request")
	must.Get(pool.ExecContext(ctx, "UPDATE items SET a = 'hidden' WHERE b = ?", "hidden"))(t)
	if _, err := pool.ExecContext(ctx, "DELETE FROM items WHERE a = 'hidden'"); err == nil {
		t.Fatal("no error")
	}
	request.End()
	failed := make(map[string]string)
	for _, span := range spans.Ended() {
		failed[span.Name()] = ""
		for _, a := range span.Attributes() {
			if a.Key == "error.type" {
				failed[span.Name()] = a.Value.AsString()
			}
			if strings.Contains(a.Value.String(), "hidden") {
				t.Errorf("%s has %s=%s", span.Name(), a.Key, a.Value.String())
			}
		}
		if len(span.Events()) > 0 || strings.Contains(span.Status().Description, "hidden") {
			t.Errorf("%s has the events %v and the status %v", span.Name(), span.Events(), span.Status())
		}
	}
	if len(failed) != 3 || failed["sql UPDATE items"] != "" || failed["sql DELETE items"] != "*errors.errorString" {
		t.Errorf("the spans, and the types of their errors, are %v", failed)
	}
}
