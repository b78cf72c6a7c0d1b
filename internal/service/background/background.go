// Package background runs work that outlasts its request or serves many of them, and
// keeps a panic in it from ending the replica.
package background

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// PanicMessage is what the log says of each panic, beside its cause.
const PanicMessage = "panic"

// ErrPanicked reports that work ended in a panic. The cause and the stack are in the log
// only: a client must not see them.
var ErrPanicked = errors.New("a panic, see the log")

// Guard runs work and turns a panic in it into ErrPanicked, which is logged once with its
// stack. How far the work got is unknown then. Without a log, slog's default has it.
func Guard(ctx context.Context, log *slog.Logger, doing string, work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = Panicked(ctx, log, doing, cause)
		}
	}()
	return work()
}

// Panicked is Guard for a caller that has recovered from a panic itself, with its cause.
func Panicked(ctx context.Context, log *slog.Logger, doing string, cause any) error {
	cmp.Or(log, slog.Default()).ErrorContext(ctx, PanicMessage, "doing", doing, "cause", cause, "stack", string(debug.Stack()))
	return ErrPanicked
}

// Jobs are pieces of work that do not end with the request that began them: what is
// committed is not undone, and a lock is released although its client has left.
type Jobs struct {
	log *slog.Logger
	ctx context.Context //nolint:containedctx // it ends the work, and belongs to no request
	end context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // nothing is added once it is closed
}

// NewJobs makes Jobs that must be closed.
func NewJobs(log *slog.Logger) *Jobs {
	ctx, end := context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	return &Jobs{log: log, ctx: ctx, end: end}
}

// Do runs work within a limit of its own, and waits for it as long as the request lasts,
// also where that has ended already. stock.ErrUnknownOutcome: the work goes on.
// stock.ErrBusy: the jobs are closed, and nothing was begun. Where it fails after the request has ended, the log has it.
func (j *Jobs) Do(ctx context.Context, limit time.Duration, doing string, work func(context.Context) error) error {
	run, done := j.job(ctx, limit, doing, work)
	if !j.begin(run) {
		return fmt.Errorf("%w: this replica is stopping", stock.ErrBusy)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		go j.logEnd(ctx, doing, done)
		return fmt.Errorf("%w: %s goes on: %w", stock.ErrUnknownOutcome, doing, context.Cause(ctx))
	}
}

// logEnd logs why work failed whose request has ended.
func (j *Jobs) logEnd(ctx context.Context, doing string, done <-chan error) {
	if err := <-done; err != nil && !errors.Is(err, ErrPanicked) {
		cmp.Or(j.log, slog.Default()).ErrorContext(context.WithoutCancel(ctx), "work in the background failed", "doing", doing, "error", err)
	}
}

const (
	// FinishWithin bounds what is still to be done when a purchase is decided.
	FinishWithin = 2 * time.Second
	// finishWait is how long the answer waits for that. A purchase at its deadline has been
	// waiting for the answer to its commit before, and has one second in all.
	finishWait = 400 * time.Millisecond
)

// Finish does what is left when a purchase is decided, such as the release of its lock. It
// must not depend on the request, which may have been cancelled, and a backend that hangs
// must not delay the answer: where the work takes long, it goes on when Finish has
// returned. Its error is dropped. It also runs, unsupervised, when the jobs are closed.
func (j *Jobs) Finish(ctx context.Context, doing string, work func(context.Context) error) {
	run, done := j.job(ctx, FinishWithin, doing, work)
	if !j.begin(run) {
		go run()
	}
	select {
	case <-done: //nolint:errcheck // it is dropped, see above
	case <-time.After(finishWait):
	}
}

func (j *Jobs) job(ctx context.Context, limit time.Duration, doing string, work func(context.Context) error) (run func(), done chan error) {
	done = make(chan error, 1)
	return func() {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		defer context.AfterFunc(j.ctx, cancel)()
		done <- Guard(own, j.log, doing, func() error { return work(own) })
	}, done
}

func (j *Jobs) begin(run func()) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.running.Go(run)
	}
	return !j.closed
}

// ErrCutOff reports that work was cut off when the replica stopped.
var ErrCutOff = errors.New("work in the background was cut off")

// Close waits for the work, and cuts off what takes longer than grace.
func (j *Jobs) Close(grace time.Duration) error {
	j.mu.Lock()
	j.closed = true
	j.mu.Unlock()
	var cut error
	timer := time.AfterFunc(grace, j.end)
	j.running.Wait()
	if !timer.Stop() {
		cut = ErrCutOff
	}
	return cut
}
