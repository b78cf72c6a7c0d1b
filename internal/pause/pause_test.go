package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/should"
)

func TestAPauseLastsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, gone := time.Now(), errors.New("gone")
		must.Do(t, pause.For(t.Context(), time.Second))
		should.Be(t, time.Since(start), time.Second, "a second lasted")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if err := pause.For(ctx, time.Hour); !errors.Is(err, gone) || time.Since(start) != 2*time.Second {
			t.Errorf("with a context that ended after a second: %v after %s", err, time.Since(start)-time.Second)
		}
	})
}

func TestNoPauseAfterTheEndOfItsContext(t *testing.T) {
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for range 100 {
		should.Fail(t, pause.For(ctx, 0), gone, "no pause ends with")
	}
}

func TestAPauseIsDrawnAroundItsLength(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if start := time.Now(); pause.About(t.Context(), 0) != nil || time.Since(start) != 0 {
			t.Errorf("no pause lasted %s", time.Since(start))
		}
		shortest, longest := time.Hour, time.Duration(0)
		for range 1000 {
			start := time.Now()
			if err := pause.About(t.Context(), time.Second); err != nil {
				t.Fatal(err)
			}
			shortest, longest = min(shortest, time.Since(start)), max(longest, time.Since(start))
		}
		if shortest < time.Second/2 || shortest > 600*time.Millisecond || longest > 3*time.Second/2 || longest < 1400*time.Millisecond {
			t.Errorf("about a second is from %s to %s, want from half of it to half as much again", shortest, longest)
		}
	})
}
