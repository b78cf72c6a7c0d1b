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
	"github.com/stockd/stockd/internal/trail"
)

// gathered is a ledger that answers all waiting look-ups with one search. It knows
// neither items nor locks: a known key is found also while the queue of its item is
// blocked.
type gathered struct {
	ledger strategy.Ledger
	most   int // request ids of a search, unless one look-up alone has more
	within time.Duration
	log    *slog.Logger

	mu        sync.Mutex
	waiting   []*lookup
	searching bool
}

// lookup is what one caller asks for.
type lookup struct {
	requestIDs []string
	step       trace.Span // of the caller
	search     *search    // nil while the look-up is queued; guarded by gathered.mu
	done       chan struct{}
	orders     map[string]stock.Order // once done is closed
	err        error
}

// search is one query for several look-ups.
type search struct {
	lookups []*lookup
	callers int // that have not left; guarded by gathered.mu
	end     func()
}

func newGathered(ledger strategy.Ledger, most int, within time.Duration, log *slog.Logger) *gathered {
	return &gathered{ledger: ledger, most: most, within: within, log: log}
}

// Orders finds orders by their request ids. The answer may hold other callers'
// orders as well, and must not be written to. A caller whose ctx ends leaves the
// queue at once; the last caller of a search that leaves cancels the search.
func (g *gathered) Orders(ctx context.Context, requestIDs ...string) (map[string]stock.Order, error) {
	l := &lookup{requestIDs: requestIDs, step: trace.SpanFromContext(ctx), done: make(chan struct{})}
	g.enter(l)
	select {
	case <-l.done:
		return l.orders, l.err
	case <-ctx.Done():
		g.leave(l)
		return nil, fmt.Errorf("find requests in ledger: %w", context.Cause(ctx))
	}
}

func (g *gathered) enter(l *lookup) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, l)
	if !g.searching {
		g.searching = true
		go g.serve()
	}
}

func (g *gathered) leave(l *lookup) {
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
func (g *gathered) serve() {
	for {
		s, ctx := g.next()
		if s == nil {
			return
		}
		orders, err := g.find(ctx, s)
		s.end()
		for _, l := range s.lookups {
			l.orders, l.err = orders, err
			close(l.done)
		}
	}
}

// find queries the ledger. A panic there must not end the replica.
func (g *gathered) find(ctx context.Context, s *search) (orders map[string]stock.Order, err error) {
	var requestIDs []string
	for _, l := range s.lookups {
		requestIDs = append(requestIDs, l.requestIDs...)
	}
	err = rescue.Do(ctx, g.log, "find requests in ledger", func() error {
		orders, err = g.ledger.Orders(ctx, requestIDs...)
		return err
	})
	return orders, err
}

// next makes a search of the oldest look-ups, or nil where none waits. Its context
// belongs to no single caller. Its step begins under the mutex, before any of its
// callers can leave and end its own step.
func (g *gathered) next() (*search, context.Context) {
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
	ctx, step := trail.Together(context.Background(), "find requests", steps)
	ctx, cancel := context.WithTimeout(ctx, g.within)
	s := &search{lookups: lookups, callers: len(lookups), end: func() { cancel(); step.End() }}
	for _, l := range lookups {
		l.search = s
	}
	return s, ctx
}

// take removes the oldest look-ups from the queue, as many as one search may have.
func (g *gathered) take() []*lookup {
	count, ids := 0, 0
	for _, l := range g.waiting {
		if ids += len(l.requestIDs); count > 0 && ids > g.most {
			break
		}
		count++
	}
	lookups := slices.Clone(g.waiting[:count])
	g.waiting = slices.Delete(g.waiting, 0, count)
	return lookups
}
