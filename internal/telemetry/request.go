// Package telemetry carries the identity of a request through the layers: its request id for
// the log and its span for a trace. Without a recording span the functions return a no-op
// span and allocate nothing.
package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

type nameKey struct{}

// WithRequestID returns a context that carries the name of a request.
func WithRequestID(ctx context.Context, request string) context.Context {
	return context.WithValue(ctx, nameKey{}, request)
}

// RequestID is the id of the request that a context belongs to, or empty.
func RequestID(ctx context.Context) string {
	name, _ := ctx.Value(nameKey{}).(string)
	return name
}

// scope names what makes the steps.
const scope = "github.com/stockd/stockd"

// Step begins a step of what a context is a part of. End it. A step must not carry
// anything that a buyer has sent, nor what a database has answered.
func StartSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name) //nolint:spancheck // the caller ends it
}

// Together begins a step that is done for many at once. It is a part of the first of
// them that is traced, and linked with the others.
func StartBatchSpan(ctx context.Context, name string, many []trace.Span) (context.Context, trace.Span) {
	var first trace.Span
	var links []trace.Link
	for _, one := range many {
		switch {
		case !one.IsRecording():
		case first == nil:
			first = one
		default:
			links = append(links, trace.Link{SpanContext: one.SpanContext()})
		}
	}
	if first == nil {
		return ctx, noop.Span{}
	}
	return first.TracerProvider().Tracer(scope).Start(trace.ContextWithSpan(ctx, first), name, trace.WithLinks(links...)) //nolint:spancheck // the caller ends it
}

// Place is where a context stands in its trace, for a step that is done later and
// elsewhere, or empty where it is not traced. It is a traceparent as W3C has it.
func Traceparent(ctx context.Context) string {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get(traceparent)
}

const traceparent = "traceparent"

// Later begins a step that is done for many at once, of whom only the places in their
// traces are known. It is a part of the first that is traced, and linked with the
// others. Without a tracer there is no step. End it.
func StartLinkedSpan(ctx context.Context, tracer trace.Tracer, name string, places []string) (context.Context, trace.Span) {
	if tracer == nil {
		return ctx, noop.Span{}
	}
	traced := sampled(places)
	if len(traced) == 0 {
		return ctx, noop.Span{}
	}
	links := make([]trace.Link, len(traced)-1)
	for i := range links {
		links[i].SpanContext = traced[i+1]
	}
	return tracer.Start(trace.ContextWithRemoteSpanContext(ctx, traced[0]), name, trace.WithLinks(links...)) //nolint:spancheck // the caller ends it
}

// sampled are those places that are traced, each once.
func sampled(places []string) (traced []trace.SpanContext) {
	seen := make(map[string]bool)
	for _, place := range places {
		if place == "" || seen[place] {
			continue
		}
		seen[place] = true
		of := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: place})
		if span := trace.SpanContextFromContext(of); span.IsSampled() {
			traced = append(traced, span)
		}
	}
	return traced
}
