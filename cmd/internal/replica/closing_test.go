package replica

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/config"
)

// drainOnly is the configuration of a replica that drains within a second.
func drainOnly() config.HTTP { return config.HTTP{Drain: time.Second} }

//contract:replica.closing The replica exits
//contract:replica.closing The parts after one
func TestAReplicaExitsAlthoughAPartDoesNotClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		hung := make(chan struct{})
		defer synctest.Wait()
		defer close(hung)
		open := newClosing(ctx, drainOnly())
		closed := make(map[string]time.Time)
		for _, name := range []string{"database", "strategies", "background jobs"} {
			open.add(name, func() error {
				if name == "strategies" {
					<-hung
				}
				closed[name] = time.Now()
				return nil
			})
		}
		start := time.Now()
		var log strings.Builder
		err := open.run(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), func() error {
			stop()
			return open.close()
		})
		if took := time.Since(start); took > time.Second+exitWithin {
			t.Errorf("it takes %s", took)
		}
		if !errors.Is(err, errForced) || !strings.HasSuffix(err.Error(), ": strategies") || !strings.Contains(log.String(), "open=[strategies]") {
			t.Errorf("it ends with %v and logs %s; want what is open", err, &log)
		}
		if closed["database"].IsZero() || closed["background jobs"].IsZero() {
			t.Errorf("closed are %v, want the parts beside the one that hangs", closed)
		}
	})
}

// A part that hangs on another one ends with that: nothing is forced.
//
//contract:replica.closing The parts after one
func TestAPartIsAwaitedWhenTheOthersAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		stop()
		open, pool := newClosing(ctx, drainOnly()), make(chan struct{})
		failed := errors.New("not well")
		open.add("database", func() error { close(pool); return failed })
		open.add("strategies", func() error { <-pool; return nil })
		synctest.Wait()
		if err := open.run(t.Context(), slog.New(slog.DiscardHandler), open.close); !errors.Is(err, failed) || errors.Is(err, errForced) {
			t.Errorf("it ends with %v, want %v", err, failed)
		}
	})
}
