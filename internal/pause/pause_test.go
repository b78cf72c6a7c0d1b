package pause_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/pause"
)

func TestAPauseLastsNoLongerThanItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, gone := time.Now(), errors.New("gone")
		if err := pause.For(t.Context(), time.Second); err != nil || time.Since(start) != time.Second {
			t.Errorf("a second lasted %s (%v)", time.Since(start), err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(gone) })
		if err := pause.For(ctx, time.Hour); !errors.Is(err, gone) || time.Since(start) != 2*time.Second {
			t.Errorf("with a context that ended after a second: %v after %s", err, time.Since(start)-time.Second)
		}
	})
}
