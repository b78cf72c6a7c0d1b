package tracing

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stockd/stockd/internal/should"
)

// That there is no such key is no failure of a command.
func TestAStepTellsOfAFailureOfRedisAndOfNoAnswer(t *testing.T) {
	for failure, attributes := range map[error]int{nil: 0, redis.Nil: 0, errors.New("rejected"): 1} {
		spans := tracetest.NewSpanRecorder()
		ctx, request := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "request")
		get := redisSpans{}.ProcessHook(func(context.Context, redis.Cmder) error { return failure })
		should.Fail(t, get(ctx, redis.NewCmd(ctx, "get", "a key")), failure, "the failure of a command")
		request.End()
		if span := spans.Ended()[0]; span.Name() != "redis get" || len(span.Attributes()) != attributes {
			t.Errorf("after the answer %v the span is %s with %v, want %d attributes", failure, span.Name(), span.Attributes(), attributes)
		}
		ctx, request = sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "request")
		pipeline := redisSpans{}.ProcessPipelineHook(func(context.Context, []redis.Cmder) error { return failure })
		should.Fail(t, pipeline(ctx, nil), failure, "the failure of a pipeline")
		request.End()
		if span := spans.Ended()[2]; span.Name() != "redis pipeline" || len(span.Attributes()) != attributes {
			t.Errorf("after the answer %v the span is %s with %v, want %d attributes", failure, span.Name(), span.Attributes(), attributes)
		}
	}
}

func TestAStatementIsCalledByItsVerbAndItsTable(t *testing.T) {
	for query, want := range map[string]string{
		"UPDATE tb_goods_stock SET stock = ?":                             "UPDATE tb_goods_stock",
		"INSERT INTO `tb_stock_ledger` (`user_id`) VALUES ('a name')":     "INSERT tb_stock_ledger",
		"SELECT a, (SELECT MAX(b) FROM inner_one) FROM outer_one AS o":    "SELECT outer_one",
		"SELECT\n\t\tstock\n\t\tFROM tb_goods_stock WHERE goods_id = 'x'": "SELECT tb_goods_stock",
		"SELECT a FROM (SELECT b FROM c) AS d":                            "SELECT",
		"SELECT GET_LOCK('a name', 1)":                                    "SELECT",
		"DO RELEASE_LOCK('a name')":                                       "DO",
		"":                                                                "commit",
	} {
		should.Be(t, summary("sql.tx.commit", query), want, "is called", query)
	}
}
