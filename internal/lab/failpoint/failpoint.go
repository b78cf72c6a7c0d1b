// Package failpoint has the failpoints of a replica, between the read and the write of
// a strategy, and records the leases of its locks. A replica has it only where its
// configuration says so.
package failpoint

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/telemetry"
)

// Options name the replica, and where it records.
type Options struct {
	// Replica is the holder of all leases.
	Replica string
	// History is the file that is appended to, by this replica alone; empty: no record.
	History string
	// Writer is used in its place where several record in one file. It stays open.
	Writer *history.Writer
	// Steps, if they are not nil, record the requests that they trace here.
	Steps *Steps
	// Log gets the errors of writes to the record; nil: they are not told.
	Log *slog.Logger
}

// Registry is the failpoints and the record of a replica: the strategy.Failpoints of
// its strategies, and the routes that set faults.
type Registry struct {
	replica string
	log     *slog.Logger
	history *history.Writer // nil: no record
	close   func() error    // nil: it is not ours
	start   string          // distinguishes the leases of this process from those of an earlier one
	leases  atomic.Int64

	mu       sync.Mutex
	faults   []*Fault
	clear    chan struct{}  // closed when the faults are cleared, and made anew
	stopping sync.WaitGroup // purchases that stop this process, and were found under mu
}

// Open begins. It must be closed.
func Open(o Options) (*Registry, error) {
	l := &Registry{replica: o.Replica, log: cmp.Or(o.Log, slog.New(slog.DiscardHandler)), start: rand.Text()[:8], clear: make(chan struct{}), history: o.Writer}
	if o.Steps != nil {
		o.Steps.mu.Lock()
		o.Steps.to = l
		o.Steps.mu.Unlock()
	}
	if o.History == "" {
		return l, nil
	}
	var err error
	if l.history, err = history.Append(o.History); err != nil {
		return nil, fmt.Errorf("lab.history: %w", err)
	}
	l.close = l.history.Close
	return l, nil
}

// Close ends the record, and lets go what is held.
func (l *Registry) Close() error {
	l.ClearFaults()
	if l.close == nil {
		return nil
	}
	return l.close()
}

// SetFault adds a fault.
func (l *Registry) SetFault(f Fault) {
	f.Times, f.Reached = cmp.Or(f.Times, 1), 0
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, &f)
}

// Faults lists what was set.
func (l *Registry) Faults() []Fault {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := make([]Fault, len(l.faults))
	for i, f := range l.faults {
		list[i] = *f
	}
	return list
}

// ClearFaults forgets what was set, and lets go what is held. When it returns, no
// purchase will stop this process any more: one SIGCONT after it is the last that is needed.
func (l *Registry) ClearFaults() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = nil
	close(l.clear)
	l.clear = make(chan struct{})
	l.stopping.Wait()
}

func (l *Registry) reach(strategy string, goodsID int64) (fault Fault, cleared <-chan struct{}, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := slices.IndexFunc(l.faults, func(f *Fault) bool {
		return f.Reached < f.Times && (f.Strategy == "" || f.Strategy == strategy) && (f.GoodsID == 0 || f.GoodsID == goodsID)
	})
	if at < 0 {
		return Fault{}, nil, false
	}
	l.faults[at].Reached++
	if l.faults[at].Do == Pause {
		l.stopping.Add(1)
	}
	return *l.faults[at], l.clear, true
}

// What the marks of a replica say.
const (
	Held   = "held in its critical section"
	Paused = "paused in its critical section"
	Killed = "killed in its critical section"
	WentOn = "went on in its critical section"
)

// Between does the fault that is set for this purchase, if there is one. That it
// was reached is recorded before it is done: afterwards the process may be dead.
func (l *Registry) Between(ctx context.Context, strategy string, goodsID int64) context.Context {
	fault, cleared, found := l.reach(strategy, goodsID)
	if !found {
		return ctx
	}
	_, step := telemetry.StartSpan(ctx, workStep)
	defer step.End()
	if fault.IgnoreCancel {
		ctx = context.WithoutCancel(ctx)
	}
	switch fault.Do {
	case Hold:
		l.mark(Held)
		hold(ctx, fault.For, cleared)
	case Pause:
		l.mark(Paused)
		stop()
		l.stopping.Done()
	case Crash:
		l.mark(Killed)
		kill()
	}
	l.mark(WentOn)
	return ctx
}

func hold(ctx context.Context, d time.Duration, cleared <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-cleared:
	case <-ctx.Done():
	}
}

func (l *Registry) mark(what string) {
	l.write(history.Line{Mark: &history.Mark{At: time.Now(), Who: l.replica, What: what}})
}

func (l *Registry) write(line history.Line) {
	if l.history == nil {
		return
	}
	if err := l.history.Add(line); err != nil {
		l.log.Error("the lab's record has a gap", "error", err)
	}
}

// kill ends this process. It does not return: nothing may happen behind it.
func kill() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill() // it cannot be blocked
	}
	select {}
}
