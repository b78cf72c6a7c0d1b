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

// OpenDB makes a pool whose statements are steps of what asks for them. A step tells
// the verb and the table: neither the text, whose length has no bound, nor any value,
// nor what the database says of an error, which quotes values.
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

// summary is the verb of a statement and its table, but for those of its subqueries,
// or what is done without a statement.
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

// errorType tells what kind of error it was, and nothing of what it says.
func errorType(err error) attribute.KeyValue {
	return attribute.String("error.type", fmt.Sprintf("%T", err))
}

// Redis has each command to a Redis be a step of what asks for it. A step tells the
// command's name, and neither its keys nor its arguments.
func (*Tracing) Redis() redis.Hook { return redisSteps{} }

type redisSteps struct{}

func (redisSteps) DialHook(next redis.DialHook) redis.DialHook { return next }

func (redisSteps) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		ctx, step := telemetry.StartSpan(ctx, "redis")
		err := next(ctx, command)
		if step.IsRecording() {
			step.SetName("redis " + command.Name())
			endRedis(step, err)
		}
		return err
	}
}

func (redisSteps) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		ctx, step := telemetry.StartSpan(ctx, "redis pipeline")
		err := next(ctx, commands)
		if step.IsRecording() {
			endRedis(step, err)
		}
		return err
	}
}

// endRedis ends a step. That there is no such key is an answer.
func endRedis(step trace.Span, err error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		step.SetAttributes(errorType(err))
	}
	step.End()
}
