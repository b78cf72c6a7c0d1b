package strategy_test

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// The replica lives on, no caller gets an error that means "nothing happened", and the next batch
// is written.
func TestAPanicIsAnUnknownOutcomeOfItsBatch(t *testing.T) {
	var log strings.Builder
	loud := bounds
	loud.Log = slog.New(slog.NewJSONHandler(&log, nil))
	inQueue(t, 10, loud, func(q *queued) {
		release := q.hold()
		answers := []*answer{q.buy("first", 1), q.buy("second", 1), q.buy("third", 1)}
		q.panics = true
		release() // "first" alone, and then the others
		for i, a := range answers {
			if !a.answered || !errors.Is(a.err, stock.ErrUnknownOutcome) || strings.Contains(a.err.Error(), "broken") {
				q.t.Errorf("answer %d is %+v, want an unknown outcome that keeps the cause to itself", i, a)
			}
		}
		q.panics, q.gate = false, nil
		if a := q.buy("fourth", 1); a.err != nil || a.outcomes[0].Rejected != nil {
			q.t.Errorf("after a panic: %+v", a)
		}
		if again := q.buy("second", 1); !errors.Is(again.err, stock.ErrDuplicateRequest) {
			q.t.Errorf("what was written before the panic, asked for again: %v, want %v", again.err, stock.ErrDuplicateRequest)
		}
	})
	lines := slices.Collect(strings.Lines(log.String()))
	if len(lines) != 2 || !strings.Contains(lines[0], "a strategy that is broken") || !strings.Contains(lines[0], "batcher_test.go") {
		t.Errorf("two batches have panicked, the log is %q", lines)
	}
}

// A lock must not stay with a holder that panicked, nor a goroutine that serves others
// end with it.
func TestAPanicKeepsNoLock(t *testing.T) {
	for _, entry := range strategy.Registry() {
		if entry.Name != "mutex" && entry.Name != "channel" {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quiet := slog.New(slog.DiscardHandler)
				nowhere := new(repo.Store) // it has no database: the first read panics
				made := entry.New(strategy.Deps{Store: nowhere, LockWait: time.Second, Log: quiet})
				grouped := strategy.NewBatcher(made.Deduct, nil, strategy.Group{Batch: 1, Units: 1, Queue: 1, Timeout: time.Minute, Log: quiet})
				for range 2 {
					_, err := grouped.Deduct(t.Context(), 1, []stock.Purchase{{RequestID: "id", Quantity: 1}})
					if !errors.Is(err, stock.ErrUnknownOutcome) {
						t.Errorf("a panic under the lock is answered with %v, want %v", err, stock.ErrUnknownOutcome)
					}
				}
			})
		})
	}
}
