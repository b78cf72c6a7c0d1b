package lock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A holder that cannot renew is notified before the backend grants the name to the next, with
// time to spare for clocks that differ; so is one that renewed once, and one that never does.
func TestALeaseIsLostBeforeItsTTLIsOver(t *testing.T) {
	const ttl, spare = time.Second, 12 * time.Millisecond
	silent := errors.New("no answer")
	for name, c := range map[string]struct {
		begin func(*Held)
		after time.Duration // the last renewal that was answered
	}{
		"never renewed": {func(l *Held) { Expire(l, time.Now(), ttl) }, 0},
		"not answered": {func(l *Held) {
			Watch(l, time.Now(), ttl, func(context.Context) (bool, error) { return false, silent })
		}, 0},
		"answered once": {func(l *Held) {
			answers := 0
			Watch(l, time.Now(), ttl, func(context.Context) (bool, error) {
				if answers++; answers > 1 {
					return false, silent
				}
				return true, nil
			})
		}, ttl / 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				lease := NewHeld(1, func(context.Context) error { return nil })
				c.begin(lease)
				<-lease.Context().Done()
				if held := time.Since(begun) - c.after; held > ttl-spare || held < ttl-2*spare {
					t.Errorf("it was held for %s of %s", held, ttl)
				}
				if cause := context.Cause(lease.Context()); !errors.Is(cause, ErrLost) {
					t.Errorf("it ended with %v, want %v", cause, ErrLost)
				}
			})
		})
	}
}
