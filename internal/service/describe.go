package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// Description is a strategy as GET /strategies shows it.
type Description struct {
	Name       string              `json:"name"`
	Family     strategy.Family     `json:"family"`
	Summary    string              `json:"summary"`
	Needs      []string            `json:"needs"`
	Guarantees strategy.Guarantees `json:"claims"`
	// Damage is what is shown where it guarantees no exclusion, or all the same.
	Damage strategy.Damage `json:"damage,omitempty"`
	// SeveralItems: with group=true it writes purchases of several items in one transaction.
	SeveralItems bool `json:"several_items,omitempty"`
	// Enabled: neither the configuration of this replica nor a switch rejects it.
	Enabled bool `json:"enabled"`
	// RequiresFence: it is rejected without fence=true.
	RequiresFence bool `json:"requires_fence,omitempty"`
	// Available: it is enabled, and every backend that it needs answers now.
	Available bool `json:"available"`
	// Note is why it is not available, or what the database does to it.
	Note string `json:"note,omitempty"`
	// Hidden: the damage that the strategy demonstrates cannot be seen on this database.
	Hidden bool `json:"hidden,omitempty"`
}

// Describe lists the strategies and whether their backends answer.
func (c *Catalogue) Describe(ctx context.Context) []Description {
	down := c.down(ctx)
	list := make([]Description, len(c.offers))
	for i, o := range c.offers {
		caveat := o.entry.Caveat(c.store.Dialect())
		list[i] = Description{
			Name: o.entry.Name, Family: o.entry.Family, Summary: o.entry.Summary,
			Needs: []string{c.store.Dialect()}, Guarantees: o.entry.Guarantees, Damage: o.entry.Damage,
			SeveralItems: o.entry.SeveralItems,
			Enabled:      true, Available: true, Note: caveat.Words, Hidden: caveat.Hides,
		}
		if why := c.rejection(o, o.fenceable()); why != "" {
			list[i].Enabled, list[i].Available, list[i].Note = false, false, "rejected here: "+why
		} else if why := c.rejection(o, false); why != "" {
			list[i].RequiresFence, list[i].Note = true, "rejected here without fence=true: "+why
		}
		for _, need := range append([]backend.Name{backend.Database}, o.entry.Needs...) {
			if need != backend.Database && need != backend.MySQL {
				list[i].Needs = append(list[i].Needs, string(need))
			}
			if err := down[need]; err != nil && list[i].Available {
				list[i].Available, list[i].Note = false, whyDown(err)
			}
		}
		if o.unconfigured != nil && list[i].Available { // its server answers, and is too old
			list[i].Available, list[i].Note = false, o.unconfigured.Error()
		}
	}
	return list
}

// whyDown says why a backend is down, or rejects writes. Its address and the failure itself are not public.
func whyDown(err error) string {
	failed, ok := errors.AsType[*stock.BackendError](err)
	if !ok || errors.Is(err, backend.ErrNotConfigured) {
		return err.Error()
	}
	return failed.Summary()
}

// The states of a backend.
const (
	Up            = "ok"
	Down          = "down"
	Rejecting     = "rejects writes" // it answers
	NotConfigured = "not configured"
)

// Backend is one of the servers behind the strategies, as GET /readyz shows it.
type Backend struct {
	Name string `json:"name"`
	// Status is Up, Down, Rejecting or NotConfigured.
	Status string `json:"status"`
	// Note is why it is down, or rejects writes.
	Note string `json:"note,omitempty"`
}

// Backends lists the database and the servers of locks. The
// error is the database's: without it, nothing can be sold at all.
func (c *Catalogue) Backends(ctx context.Context) ([]Backend, error) {
	down := c.down(ctx)
	servers := backend.LockServers()
	list := make([]Backend, 0, 1+len(servers))
	list = append(list, stateOf(c.store.Dialect(), down[backend.Database]))
	for _, b := range servers {
		list = append(list, stateOf(string(b), down[b]))
	}
	return list, down[backend.Database]
}

func stateOf(name string, err error) Backend {
	switch {
	case err == nil:
		return Backend{Name: name, Status: Up}
	case errors.Is(err, backend.ErrNotConfigured):
		return Backend{Name: name, Status: NotConfigured}
	case errors.Is(err, stock.ErrWritesRejected):
		return Backend{Name: name, Status: Rejecting, Note: whyDown(err)}
	default:
		return Backend{Name: name, Status: Down, Note: whyDown(err)}
	}
}

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
	ask(backend.Database, func() error { return c.store.Writable(ctx) })
	for _, b := range backend.LockServers() {
		ask(b, func() error { return c.clients.Ping(ctx, b) })
	}
	asked.Wait()
	down[backend.MySQL] = c.clients.Has(backend.MySQL) // the same database, asked already
	return down
}
