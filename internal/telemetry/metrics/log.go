package metrics

import (
	"context"
	"log/slog"
	"strings"

	"github.com/stockd/stockd/internal/service/background"
)

// Log counts log lines by level, and the panics among them: a panic outside of a request is only
// visible in the log.
func (m *Metrics) Log(inner slog.Handler) slog.Handler {
	for _, level := range []slog.Level{slog.LevelWarn, slog.LevelError} {
		m.logged.WithLabelValues(strings.ToLower(level.String()))
	}
	return counted{inner, m}
}

type counted struct {
	slog.Handler

	metrics *Metrics
}

func (c counted) Handle(ctx context.Context, r slog.Record) error {
	c.metrics.logged.WithLabelValues(strings.ToLower(r.Level.String())).Inc()
	if r.Message == background.PanicMessage {
		c.metrics.panics.Inc()
	}
	return c.Handler.Handle(ctx, r)
}

func (c counted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return counted{c.Handler.WithAttrs(attrs), c.metrics}
}

func (c counted) WithGroup(name string) slog.Handler {
	return counted{c.Handler.WithGroup(name), c.metrics}
}
