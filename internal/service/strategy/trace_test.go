package strategy_test

import (
	"crypto/rand"
	"slices"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// Each step of a purchase is in its trace, and has an end.
func TestATraceHasTheStepsOfItsPurchase(t *testing.T) {
	store := labtest.Open(t, lab.Database(t, servers.SQLite), "replica-1")
	if err := store.CreateGoods(t.Context(), 1, 10, rand.Text()); err != nil {
		t.Fatal(err)
	}
	spans := tracetest.NewSpanRecorder()
	ctx, request := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "request")
	locked := entryOf(t, "mutex").New(strategy.Deps{Store: store.As("mutex"), LockWait: time.Minute})
	batcher := strategy.NewBatcher(locked.Deduct, store.Orders, strategy.Group{Batch: 5, Units: 1000, Queue: 10, Timeout: time.Minute})
	if err := oneOf(batcher.Deduct(ctx, 1, []stock.Purchase{purchase(1)})); err != nil {
		t.Error(err)
	}
	if err := batcher.Close(); err != nil {
		t.Error(err)
	}
	request.End()
	names := make([]string, 0, 4)
	for _, s := range spans.Ended() {
		names = append(names, s.Name())
	}
	if want := []string{"wait for lock", "hold lock", "write batch", "request"}; !slices.Equal(names, want) {
		t.Errorf("the steps that have ended are %q, want %q", names, want)
	}
}
