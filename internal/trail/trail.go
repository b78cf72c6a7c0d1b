// Package trail follows a request through the layers: by its name, for the log, and
// by its steps, for a trace. What is not traced costs a look into the context. A
// trace is begun in handler and sent by whom cmd puts there; the layers in between
// know only that there may be one.
package trail

import (
	"context"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

type nameKey struct{}

// Named returns a context that carries the name of a request.
func Named(ctx context.Context, request string) context.Context {
	return context.WithValue(ctx, nameKey{}, request)
}

// Name is the name of the request that a context belongs to, or empty.
func Name(ctx context.Context) string {
	name, _ := ctx.Value(nameKey{}).(string)
	return name
}

// scope names what makes the steps.
const scope = "github.com/stockd/stockd"

// Step begins a step of what a context is a part of. End it. A step must not carry
// anything that a buyer has sent, nor what a database has answered.
func Step(ctx context.Context, name string) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	return parent.TracerProvider().Tracer(scope).Start(ctx, name) //nolint:spancheck // the caller ends it
}

// Together begins a step that is done for many at once. It is a part of the first of
// them that is traced, and linked with the others.
func Together(ctx context.Context, name string, many []trace.Span) (context.Context, trace.Span) {
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
