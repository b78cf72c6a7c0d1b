package service

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/service/rescue"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// gathered answers all waiting look-ups with one search, so that any number of them has
// one connection. It knows neither items nor locks: a known key is found also while the
// queue of its item is blocked.
type gathered[K comparable, V any] struct {
	find   func(ctx context.Context, keys ...K) (map[K]V, error)
	doing  string // of a search
	most   int    // keys of a search, unless one look-up alone has more
	within time.Duration
	log    *slog.Logger

	mu        sync.Mutex
	waiting   []*lookup[K, V]
	searching bool
}

// lookup is what one caller asks for.
type lookup[K comparable, V any] struct {
	keys   []K
	step   trace.Span    // of the caller
	search *search[K, V] // nil while the look-up is queued; guarded by gathered.mu
	done   chan struct{}
	found  map[K]V // once done is closed
	err    error
}

// search is one query for several look-ups.
type search[K comparable, V any] struct {
	lookups []*lookup[K, V]
	callers int // that have not left; guarded by gathered.mu
	end     func()
}

// gatheredLedger is a ledger that answers all waiting look-ups with one search.
type gatheredLedger struct{ *gathered[string, stock.Order] }

func newGathered(ledger strategy.Ledger, most int, within time.Duration, log *slog.Logger) gatheredLedger {
	return gatheredLedger{&gathered[string, stock.Order]{
		find: ledger.Orders, doing: "find requests", most: most, within: within, log: log,
	}}
}

// Orders is get for orders by their request ids.
func (g gatheredLedger) Orders(ctx context.Context, requestIDs ...string) (map[string]stock.Order, error) {
	return g.get(ctx, requestIDs...)
}

// get finds values by their keys. The answer may hold other callers' values as well, and
// must not be written to. A caller whose ctx ends leaves the queue at once; the last
// caller of a search that leaves cancels the search.
func (g *gathered[K, V]) get(ctx context.Context, keys ...K) (map[K]V, error) {
	l := &lookup[K, V]{keys: keys, step: trace.SpanFromContext(ctx), done: make(chan struct{})}
	g.enter(l)
	select {
	case <-l.done:
		return l.found, l.err
	case <-ctx.Done():
		g.leave(l)
		return nil, fmt.Errorf("%s: %w", g.doing, context.Cause(ctx))
	}
}

func (g *gathered[K, V]) enter(l *lookup[K, V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, l)
	if !g.searching {
		g.searching = true
		go g.serve()
	}
}

func (g *gathered[K, V]) leave(l *lookup[K, V]) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.search == nil {
		at := slices.Index(g.waiting, l)
		g.waiting = slices.Delete(g.waiting, at, at+1)
		return
	}
	if l.search.callers--; l.search.callers == 0 {
		l.search.end()
	}
}

// serve searches until the queue is empty.
func (g *gathered[K, V]) serve() {
	for {
		s, ctx := g.next()
		if s == nil {
			return
		}
		found, err := g.query(ctx, s)
		s.end()
		for _, l := range s.lookups {
			l.found, l.err = found, err
			close(l.done)
		}
	}
}

// query asks the database. A panic there must not end the replica.
func (g *gathered[K, V]) query(ctx context.Context, s *search[K, V]) (found map[K]V, err error) {
	var keys []K
	for _, l := range s.lookups {
		keys = append(keys, l.keys...)
	}
	err = rescue.Do(ctx, g.log, g.doing, func() error {
		found, err = g.find(ctx, keys...)
		return err
	})
	return found, err
}

// next makes a search of the oldest look-ups, or nil where none waits. Its context
// belongs to no single caller. Its step begins under the mutex, before any of its
// callers can leave and end its own step.
func (g *gathered[K, V]) next() (*search[K, V], context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	lookups := g.take()
	g.searching = len(lookups) > 0
	if !g.searching {
		return nil, nil
	}
	steps := make([]trace.Span, len(lookups))
	for i, l := range lookups {
		steps[i] = l.step
	}
	ctx, step := telemetry.StartBatchSpan(context.Background(), g.doing, steps)
	ctx, cancel := context.WithTimeout(ctx, g.within)
	s := &search[K, V]{lookups: lookups, callers: len(lookups), end: func() { cancel(); step.End() }}
	for _, l := range lookups {
		l.search = s
	}
	return s, ctx
}

// take removes the oldest look-ups from the queue, as many as one search may have.
func (g *gathered[K, V]) take() []*lookup[K, V] {
	count, keys := 0, 0
	for _, l := range g.waiting {
		if keys += len(l.keys); count > 0 && keys > g.most {
			break
		}
		count++
	}
	lookups := slices.Clone(g.waiting[:count])
	g.waiting = slices.Delete(g.waiting, 0, count)
	return lookups
}
