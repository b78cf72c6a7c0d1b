package trail_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/trail"
)

func TestALineTellsWhichRequestItBelongsTo(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(trail.Log(slog.NewTextHandler(&out, nil))).With("a", 1)
	id, err := trace.TraceIDFromHex("0af7651916cd43dd8448eb211c80319c")
	if err != nil {
		t.Fatal(err)
	}
	named := trail.Named(t.Context(), "mine")
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

func TestAStepOfWhatIsNotTracedCostsNothing(t *testing.T) {
	ctx := t.Context()
	_, together := trail.Together(ctx, "steps", []trace.Span{trace.SpanFromContext(ctx)})
	if allocs := testing.AllocsPerRun(100, func() {
		within, step := trail.Step(ctx, "step")
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
