// Package rescue keeps a panic in one piece of work from ending the replica. The
// handlers do so for what runs in the goroutine of a request; this is for the
// goroutines that work for many.
package rescue

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
)

// Message is what the log says of each panic, beside what it was.
const Message = "panic"

// ErrPanicked tells that work ended in a panic. What and where it was is for the
// log, and not for a buyer.
var ErrPanicked = errors.New("a panic, see the log")

// Do does work and makes a panic in it ErrPanicked, which is logged once with its
// stack. How far the work came nobody knows. Without a log, slog's default hears it.
func Do(ctx context.Context, log *slog.Logger, doing string, work func() error) (err error) {
	defer func() {
		cause := recover()
		if cause == nil {
			return
		}
		if log == nil {
			log = slog.Default()
		}
		log.ErrorContext(ctx, Message, "doing", doing, "cause", cause, "stack", string(debug.Stack()))
		err = ErrPanicked
	}()
	return work()
}
