package telemetry

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// The names under which a line of the log tells which request it belongs to.
const (
	RequestKey = "request_id"
	TraceKey   = "trace_id"
)

// Log has each line that belongs to a request tell its name, and its trace where it
// has one.
func LogHandler(inner slog.Handler) slog.Handler { return told{inner} }

type told struct{ slog.Handler }

func (t told) Handle(ctx context.Context, r slog.Record) error {
	if name := RequestID(ctx); name != "" {
		r.AddAttrs(slog.String(RequestKey, name))
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r.AddAttrs(slog.String(TraceKey, span.TraceID().String()))
	}
	return t.Handler.Handle(ctx, r)
}

func (t told) WithAttrs(attrs []slog.Attr) slog.Handler { return told{t.Handler.WithAttrs(attrs)} }
func (t told) WithGroup(name string) slog.Handler       { return told{t.Handler.WithGroup(name)} }
