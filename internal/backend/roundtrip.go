package backend

import (
	"context"
	"errors"
	"time"
)

// AnswerWithin is how long after the end of a wait the backend's answer to a
// question that was asked before is still awaited.
const AnswerWithin = 250 * time.Millisecond

// Uncut is a context for one round trip during a wait. It outlasts the end of the wait: an
// answer that no one received may have been a grant, and a hung backend must not look like
// lock contention.
func Uncut(ctx context.Context) (context.Context, context.CancelFunc) {
	own := context.WithoutCancel(ctx)
	deadline, limited := ctx.Deadline()
	if !limited {
		return own, func() {}
	}
	if now := time.Now(); deadline.Before(now) {
		deadline = now
	}
	return context.WithDeadline(own, deadline.Add(AnswerWithin))
}

// ErrUnanswered marks a request that was sent and not answered in time. The server may
// still execute it.
var ErrUnanswered = errors.New("no answer in time")
