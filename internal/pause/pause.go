// Package pause waits: for a time, for a context, or for work.
package pause

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d. If ctx ends first, it returns its cause.
func For(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil { // beside a timer of no time it would be a matter of chance
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// About is For with between half of d and half as much again, so that clients that failed
// together do not come back together.
func About(ctx context.Context, d time.Duration) error { return For(ctx, d/2+rand.N(d+1)) }

// During runs work, and reports whether it has ended within d; otherwise it goes on.
func During(d time.Duration, work func()) (ended bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}
