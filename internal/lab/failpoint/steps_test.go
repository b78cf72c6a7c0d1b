package failpoint_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lock/process"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry"
)

// traced is a replica's record that traces requests, and the beginning of a request.
func traced(t *testing.T) (lab *failpoint.Registry, begin func(id, route string) (context.Context, trace.Span), path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "history.jsonl")
	steps := failpoint.NewSteps()
	lab = must.Get(failpoint.Open(failpoint.Options{Replica: "replica-1", History: path, Steps: steps, Log: slog.New(slog.DiscardHandler)}))(t)
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
	held := must.Get(lab.Record("mutex", process.New()).Acquire(ctx, "goods/1"))(t)
	step(ctx, "hold lock") // it is drawn by its lease
	for _, name := range []string{"sql SELECT tb_goods_stock", "sql begin_tx", "sql INSERT tb_order", "sql UPDATE tb_goods_stock", "sql commit", "redis evalsha"} {
		step(ctx, name)
	}
	must.Do(t, held.Release(ctx))
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
func TestFiftyPurchasesOfEachSecondAreTraced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, begin, path := traced(t)
		for _, c := range []struct {
			after time.Duration
			want  int
		}{{0, 50}, {time.Second - 1, 50}, {1, 100}, {time.Minute, 150}} {
			time.Sleep(c.after)
			for range 60 {
				ctx, request := begin("r", route)
				step(ctx, "deduct")
				request.End()
				_, other := begin("r", "GET /healthz")
				other.End()
			}
			should.Be(t, len(read(t, path).Traces), c.want, "after … more are traced", c.after)
		}
	})
}

// A step has its time and its failure; what the lab does between the read and the write is one.
func TestAStepIsTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lab, begin, path := traced(t)
		began := time.Now()
		ctx, request := begin("r", route)
		ctx, purchase := telemetry.StartSpan(ctx, "deduct")
		lab.SetFault(failpoint.Fault{Do: failpoint.Hold, For: time.Second})
		lab.Between(ctx, "naive", 1)
		purchase.SetAttributes(attribute.String("error.type", "busy"))
		purchase.End()
		request.End()
		h := read(t, path)
		if len(h.Traces) != 1 || len(h.Traces[0].Steps) != 2 {
			t.Fatalf("traces are %+v, want one of two steps", h.Traces)
		}
		work, whole := h.Traces[0].Steps[0], h.Traces[0].Steps[1]
		if work.What != history.StepWork || !work.At.Equal(began) || work.Took != time.Second || work.Error != "" {
			t.Errorf("the work is %+v, want a second of it", work)
		}
		if whole.What != history.StepPurchase || !whole.At.Equal(began) || whole.Took != time.Second || whole.Error != "busy" {
			t.Errorf("the purchase is %+v, want a second that ended with busy", whole)
		}
	})
}

// A trace is of a purchase, once: not of a form that is rejected before, nor of what is written later.
func TestOnlyAPurchaseIsRecordedAsATrace(t *testing.T) {
	_, begin, path := traced(t)
	_, rejected := begin("rejected", route)
	rejected.End()
	ctx, request := begin("r", route)
	step(ctx, "deduct")
	request.End()
	_, later := request.TracerProvider().Tracer("test").Start(ctx, "sql INSERT tb_order")
	later.End()
	if h := read(t, path); len(h.Traces) != 1 || h.Traces[0].Request != "r" || len(h.Traces[0].Steps) != 1 {
		t.Errorf("traces are %+v, want one of one step", h.Traces)
	}
	unopened := failpoint.NewSteps() // nothing records them
	_, lost := sdk.NewTracerProvider(sdk.WithSpanProcessor(unopened)).Tracer("test").Start(t.Context(), "deduct")
	lost.End()
}

// The steps of requests that are served at the same time do not mix.
func TestTheStepsOfRequestsAreKeptApart(t *testing.T) {
	_, begin, path := traced(t)
	one, first := begin("one", route)
	other, second := begin("other", route)
	for _, ctx := range []context.Context{one, other, other} {
		step(ctx, "deduct")
	}
	first.End()
	second.End()
	steps := make(map[string]int)
	for _, trace := range read(t, path).Traces {
		steps[trace.Request] = len(trace.Steps)
	}
	if len(steps) != 2 || steps["one"] != 1 || steps["other"] != 2 {
		t.Errorf("the steps of the requests are %v", steps)
	}
}

// A sampler hands on the state of the trace that it decides about.
func TestTheStateOfATraceIsHandedOn(t *testing.T) {
	state := must.Get(trace.ParseTraceState("vendor=1"))(t)
	parent := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceState: state}))
	for name, want := range map[string]sdk.SamplingDecision{route: sdk.RecordAndSample, "GET /healthz": sdk.Drop} {
		got := failpoint.NewSteps().ShouldSample(sdk.SamplingParameters{ParentContext: parent, Name: name})
		if got.Decision != want || got.Tracestate.Get("vendor") != "1" {
			t.Errorf("%s: %+v, want %v and the state of its parent", name, got, want)
		}
	}
}
