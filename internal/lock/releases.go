package lock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/pause"
)

// Releases are those of a replica that a backend did not answer, or rejected. They are repeated in the background:
// otherwise one lost packet would block a name for the rest of its TTL.
//
//  1. A release is repeated until the backend has answered whether there was anything to release, and not after the TTL:
//     the backend has freed the name by then.
//  2. At most maxRepeated are repeated at a time; the TTL frees what is beyond.
//  3. Close ends them. It waits for the tries under way, but not for a server that is unresponsive. Later releases are
//     not repeated.
type Releases struct {
	ctx context.Context //nolint:containedctx // it ends the repetitions, which belong to no request
	end context.CancelFunc

	mu      sync.Mutex
	pending int
	running sync.WaitGroup
}

// NewReleases has nothing to repeat yet. It must be closed before the clients that it uses.
func NewReleases() *Releases {
	r := new(Releases)
	r.ctx, r.end = context.WithCancel(context.Background())
	return r
}

const (
	// maxRepeated is how many names may be released again and again at a time.
	maxRepeated = 1000
	// repeatAfter is the first pause between two tries. It doubles up to repeatAtMost.
	repeatAfter, repeatAtMost = 20 * time.Millisecond, time.Second
)

// Repeated is do, which gives back what the backend may have of one hold or one attempt, and which is repeated where it
// fails. do has to name that hold: it may run when another holds the name. The locks that are here to show how locks fail
// do not repeat: their DEL would free another's name. Without Releases it is not repeated.
func (d Deps) Repeated(do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := do(ctx)
		if !isReleased(err) && d.Releases != nil && !d.Releases.repeat(d.TTL, do, d.log()) {
			d.log().WarnContext(ctx, "release of a lock not repeated", "error", err, "free_within", d.TTL)
		}
		return err
	}
}

// isReleased reports whether the backend has answered: there was something to release, or it belongs to another by now.
func isReleased(err error) bool { return err == nil || errors.Is(err, ErrLost) }

func (d Deps) log() *slog.Logger {
	if d.Log == nil {
		return slog.Default()
	}
	return d.Log
}

// repeat begins to repeat a release, unless there are too many or the replica stops.
func (r *Releases) repeat(ttl time.Duration, do func(context.Context) error, log *slog.Logger) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pending == maxRepeated || r.ctx.Err() != nil {
		return false
	}
	r.pending++
	r.running.Go(func() {
		r.run(ttl, do, log)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.pending--
	})
	return true
}

func (r *Releases) run(ttl time.Duration, do func(context.Context) error, log *slog.Logger) {
	start := time.Now()
	ctx, cancel := context.WithTimeout(r.ctx, ttl)
	defer cancel()
	var err error
	for wait := repeatAfter; ; wait = min(2*wait, repeatAtMost) {
		try, end := context.WithTimeout(ctx, takeBackWithin)
		err = do(try)
		end()
		if isReleased(err) {
			return
		}
		if pause.About(ctx, wait) != nil {
			break
		}
	}
	log.WarnContext(ctx, "release of a lock given up", "error", err, "tried_for", time.Since(start), "free_within", ttl)
}

// Close ends the repetitions.
func (r *Releases) Close() {
	r.mu.Lock()
	r.end()
	r.mu.Unlock()
	pause.During(takeBackWait, r.running.Wait)
}
