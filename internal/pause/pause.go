// Package pause sleeps until a context ends.
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
