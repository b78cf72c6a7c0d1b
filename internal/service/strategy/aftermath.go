package strategy

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/service/rescue"
)

const (
	// aftermathWithin bounds what is still to be done when a purchase is decided.
	aftermathWithin = 2 * time.Second
	// aftermathWait is how long the answer waits for it. A purchase at its deadline
	// has been waiting for the answer to its commit before, and has one second in all.
	aftermathWait = 400 * time.Millisecond
)

// aftermath is what strategies do when a purchase is decided, such as the release of
// its lock: it must not depend on the request, which may have been cancelled, and a
// backend that hangs must not delay the answer.
type aftermath struct {
	log *slog.Logger

	mu      sync.Mutex
	over    bool
	running sync.WaitGroup // nothing is added once it is over
}

func newAftermath(log *slog.Logger) *aftermath { return &aftermath{log: log} }

// do does something on a context of its own. Where it takes long it goes on when do
// has returned. Its error is dropped: the purchase is decided.
func (a *aftermath) do(ctx context.Context, doing string, work func(context.Context) error) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), aftermathWithin)
	done := make(chan struct{})
	run := func() {
		defer close(done)
		defer cancel()
		_ = rescue.Do(own, a.log, doing, func() error { return work(own) })
	}
	a.mu.Lock()
	if a.over {
		go run()
	} else {
		a.running.Go(run)
	}
	a.mu.Unlock()
	timer := time.NewTimer(aftermathWait)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// wait waits for what is going on. What begins later is not waited for.
func (a *aftermath) wait() {
	a.mu.Lock()
	a.over = true
	a.mu.Unlock()
	a.running.Wait()
}
