package background

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// A backend that hangs delays no answer for long, and closing waits for the release.
func TestAHungReleaseDelaysTheAnswerBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs, start := NewJobs(slog.New(slog.DiscardHandler)), time.Now()
		request, cancel := context.WithCancel(t.Context())
		cancel()
		jobs.Finish(request, "release lock", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(start); took != finishWait {
			t.Errorf("the answer waits for %s, want %s", took, finishWait)
		}
		if err := jobs.Close(time.Hour); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != FinishWithin {
			t.Errorf("the release ends after %s, want %s", took, FinishWithin)
		}
	})
}
