package lock

import (
	"context"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/pause"
)

// Polling paces the waiters of this replica where no notification says that a name is free:
// try, pause, try again.
//
//  1. A single waiter tries again soon, so that handoffs are quick. Its pause grows with its
//     wait, and no pause is longer than most.
//  2. A crowd asks the server no more often than if each paused for most from the start.
//     Waiters for another name do not count.
//  3. A pause ends with its context, and a waiter that has ended is not counted any more.
type Polling struct {
	most time.Duration
	// inVain is called after every try that failed; nil: they are not counted.
	inVain func()

	mu      sync.Mutex
	waiting map[string]int // waiters whose first try failed, by name
}

// NewPolling pauses for at most so long between two tries; inVain may be nil.
func NewPolling(most time.Duration, inVain func()) *Polling {
	return &Polling{most: most, inVain: inVain, waiting: make(map[string]int)}
}

const (
	// soonest is the first pause of a single waiter. It grows quadratically with the
	// waiters of this replica.
	soonest = time.Millisecond
	// overdue bounds by how much of the wait a pause may prolong it: a quarter.
	overdue = 4
)

// after is the pause of one of so many waiters that has waited so long.
func (p *Polling) after(waiting int, waited time.Duration) time.Duration {
	if waiting > int(p.most/soonest) {
		return p.most // its square might not fit
	}
	return min(p.most, max(soonest*time.Duration(waiting*waiting), waited/overdue))
}

// Begin precedes the first try; End follows the last.
func (p *Polling) Begin(name string) *Poller {
	return &Poller{Polling: p, name: name}
}

// Poller is one that tries again and again, and is a waiter from the first failure on.
type Poller struct {
	*Polling
	name  string
	since time.Time
}

// Pause waits before the next try. It reports whether ctx lasted.
func (w *Poller) Pause(ctx context.Context) bool {
	return pause.About(ctx, w.next()) == nil
}

func (w *Poller) next() time.Duration {
	if w.inVain != nil {
		w.inVain()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.since.IsZero() {
		w.since = time.Now()
		w.waiting[w.name]++
	}
	return w.after(w.waiting[w.name], time.Since(w.since))
}

// End counts the poller out.
func (w *Poller) End() {
	if w.since.IsZero() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting[w.name]--; w.waiting[w.name] == 0 {
		delete(w.waiting, w.name)
	}
}
