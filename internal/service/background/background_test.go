package background

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

const testGrace = 500 * time.Millisecond

func TestWorkInTheBackgroundOutlivesItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := NewJobs(slog.New(slog.DiscardHandler))
		request, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var done error
		begun := time.Now()
		err := jobs.Do(request, time.Minute, "test", func(ctx context.Context) error {
			select {
			case <-time.After(1200 * time.Millisecond):
			case <-ctx.Done():
			}
			done = ctx.Err()
			return done
		})
		if took := time.Since(begun); took != time.Second || !errors.Is(err, stock.ErrUnknownOutcome) {
			t.Errorf("after %s the request got %v, want %v at its deadline", took, err, stock.ErrUnknownOutcome)
		}
		if err := jobs.Close(testGrace); err != nil || done != nil {
			t.Errorf("the work ended with %v, the close with %v", done, err)
		}
	})
}

// What is committed is followed up, also when its client has left.
func TestWorkInTheBackgroundBeginsAfterItsRequest(t *testing.T) {
	jobs := NewJobs(slog.New(slog.DiscardHandler))
	request, cancel := context.WithCancel(t.Context())
	cancel()
	var done bool
	_ = jobs.Do(request, time.Minute, "test", func(ctx context.Context) error {
		done = ctx.Err() == nil
		return nil
	})
	if err := jobs.Close(testGrace); err != nil || !done {
		t.Errorf("the work was done: %t, the close ended with %v", done, err)
	}
}

func TestClosingCutsLongWorkOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := NewJobs(slog.New(slog.DiscardHandler))
		request, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = jobs.Do(request, time.Hour, "test", func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		})
		begun := time.Now()
		if err := jobs.Close(testGrace); !errors.Is(err, ErrCutOff) || time.Since(begun) != testGrace {
			t.Errorf("after %s the close ended with %v, want %v after %s", time.Since(begun), err, ErrCutOff, testGrace)
		}
		if err := jobs.Do(t.Context(), time.Second, "test", func(context.Context) error { return nil }); !errors.Is(err, stock.ErrBusy) {
			t.Errorf("after the close work got %v, want %v", err, stock.ErrBusy)
		}
	})
}
