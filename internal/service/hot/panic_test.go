package hot_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
)

// trap is a log that panics when a consumer dead-letters an order, and counts the
// panics that it gets.
type trap struct {
	slog.Handler
	panics atomic.Int64
}

func (*trap) Enabled(context.Context, slog.Level) bool { return true }

func (l *trap) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "dead-lettered") {
		panic("a consumer that is broken")
	}
	if r.Message == "panic" {
		l.panics.Add(1)
	}
	return nil
}

// A panic in the middle of a batch loses nothing of it, nor the replica.
func TestAConsumerOutlivesAPanic(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	a := s.replica(t, "a", idle)
	reported := orders(sell(t, a, buy(1)))
	settle(t, a)
	noOrder := map[string]any{"goods": "none"}
	if err := s.client.XAdd(t.Context(), &redis.XAddArgs{Stream: s.key("orders"), Values: noOrder}).Err(); err != nil {
		t.Fatal(err)
	}
	reported = append(reported, sell(t, a, buy(1)), sell(t, a, buy(1)))
	log := &trap{Handler: slog.DiscardHandler}
	s.options.Log = slog.New(log)
	s.assertExact(t, s.replica(t, "b"), reported)
	if n := log.panics.Load(); n != 1 {
		t.Errorf("%d panics were logged, want 1", n)
	}
}
