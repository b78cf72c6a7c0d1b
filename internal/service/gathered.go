package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/service/rescue"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// gathered is a ledger that makes one search of those that come while another
// one is under way. It knows neither goods nor locks: a key that is known is
// found also while the queue of its goods stands still.
type gathered struct {
	ledger strategy.Ledger
	most   int // request ids of a search, but for those who bring more at once
	within time.Duration
	log    *slog.Logger

	mu        sync.Mutex
	waiting   []*search
	searching bool
}

// search is what one caller asks for.
type search struct {
	requestIDs []string
	done       chan struct{} // closed when the answer is there
	orders     map[string]stock.Order
	err        error
}

func newGathered(ledger strategy.Ledger, most int, within time.Duration, log *slog.Logger) *gathered {
	return &gathered{ledger: ledger, most: most, within: within, log: log}
}

// Orders finds orders by their request ids. The answer may hold other callers'
// orders as well, and must not be written to.
func (g *gathered) Orders(ctx context.Context, requestIDs ...string) (map[string]stock.Order, error) {
	s := &search{requestIDs: requestIDs, done: make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, s)
	if !g.searching {
		g.searching = true
		go g.serve(context.WithoutCancel(ctx))
	}
	g.mu.Unlock()
	select {
	case <-s.done:
		return s.orders, s.err
	case <-ctx.Done():
		return nil, fmt.Errorf("find requests in ledger: %w", context.Cause(ctx))
	}
}

// serve searches until nobody waits. It does so for many: ctx must not end with
// any one of them.
func (g *gathered) serve(ctx context.Context) {
	for {
		searches, requestIDs := g.next()
		if len(searches) == 0 {
			return
		}
		orders, err := g.search(ctx, requestIDs)
		for _, s := range searches {
			s.orders, s.err = orders, err
			close(s.done)
		}
	}
}

// search asks the ledger. A panic there must not end the replica.
func (g *gathered) search(ctx context.Context, requestIDs []string) (orders map[string]stock.Order, err error) {
	ctx, cancel := context.WithTimeout(ctx, g.within)
	defer cancel()
	err = rescue.Do(ctx, g.log, "find requests in ledger", func() error {
		orders, err = g.ledger.Orders(ctx, requestIDs...)
		return err
	})
	return orders, err
}

// next takes who waits longest, as many as may search together.
func (g *gathered) next() (searches []*search, requestIDs []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for len(g.waiting) > 0 {
		s := g.waiting[0]
		if len(searches) > 0 && len(requestIDs)+len(s.requestIDs) > g.most {
			break
		}
		searches, g.waiting = append(searches, s), g.waiting[1:]
		requestIDs = append(requestIDs, s.requestIDs...)
	}
	g.searching = len(searches) > 0
	return searches, requestIDs
}
