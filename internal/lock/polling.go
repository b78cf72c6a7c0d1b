package lock

import (
	"context"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/pause"
)

// Polling paces the waiters of this replica where no notification says that a name is free:
// try, pause, try again. A single waiter tries again soon, so that handoffs are quick; the
// pause grows with the number of waiters and with their wait, up to most. So a crowd asks the
// server no more often than if each paused for most from the start.
type Polling struct {
	most time.Duration
	// inVain is told of every try that failed; nil: nobody counts.
	inVain func()

	mu      sync.Mutex
	waiting map[string]int // who has tried in vain, by name
}

// NewPolling pauses for at most so long between two tries; inVain may be nil.
func NewPolling(most time.Duration, inVain func()) *Polling {
	return &Polling{most: most, inVain: inVain, waiting: make(map[string]int)}
}

const (
	// soonest is the pause of one who has just come and is the only one. It grows
	// with the square of those who wait here.
	soonest = time.Millisecond
	// overdue bounds by how much of the wait a pause may prolong it: a quarter.
	overdue = 4
)

// after is the pause of one of so many who has waited so long.
func (p *Polling) after(waiting int, waited time.Duration) time.Duration {
	if waiting > int(p.most/soonest) {
		return p.most // its square might not fit
	}
	return min(p.most, max(soonest*time.Duration(waiting*waiting), waited/overdue))
}

// Begin is for one who is about to try; it ends with its wait.
func (p *Polling) Begin(name string) *Poller {
	return &Poller{Polling: p, name: name}
}

// Poller is one who tries again and again, and from the first failure on waits.
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
