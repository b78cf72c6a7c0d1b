package failpoint_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lock/process"
	"github.com/stockd/stockd/internal/telemetry"
)

// traced is a replica's record that traces requests, and the beginning of a request.
func traced(t *testing.T) (lab *failpoint.Registry, begin func(id, route string) (context.Context, trace.Span), path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "history.jsonl")
	steps := failpoint.NewSteps()
	lab, err := failpoint.Open(failpoint.Options{Replica: "replica-1", History: path, Steps: steps, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Close() })
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(steps)), sdk.WithSpanProcessor(steps))
	return lab, func(id, route string) (context.Context, trace.Span) {
		return provider.Tracer("test").Start(telemetry.WithRequestID(t.Context(), id), route) //nolint:spancheck // the caller ends it
	}, path
}

func step(ctx context.Context, name string) {
	_, span := telemetry.StartSpan(ctx, name)
	span.End()
}

const route = "POST /api/v1/stock/deduct"

func TestTheStepsOfARequestAreRecordedWithItsLease(t *testing.T) {
	lab, begin, path := traced(t)
	ctx, request := begin("request-1", route)
	ctx, purchase := telemetry.StartSpan(ctx, "deduct")
	step(ctx, "wait for lock")
	held, err := lab.Record("mutex", process.New()).Acquire(ctx, "goods/1")
	if err != nil {
		t.Fatal(err)
	}
	step(ctx, "hold lock") // it is drawn by its lease
	for _, name := range []string{"sql SELECT tb_goods_stock", "sql begin_tx", "sql INSERT tb_order", "sql UPDATE tb_goods_stock", "sql commit", "redis evalsha"} {
		step(ctx, name)
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	purchase.End()
	request.End()
	h := read(t, path)
	if len(h.Traces) != 1 || len(h.Leases) != 1 || h.Traces[0].Request != "request-1" || h.Leases[0].Request != "request-1" || h.Traces[0].Replica != "replica-1" {
		t.Fatalf("traces %+v and leases %+v, want one each of request-1", h.Traces, h.Leases)
	}
	kinds := make([]history.StepKind, 0, len(h.Traces[0].Steps))
	for _, s := range h.Traces[0].Steps {
		kinds = append(kinds, s.What)
	}
	want := []history.StepKind{history.StepAcquire, history.StepRead, history.StepBegin, history.StepWrite, history.StepWrite, history.StepCommit, history.StepCommand, history.StepRelease, history.StepPurchase}
	if !slices.Equal(kinds, want) || h.Traces[0].Steps[1].Of != "SELECT tb_goods_stock" {
		t.Errorf("steps are %+v, want %v", h.Traces[0].Steps, want)
	}
}

// A release may go on when its request was answered.
func TestATraceIsRecordedWithItsLastStep(t *testing.T) {
	_, begin, path := traced(t)
	ctx, request := begin("late", route)
	_, purchase := telemetry.StartSpan(ctx, "deduct")
	_, release := telemetry.StartSpan(ctx, "release lock")
	purchase.End()
	request.End()
	if h := read(t, path); len(h.Traces) != 0 {
		t.Fatalf("%+v was recorded before its release", h.Traces)
	}
	release.End()
	if h := read(t, path); len(h.Traces) != 1 || len(h.Traces[0].Steps) != 2 {
		t.Errorf("traces are %+v, want one of two steps", h.Traces)
	}
}

// To trace each request of a fast sale would change what is measured.
func TestSomePurchasesOfEachSecondAreTraced(t *testing.T) {
	_, begin, path := traced(t)
	began := time.Now()
	for range 500 {
		ctx, request := begin("r", route)
		step(ctx, "deduct")
		request.End()
		_, other := begin("r", "GET /healthz")
		other.End()
	}
	most := 50 * (1 + int(time.Since(began)/time.Second) + 1)
	if n := len(read(t, path).Traces); n < 50 || n > most {
		t.Errorf("%d of 500 were traced, want 50 a second and so %d at most", n, most)
	}
}
