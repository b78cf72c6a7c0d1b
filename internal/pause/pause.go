// Package pause waits for a while, and no longer than a context lasts.
package pause

import (
	"context"
	"time"
)

// For waits for d. Where ctx ends before, it returns the cause of that.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
