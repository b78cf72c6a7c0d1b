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

func TestAReplicaExitsAlthoughAPartDoesNotClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		hung := make(chan struct{})
		defer synctest.Wait()
		defer close(hung)
		open := newClosing(ctx, drainOnly())
		closed := make(map[string]time.Time)
		for _, name := range []string{"database", "lock clients", "strategies", "background jobs"} {
			open.add(name, func() error {
				switch name {
				case "strategies":
					<-hung
				case "lock clients": // the database may be closed no sooner than they are
					time.Sleep(minClose / 2)
				}
				closed[name] = time.Now()
				return nil
			})
		}
		start := time.Now()
		var log strings.Builder
		err := open.run(t.Context(), slog.New(slog.NewTextHandler(&log, nil)), func() error {
			stop()
			time.Sleep(time.Second) // the drain
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
		if closed["lock clients"].IsZero() || closed["database"].Before(closed["lock clients"]) {
			t.Errorf("closed are %v, want each part after the one before it", closed)
		}
	})
}

// A part that hangs on another one ends with that: nothing is forced.
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

// The time of the exit is counted from the signal, and leaves the requests all of their drain; without
// a signal it is counted from the failure that ended the replica.
func TestTheExitIsForcedAfterTheDrain(t *testing.T) {
	for name, signalled := range map[string]bool{"a signal": true, "a failure": false} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			hung := make(chan struct{})
			defer synctest.Wait()
			defer close(hung)
			c := config.HTTP{DrainDelay: 10 * time.Second, Drain: 20 * time.Second}
			open := newClosing(ctx, c)
			open.add("strategies", func() error { <-hung; return nil })
			var began time.Time
			err := open.run(t.Context(), slog.New(slog.DiscardHandler), func() error {
				time.Sleep(time.Hour)
				if began = time.Now(); signalled {
					stop()
					<-hung // a request that does not end
				}
				return open.close()
			})
			took, drained := time.Since(began), c.DrainDelay+c.Drain
			if !errors.Is(err, errForced) || took <= drained+lastMoment || took > drained+exitWithin {
				t.Errorf("after %s it ends with %v in %s, want it forced within 2s after %s", name, err, took, drained)
			}
		})
	}
}
