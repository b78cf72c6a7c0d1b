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

// LogHandler adds the request id, and the trace id if there is one, to the lines of a request.
func LogHandler(inner slog.Handler) slog.Handler { return identified{inner} }

type identified struct{ slog.Handler }

func (t identified) Handle(ctx context.Context, r slog.Record) error {
	if name := RequestID(ctx); name != "" {
		r.AddAttrs(slog.String(RequestKey, name))
	}
	if span := trace.SpanContextFromContext(ctx); span.HasTraceID() {
		r.AddAttrs(slog.String(TraceKey, span.TraceID().String()))
	}
	return t.Handler.Handle(ctx, r)
}

func (t identified) WithAttrs(attrs []slog.Attr) slog.Handler {
	return identified{t.Handler.WithAttrs(attrs)}
}

func (t identified) WithGroup(name string) slog.Handler { return identified{t.Handler.WithGroup(name)} }

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
