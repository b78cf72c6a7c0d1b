package hot_test

import (
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/hot"
	"github.com/stockd/stockd/internal/stock"
)

// An order is offered again in the next epoch, and written by another replica: that
// is a part of its purchase's trace.
func TestAnOrderThatIsOfferedAgainKeepsItsPlaceInATrace(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	spans := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")
	a := s.replica(t, "a", idle)
	reported := orders(sell(t, a, buy(1)))
	settle(t, a)
	ctx, purchase := tracer.Start(t.Context(), "purchase")
	outcomes, err := a.Deduct(ctx, goods, []stock.Purchase{buy(2)})
	if err != nil || outcomes[0].Rejected != nil {
		t.Fatalf("not sold: %v, %v", err, outcomes)
	}
	purchase.End()
	s.restock(t, a, 1) // a new epoch begins
	b := s.replica(t, "b", func(o *hot.Options, _ *backend.RedisOptions) { o.Tracer = tracer })
	s.assertExact(t, b, append(reported, outcomes[0].Order))
	await(t, "both steps", func() bool { return len(spans.Ended()) == 3 })
	for _, step := range spans.Ended()[1:] {
		if step.Name() != "write orders" || step.Parent().SpanID() != purchase.SpanContext().SpanID() {
			t.Errorf("%s is a part of %v, want the purchase", step.Name(), step.Parent())
		}
	}
}
