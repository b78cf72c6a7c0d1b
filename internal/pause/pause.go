// Package pause sleeps until a context ends.
package pause

import (
	"context"
	"time"
)

// For waits for d. If ctx ends first, it returns its cause.
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
