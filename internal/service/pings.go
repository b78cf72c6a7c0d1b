package service

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/background"
)

const (
	// pingWithin bounds the wait for the answer of a backend. It is short: a balancer that
	// asks for readiness must not wait for a lock server that hangs.
	pingWithin = 700 * time.Millisecond
	// pingsFor is how long the answers are shared: each backend is pinged twice a second at
	// most, however many requests ask.
	pingsFor = 500 * time.Millisecond
)

// pings are the last look at all backends, shared by all requests.
type pings struct {
	mu   sync.Mutex
	last *look
}

// look is one ping of every backend.
type look struct {
	began time.Time
	done  chan struct{}
	down  map[backend.Name]error // read only, and only once done is closed
}

// down returns which backends are down, and why, as of half a second ago at most. It ends
// with ctx, and then all of them count as down for the cause of that.
func (c *Catalogue) down(ctx context.Context) map[backend.Name]error {
	if ctx.Err() == nil { // nothing is begun for a request that has ended
		l := c.look()
		select {
		case <-l.done:
			return l.down
		case <-ctx.Done():
		}
	}
	cause := fmt.Errorf("ask the backends: %w", context.Cause(ctx))
	down := map[backend.Name]error{backend.Database: cause, backend.MySQL: cause}
	for _, b := range backend.LockServers() {
		down[b] = cause
	}
	return down
}

// look returns the last look, or begins another one where that is too old.
func (c *Catalogue) look() *look {
	c.pings.mu.Lock()
	defer c.pings.mu.Unlock()
	if last := c.pings.last; last != nil && time.Since(last.began) < pingsFor {
		return last
	}
	l := &look{began: time.Now(), done: make(chan struct{})}
	c.pings.last = l
	go func() {
		defer close(l.done)
		l.down = c.pingAll()
	}()
	return l
}

// pingAll pings every backend at once.
func (c *Catalogue) pingAll() map[backend.Name]error {
	ctx, cancel := context.WithTimeout(context.Background(), pingWithin) // it outlives the request that began it
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	down := make(map[backend.Name]error)
	ask := func(b backend.Name, ping func() error) {
		asked.Go(func() {
			if err := background.Guard(ctx, c.log, "ask "+string(b), ping); err != nil {
				mu.Lock()
				defer mu.Unlock()
				down[b] = err
			}
		})
	}
	ask(backend.Database, func() error { return c.store.Ping(ctx) })
	for _, b := range backend.LockServers() {
		ask(b, func() error { return c.clients.Ping(ctx, b) })
	}
	asked.Wait()
	down[backend.MySQL] = c.clients.Has(backend.MySQL) // the same database, asked already
	return down
}
