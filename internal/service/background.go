package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/service/rescue"
	"github.com/stockd/stockd/internal/stock"
)

// background does what is not to end with the request that asked for it: what is
// committed is not undone, and a long change goes on when its client has left.
type background struct {
	log *slog.Logger
	ctx context.Context //nolint:containedctx // it ends the work, and is no request's
	end context.CancelFunc

	mu      sync.Mutex
	closed  bool
	working sync.WaitGroup // nothing is added once it is closed
}

func newBackground(log *slog.Logger) *background {
	ctx, end := context.WithCancel(context.Background())
	return &background{log: log, ctx: ctx, end: end}
}

// do does work within a limit of its own, and waits for it as long as the request
// lasts, also where that has ended already. stock.ErrUnknownOutcome: it goes on.
func (b *background) do(ctx context.Context, limit time.Duration, doing string, work func(context.Context) error) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	unlink := context.AfterFunc(b.ctx, cancel)
	done := make(chan error, 1)
	run := func() {
		defer cancel()
		defer unlink()
		done <- rescue.Do(own, b.log, doing, func() error { return work(own) })
	}
	if !b.begin(run) {
		cancel()
		return fmt.Errorf("%w: this replica is stopping", stock.ErrBusy)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %s goes on: %w", stock.ErrUnknownOutcome, doing, context.Cause(ctx))
	}
}

func (b *background) begin(run func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.working.Go(run)
	}
	return !b.closed
}

// backgroundGrace is how long work may still take when the replica stops.
const backgroundGrace = 500 * time.Millisecond

// errCutOff tells that work was cut off when the replica stopped.
var errCutOff = errors.New("work in the background was cut off")

// close waits for the work, and cuts it off where that takes long.
func (b *background) close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	var cut error
	grace := time.AfterFunc(backgroundGrace, b.end)
	b.working.Wait()
	if !grace.Stop() {
		cut = errCutOff
	}
	b.end()
	return cut
}
