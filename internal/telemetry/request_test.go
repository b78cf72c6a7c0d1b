package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime/debug"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/telemetry"
)

func TestALogLineIdentifiesItsRequest(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(telemetry.LogHandler(slog.NewTextHandler(&out, nil))).With("a", 1)
	id := must.Get(trace.TraceIDFromHex("0af7651916cd43dd8448eb211c80319c"))(t)
	named := telemetry.WithRequestID(t.Context(), "mine")
	traced := trace.ContextWithSpanContext(named, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id}))
	log.InfoContext(t.Context(), "unidentified")
	log.InfoContext(named, "named")
	log.InfoContext(context.WithoutCancel(traced), "traced")
	lines := strings.Split(out.String(), "\n")
	grouped := log.WithGroup("g")
	grouped.InfoContext(named, "grouped")
	if text := out.String(); !strings.HasSuffix(text, "msg=grouped a=1 g.request_id=mine\n") {
		t.Errorf("in a group the log has %s", text)
	}
	for i, want := range []string{"msg=unidentified a=1", "msg=named a=1 request_id=mine", "msg=traced a=1 request_id=mine trace_id=" + id.String()} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is %q, want …%s", i, lines[i], want)
		}
	}
}

func TestALinkedSpanIsAChildOfTheFirstAndLinkedWithTheOthers(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")
	parents := append(make([]string, 0, 7), "", "no parent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00") // not sampled
	for range 2 {
		ctx, span := tracer.Start(t.Context(), "purchase")
		parents = append(parents, telemetry.Traceparent(ctx), telemetry.Traceparent(ctx))
		span.End()
	}
	purchases := spans.Ended()
	_, span := telemetry.StartLinkedSpan(t.Context(), tracer, "linked", parents)
	span.End()
	later := spans.Ended()[2]
	should.Be(t, later.Parent().SpanID(), purchases[0].SpanContext().SpanID(), "it is a part", later.Parent())
	if links := later.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != purchases[1].SpanContext().SpanID() {
		t.Errorf("it is linked with %v, want the second", links)
	}
	should.Be(t, telemetry.Traceparent(t.Context()), "", "an untraced context has the traceparent")
	for _, untraced := range []struct {
		tracer  trace.Tracer
		parents []string
	}{{nil, parents}, {tracer, parents[:3]}} {
		if _, span := telemetry.StartLinkedSpan(t.Context(), untraced.tracer, "linked", untraced.parents); span.IsRecording() {
			t.Errorf("there is a span for %v", untraced)
		}
	}
}

func TestASpanOfABatchIsAChildOfTheFirstThatIsTracedAndLinkedWithTheOthers(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")
	_, first := tracer.Start(t.Context(), "purchase")
	_, second := tracer.Start(t.Context(), "purchase")
	untraced := trace.SpanFromContext(t.Context())
	_, batch := telemetry.StartBatchSpan(t.Context(), "batch", []trace.Span{untraced, first, untraced, second})
	batch.End()
	got := spans.Ended()[0]
	should.Be(t, got.Parent().SpanID(), first.SpanContext().SpanID(), "it is a part", got.Parent())
	if links := got.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != second.SpanContext().SpanID() {
		t.Errorf("it is linked with %v, want the second", links)
	}
}

func TestASpanOfAnUntracedRequestAllocatesNothing(t *testing.T) {
	ctx := t.Context()
	_, together := telemetry.StartBatchSpan(ctx, "steps", []trace.Span{trace.SpanFromContext(ctx)})
	if allocs := testing.AllocsPerRun(100, func() {
		within, span := telemetry.StartSpan(ctx, "span")
		if within != ctx || span.IsRecording() {
			t.Error("it is traced")
		}
		for _, noop := range []trace.Span{span, together} {
			noop.SetName("ignored")
			noop.End()
		}
	}); allocs > 0 {
		t.Errorf("an untraced span makes %v allocations", allocs)
	}
}

func TestABuildIsItsCommitAndWhatIsNotInIt(t *testing.T) {
	for want, settings := range map[string][]debug.BuildSetting{
		"unknown":         nil,
		"abc":             {{Key: "vcs", Value: "git"}, {Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}},
		"abd and changes": {{Key: "vcs.revision", Value: "abd"}, {Key: "vcs.modified", Value: "true"}},
		"abe":             {{Key: "vcs.revision", Value: "abe"}},
	} {
		should.Be(t, telemetry.Commit(&debug.BuildInfo{Settings: settings}), want, "a build of", settings, "is")
	}
}
