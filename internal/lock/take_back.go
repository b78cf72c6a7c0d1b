package lock

import (
	"context"
	"time"
)

const (
	// takeBackWithin bounds the taking back of what an Acquire that failed may have
	// left in the backend.
	takeBackWithin = 2 * time.Second
	// takeBackWait is how long the Acquire itself waits for that: its caller's time
	// is over.
	takeBackWait = 400 * time.Millisecond
)

// TakeBack runs do on a context of its own: the one that has ended is the
// reason why it is called. Where the backend is slow, do goes on when TakeBack
// has returned.
func TakeBack(ctx context.Context, do func(context.Context) error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackWithin)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		_ = do(own) // what cannot be taken back frees itself within the TTL
	}()
	timer := time.NewTimer(takeBackWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
