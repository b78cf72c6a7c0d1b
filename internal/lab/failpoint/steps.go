package failpoint

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/telemetry"
)

// maxTraced is how many requests a second a replica traces: to record each one of a fast sale
// would change what is measured.
const maxTraced = 50

// The spans of the lab's own steps.
const (
	workStep    = "work of the lab"
	releaseStep = "release lock"
)

// Steps record the spans of purchases as the steps of their requests. They sample some of the
// requests of each second, and receive their spans.
type Steps struct {
	mu     sync.Mutex
	to     *Registry // nil: not yet
	second time.Time // which requests were sampled since
	begun  int
	open   map[trace.TraceID]*traced
}

// traced is a request whose spans have not all ended.
type traced struct {
	history.Trace

	spans    int // that have not ended
	purchase bool
}

// NewSteps record nothing before a Registry is opened with them.
func NewSteps() *Steps { return &Steps{open: make(map[trace.TraceID]*traced)} }

// ShouldSample has at most maxTraced requests a second traced.
func (s *Steps) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); now.Sub(s.second) >= time.Second {
		s.second, s.begun = now, 0
	}
	decision := sdk.Drop
	if s.begun < maxTraced && strings.Contains(p.Name, "deduct") {
		s.begun++
		decision = sdk.RecordAndSample
	}
	return sdk.SamplingResult{Decision: decision, Tracestate: trace.SpanContextFromContext(p.ParentContext).TraceState()}
}

// Description names the sampler.
func (*Steps) Description() string { return "some requests of each second" }

// OnStart counts a span in.
func (s *Steps) OnStart(parent context.Context, span sdk.ReadWriteSpan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := span.SpanContext().TraceID()
	if s.open[id] == nil {
		s.open[id] = &traced{Trace: history.Trace{Request: telemetry.RequestID(parent)}}
	}
	s.open[id].spans++
}

// OnEnd keeps the step, and records the request with its last one.
func (s *Steps) OnEnd(span sdk.ReadOnlySpan) {
	if done := s.end(span); done != nil {
		done.Replica = s.to.replica
		s.to.write(history.Line{Trace: done})
	}
}

// end is the trace that ended with a span, or nil.
func (s *Steps) end(span sdk.ReadOnlySpan) *history.Trace {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := span.SpanContext().TraceID()
	t := s.open[id]
	if t == nil {
		return nil
	}
	if step, ok := stepOf(span); ok {
		t.Steps = append(t.Steps, step)
		t.purchase = t.purchase || step.What == history.StepPurchase
	}
	if t.spans--; t.spans > 0 {
		return nil
	}
	delete(s.open, id)
	if s.to == nil || !t.purchase {
		return nil
	}
	return &t.Trace
}

// Shutdown has nothing to wait for: each trace is written with its last span.
func (*Steps) Shutdown(context.Context) error { return nil }

// ForceFlush has nothing to write.
func (*Steps) ForceFlush(context.Context) error { return nil }

// stepOf is the step of a span; some are of no interest.
func stepOf(span sdk.ReadOnlySpan) (step history.Step, ok bool) {
	attributes := attribute.NewSet(span.Attributes()...)
	failure, _ := attributes.Value("error.type")
	step = history.Step{At: span.StartTime(), Took: span.EndTime().Sub(span.StartTime()), Error: failure.AsString()}
	step.What, step.Of = kindOf(span.Name())
	return step, step.What != ""
}

// kindOf reads the name of a span as the program gave it; empty: it is no step.
func kindOf(name string) (kind history.StepKind, of string) {
	switch name {
	case "deduct":
		return history.StepPurchase, ""
	case "wait for lock":
		return history.StepAcquire, ""
	case workStep:
		return history.StepWork, ""
	case releaseStep:
		return history.StepRelease, ""
	case "write batch":
		return history.StepOther, name
	case "hold lock":
		return "", ""
	}
	if command, ok := strings.CutPrefix(name, "redis "); ok {
		return history.StepCommand, command
	}
	if statement, ok := strings.CutPrefix(name, "sql "); ok {
		return kindOfSQL(statement), statement
	}
	return "", ""
}

// kindOfSQL is the kind of a statement, or of a call to the driver.
func kindOfSQL(statement string) history.StepKind {
	verb, _, _ := strings.Cut(statement, " ")
	switch strings.ToLower(verb) {
	case "select":
		return history.StepRead
	case "insert", "update", "delete", "call":
		return history.StepWrite
	case "begin_tx":
		return history.StepBegin
	case "commit":
		return history.StepCommit
	case "rollback":
		return history.StepRollback
	case "connect":
		return history.StepConnect
	default:
		return history.StepOther
	}
}
