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

type requestIDKey struct{}

// WithRequestID returns a context with the id of a request.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// RequestID is the id of the request that a context belongs to, or empty.
func RequestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// scope is the instrumentation scope of the spans.
const scope = "github.com/stockd/stockd"

// StartSpan starts a child of the context's span. End it. Spans must not carry input of clients
// or answers of databases.
func StartSpan(ctx context.Context, name string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name) //nolint:spancheck // the caller ends it
}

// StartBatchSpan starts a span for work on behalf of many: a child of the first one that is
// recorded, linked with the others.
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

// Traceparent is the W3C traceparent of a context, for a span that starts later in another
// process, or empty where the context is not traced.
func Traceparent(ctx context.Context) string {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier.Get(traceparent)
}

const traceparent = "traceparent"

// StartLinkedSpan starts a span for work on behalf of many whose traceparents are known: a child
// of the first one that is sampled, linked with the others. Without a tracer it is a no-op. End
// it.
func StartLinkedSpan(ctx context.Context, tracer trace.Tracer, name string, parents []string) (context.Context, trace.Span) {
	if tracer == nil {
		return ctx, noop.Span{}
	}
	traced := sampled(parents)
	if len(traced) == 0 {
		return ctx, noop.Span{}
	}
	links := make([]trace.Link, len(traced)-1)
	for i := range links {
		links[i].SpanContext = traced[i+1]
	}
	return tracer.Start(trace.ContextWithRemoteSpanContext(ctx, traced[0]), name, trace.WithLinks(links...)) //nolint:spancheck // the caller ends it
}

// sampled returns the sampled ones, each once.
func sampled(parents []string) (traced []trace.SpanContext) {
	seen := make(map[string]bool)
	for _, parent := range parents {
		if parent == "" || seen[parent] {
			continue
		}
		seen[parent] = true
		of := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{traceparent: parent})
		if span := trace.SpanContextFromContext(of); span.IsSampled() {
			traced = append(traced, span)
		}
	}
	return traced
}
