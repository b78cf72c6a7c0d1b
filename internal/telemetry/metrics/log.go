package metrics

import (
	"context"
	"log/slog"
	"strings"

	"github.com/stockd/stockd/internal/service/background"
)

// Log counts what passes through a handler, by level, and the panics among it: each
// panic that is caught outside of a request is logged, and that is all that is
// known of it here.
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
