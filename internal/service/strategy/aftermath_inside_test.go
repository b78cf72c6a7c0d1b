package strategy

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A backend that hangs keeps the answer from no buyer, and the release is waited for
// when the strategy is closed.
func TestAHungReleaseDelaysTheAnswerBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, start := newAftermath(slog.New(slog.DiscardHandler)), time.Now()
		request, cancel := context.WithCancel(t.Context())
		cancel()
		a.do(request, "release lock", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(start); took != aftermathWait {
			t.Errorf("the answer waits for %s, want %s", took, aftermathWait)
		}
		a.wait()
		if took := time.Since(start); took != aftermathWithin {
			t.Errorf("the release ends after %s, want %s", took, aftermathWithin)
		}
	})
}
