package lock

import (
	"context"
	"math/rand/v2"
	"time"
)

// pause waits for about d, half as long or half as long again, so that those
// who failed together do not come back together. It reports whether ctx lasted.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d/2 + rand.N(d+1))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// takeBackWithin bounds the taking back of what an Acquire that failed may have
// left in the backend.
const takeBackWithin = 2 * time.Second

// takeBack runs do on a context of its own: the one that has ended is the
// reason why it is called.
func takeBack(ctx context.Context, do func(context.Context) error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackWithin)
	defer cancel()
	_ = do(own) // what cannot be taken back frees itself within the TTL
}

// answerWithin is how long after the end of a wait the backend's answer to a
// question that was asked before is still awaited.
const answerWithin = 250 * time.Millisecond

// Uncut is a context for one round trip in the course of a wait. It is not cut
// off when the waiting is: an answer that nobody heard may have been a grant,
// and a backend that does not answer is told from a name that is not free.
func Uncut(ctx context.Context) (context.Context, context.CancelFunc) {
	own := context.WithoutCancel(ctx)
	deadline, limited := ctx.Deadline()
	if !limited {
		return own, func() {}
	}
	if now := time.Now(); deadline.Before(now) {
		deadline = now
	}
	return context.WithDeadline(own, deadline.Add(answerWithin))
}
