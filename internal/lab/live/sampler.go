package live

import (
	"context"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

const (
	// lookEvery is the pause between two looks at row and ledger, lookWithin bounds one.
	lookEvery  = 150 * time.Millisecond
	lookWithin = 2 * time.Second
)

// sampler reads row and ledger of an item. Where the database is ours it has a connection of
// its own, and no replica is asked.
type sampler struct {
	audit func(ctx context.Context, item int64) (stock.Audit, error)

	mu   sync.Mutex
	item int64 // 0: nothing is looked at
	last stock.Audit
	seen time.Time // of last; zero where the database did not answer since
}

// look has an item looked at from now on.
func (s *sampler) look(item int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.item, s.seen = item, time.Time{}
}

// fill adds what was seen last to a point. What was seen once is shown once: where the
// database does not answer, the point has nothing of it.
func (s *sampler) fill(p *Point, item int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen.IsZero() || s.last.GoodsID != item {
		return
	}
	p.Seen, p.Stock, p.Sold, p.Oversold, p.Lost = millis(s.seen), s.last.Stock, s.last.Sold, s.last.Oversold, s.last.Lost
	s.seen = time.Time{}
}

func (s *sampler) keepLooking(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.lookOnce(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (s *sampler) lookOnce(ctx context.Context) {
	s.mu.Lock()
	item := s.item
	s.mu.Unlock()
	if item == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lookWithin)
	defer cancel()
	audit, err := s.audit(ctx, item)
	if err != nil {
		return // a point without a stock tells it
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.item == item {
		s.last, s.seen = audit, time.Now()
	}
}
