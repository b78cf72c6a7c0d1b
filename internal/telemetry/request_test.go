package telemetry_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/telemetry"
)

func TestALineTellsWhichRequestItBelongsTo(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(telemetry.LogHandler(slog.NewTextHandler(&out, nil))).With("a", 1)
	id, err := trace.TraceIDFromHex("0af7651916cd43dd8448eb211c80319c")
	if err != nil {
		t.Fatal(err)
	}
	named := telemetry.WithRequestID(t.Context(), "mine")
	traced := trace.ContextWithSpanContext(named, trace.NewSpanContext(trace.SpanContextConfig{TraceID: id}))
	log.InfoContext(t.Context(), "nobody's")
	log.InfoContext(named, "named")
	log.InfoContext(context.WithoutCancel(traced), "traced")
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{"msg=nobody's a=1", "msg=named a=1 request_id=mine", "msg=traced a=1 request_id=mine trace_id=" + id.String()} {
		if !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d is %q, want …%s", i, lines[i], want)
		}
	}
}

func TestAStepThatIsDoneLaterIsOneOfTheFirstAndLinkedWithTheOthers(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")
	places := append(make([]string, 0, 6), "", "no place")
	for range 2 {
		ctx, span := tracer.Start(t.Context(), "purchase")
		places = append(places, telemetry.Traceparent(ctx), telemetry.Traceparent(ctx))
		span.End()
	}
	purchases := spans.Ended()
	_, step := telemetry.StartLinkedSpan(t.Context(), tracer, "later", places)
	step.End()
	later := spans.Ended()[2]
	if later.Parent().SpanID() != purchases[0].SpanContext().SpanID() {
		t.Errorf("it is a part of %v, want the first", later.Parent())
	}
	if links := later.Links(); len(links) != 1 || links[0].SpanContext.SpanID() != purchases[1].SpanContext().SpanID() {
		t.Errorf("it is linked with %v, want the second", links)
	}
	if place := telemetry.Traceparent(t.Context()); place != "" {
		t.Errorf("what is not traced is at %q", place)
	}
	for _, nobody := range []struct {
		tracer trace.Tracer
		places []string
	}{{nil, places}, {tracer, places[:2]}} {
		if _, step := telemetry.StartLinkedSpan(t.Context(), nobody.tracer, "later", nobody.places); step.IsRecording() {
			t.Errorf("there is a step for %v", nobody)
		}
	}
}

func TestAStepOfWhatIsNotTracedCostsNothing(t *testing.T) {
	ctx := t.Context()
	_, together := telemetry.StartBatchSpan(ctx, "steps", []trace.Span{trace.SpanFromContext(ctx)})
	if allocs := testing.AllocsPerRun(100, func() {
		within, step := telemetry.StartSpan(ctx, "step")
		if within != ctx || step.IsRecording() {
			t.Error("it is traced")
		}
		for _, nothing := range []trace.Span{step, together} {
			nothing.SetName("no name") // and whatever else a step can
			nothing.End()
		}
	}); allocs > 0 {
		t.Errorf("a step that is not traced makes %v allocations", allocs)
	}
}
