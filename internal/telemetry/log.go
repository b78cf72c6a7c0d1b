package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"runtime/debug"

	"go.opentelemetry.io/otel/trace"
)

// The log attributes that identify a request.
const (
	RequestKey = "request_id"
	TraceKey   = "trace_id"
)

// Handler has a function handle each line, which passes it on to the handler behind.
type Handler struct {
	slog.Handler

	Do func(ctx context.Context, behind slog.Handler, r slog.Record) error
}

// Handle calls the function.
func (h Handler) Handle(ctx context.Context, r slog.Record) error { return h.Do(ctx, h.Handler, r) }

// WithAttrs keeps the function.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Handler{h.Handler.WithAttrs(attrs), h.Do}
}

// WithGroup keeps the function.
func (h Handler) WithGroup(name string) slog.Handler {
	return Handler{h.Handler.WithGroup(name), h.Do}
}

// LogHandler adds the request id, and the trace id if there is one, to the lines of a request.
func LogHandler(inner slog.Handler) slog.Handler { return Handler{inner, identify} }

func identify(ctx context.Context, behind slog.Handler, r slog.Record) error {
	if name := RequestID(ctx); name != "" {
		r.AddAttrs(slog.String(RequestKey, name))
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r.AddAttrs(slog.String(TraceKey, span.TraceID().String()))
	}
	return behind.Handle(ctx, r)
}

// Commit is what the go command wrote into a program: the commit it was built from,
// with "and changes" where that is not all, or "unknown".
func Commit(info *debug.BuildInfo) string {
	facts := make(map[string]string)
	for _, s := range info.Settings {
		facts[s.Key] = s.Value
	}
	commit := cmp.Or(facts["vcs.revision"], "unknown")
	if facts["vcs.modified"] == "true" {
		commit += " and changes"
	}
	return commit
}
