// Package process has the lock within one process.
package process

import (
	"context"
	"fmt"
	"sync"

	"github.com/stockd/stockd/internal/lock"
)

// Locker is the lock that every language has built in: it excludes the
// goroutines of one process from each other, and knows nothing of any other
// process. Waiters are served in the order in which they came.
type Locker struct {
	mu    sync.Mutex
	names map[string]*turnstile
}

// turnstile lets one holder through; it is forgotten with its last user, so
// that an unused name costs nothing.
type turnstile struct {
	taken chan struct{} // holds one element while the name is held
	users int           // holder and waiters, guarded by Locker.mu
}

// New returns a lock for the goroutines of this process.
func New() *Locker {
	return &Locker{names: make(map[string]*turnstile)}
}

// Acquire waits for the name until ctx ends.
func (p *Locker) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	t := p.enter(name)
	select {
	case t.taken <- struct{}{}:
	case <-ctx.Done():
		p.leave(name, t)
		return nil, fmt.Errorf("%w: %w", lock.ErrNotAcquired, context.Cause(ctx))
	}
	return lock.NewHeld(0, func(context.Context) error {
		<-t.taken
		p.leave(name, t)
		return nil
	}), nil
}

func (p *Locker) enter(name string) *turnstile {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.names[name]
	if t == nil {
		t = &turnstile{taken: make(chan struct{}, 1)}
		p.names[name] = t
	}
	t.users++
	return t
}

func (p *Locker) leave(name string, t *turnstile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t.users--; t.users == 0 {
		delete(p.names, name)
	}
}
