package tracing

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/XSAM/otelsql"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/telemetry"
)

// OpenDB makes a pool whose statements are spans. A span has the verb and the table, and neither
// the text, whose length is unbounded, nor values, nor error texts, which quote values.
func (t *Tracing) OpenDB(connector driver.Connector) *sql.DB {
	return otelsql.OpenDB(connector,
		otelsql.WithTracerProvider(t.provider), otelsql.WithMeterProvider(noop.NewMeterProvider()),
		otelsql.WithSpanNameFormatter(func(_ context.Context, method otelsql.Method, query string) string {
			return "sql " + summary(string(method), query)
		}),
		otelsql.WithSpanOptions(otelsql.SpanOptions{
			DisableQuery: true, OmitConnResetSession: true, OmitRows: true, OmitConnPrepare: true,
			RecordError: func(error) bool { return false },
			SpanFilter: func(ctx context.Context, _ otelsql.Method, _ string, _ []driver.NamedValue) bool {
				return trace.SpanFromContext(ctx).IsRecording()
			},
		}),
		otelsql.WithSpanErrorAttributesGetter(func(err error) []attribute.KeyValue {
			return []attribute.KeyValue{errorType(err)}
		}),
	)
}

// summary is the verb of a statement and its table, ignoring subqueries, or the method of a call
// without a statement.
func summary(method, query string) string {
	words := strings.Fields(query)
	if len(words) == 0 {
		return method[strings.LastIndexByte(method, '.')+1:]
	}
	depth := 0
	for i, word := range words[:len(words)-1] {
		if depth == 0 && slices.Contains([]string{"FROM", "INTO", "UPDATE"}, word) && words[i+1][0] != '(' {
			return words[0] + " " + strings.Trim(words[i+1], "`")
		}
		depth += strings.Count(word, "(") - strings.Count(word, ")")
	}
	return words[0]
}

func errorType(err error) attribute.KeyValue {
	return attribute.String("error.type", fmt.Sprintf("%T", err))
}

// Redis makes each command a span. A span has the name of the command, and neither keys nor
// arguments.
func (*Tracing) Redis() redis.Hook { return redisSpans{} }

type redisSpans struct{}

func (redisSpans) DialHook(next redis.DialHook) redis.DialHook { return next }

func (redisSpans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		ctx, span := telemetry.StartSpan(ctx, "redis")
		err := next(ctx, command)
		if span.IsRecording() {
			span.SetName("redis " + command.Name())
			endRedis(span, err)
		}
		return err
	}
}

func (redisSpans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		ctx, span := telemetry.StartSpan(ctx, "redis pipeline")
		err := next(ctx, commands)
		if span.IsRecording() {
			endRedis(span, err)
		}
		return err
	}
}

// endRedis ends a span. A missing key is not an error.
func endRedis(span trace.Span, err error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		span.SetAttributes(errorType(err))
	}
	span.End()
}
