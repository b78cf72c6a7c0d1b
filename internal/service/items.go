package service

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// mostKnown bounds the items that a replica remembers, and so its memory: about 4 MiB.
const mostKnown = 100_000

// items remembers the items that exist. Only the admin creates items, and the API deletes
// none, so that no client can make it forget one. It does not remember which ids are
// unknown: an item sells at once that another replica has just created.
type items struct {
	switches *switches
	search   *lookups[int64, bool]
	most     int

	mu    sync.RWMutex
	known map[int64]struct{}
}

func newItems(store *repo.Store, known *switches, batch int, within time.Duration, log *slog.Logger) *items {
	return &items{
		switches: known, most: mostKnown, known: make(map[int64]struct{}),
		search: &lookups[int64, bool]{find: store.Existing, doing: "find items", most: batch, within: within, log: log},
	}
}

// require looks an item up where it is not remembered. All callers on this replica that
// wait for a look-up share one statement; each leaves with its own ctx.
// stock.ErrUnknownGoods: there is no such item.
func (i *items) require(ctx context.Context, goodsID int64) error {
	// What sells from Redis goes on without the database, also on a replica that has not
	// sold the item yet.
	if i.isKnown(goodsID) || i.switches.hasUnitsInRedis(goodsID) {
		return nil
	}
	existing, err := i.search.get(ctx, goodsID)
	switch {
	case err != nil:
		return err
	case !existing[goodsID]:
		return fmt.Errorf("item %d: %w", goodsID, stock.ErrUnknownGoods)
	}
	i.remember(goodsID)
	return nil
}

func (i *items) isKnown(goodsID int64) bool {
	i.mu.RLock()
	defer i.mu.RUnlock()
	_, ok := i.known[goodsID]
	return ok
}

// remember evicts any item where there are too many.
func (i *items) remember(goodsID int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.known) >= i.most {
		for evicted := range i.known {
			delete(i.known, evicted)
			break
		}
	}
	i.known[goodsID] = struct{}{}
}

// forget is for an item whose row was deleted by hand.
func (i *items) forget(goodsID int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.known, goodsID)
}

// lookups answers all waiting look-ups with one search, so that any number of them has
// one connection. It knows neither items nor locks: a known key is found also while the
// queue of its item is blocked.
type lookups[K comparable, V any] struct {
	find   func(ctx context.Context, keys ...K) (map[K]V, error)
	doing  string // of a search
	most   int    // keys of a search, unless one look-up alone has more
	within time.Duration
	log    *slog.Logger

	mu        sync.Mutex
	waiting   []*lookup[K, V]
	searching bool
}

// lookup is what one caller searches for.
type lookup[K comparable, V any] struct {
	keys   []K
	step   trace.Span    // of the caller
	search *search[K, V] // nil while the look-up is queued; guarded by lookups.mu
	done   chan struct{}
	found  map[K]V // once done is closed
	err    error
}

// search is one query for several look-ups.
type search[K comparable, V any] struct {
	lookups []*lookup[K, V]
	callers int // that have not left; guarded by lookups.mu
	end     func()
}

// get finds values by their keys. The answer may hold other callers' values as well, and
// must not be written to. A caller whose ctx ends leaves the queue at once; the last
// caller of a search that leaves cancels the search.
func (q *lookups[K, V]) get(ctx context.Context, keys ...K) (map[K]V, error) {
	l := &lookup[K, V]{keys: keys, step: trace.SpanFromContext(ctx), done: make(chan struct{})}
	q.enter(l)
	select {
	case <-l.done:
		return l.found, l.err
	case <-ctx.Done():
		q.leave(l)
		return nil, fmt.Errorf("%s: %w", q.doing, context.Cause(ctx))
	}
}

func (q *lookups[K, V]) enter(l *lookup[K, V]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, l)
	if !q.searching {
		q.searching = true
		go q.serve()
	}
}

func (q *lookups[K, V]) leave(l *lookup[K, V]) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if l.search == nil {
		at := slices.Index(q.waiting, l)
		q.waiting = slices.Delete(q.waiting, at, at+1)
		return
	}
	if l.search.callers--; l.search.callers == 0 {
		l.search.end()
	}
}

// serve searches until the queue is empty.
func (q *lookups[K, V]) serve() {
	for {
		s, ctx := q.next()
		if s == nil {
			return
		}
		found, err := q.query(ctx, s)
		s.end()
		for _, l := range s.lookups {
			l.found, l.err = found, err
			close(l.done)
		}
	}
}

// query asks the database. A panic there must not end the replica.
func (q *lookups[K, V]) query(ctx context.Context, s *search[K, V]) (found map[K]V, err error) {
	var keys []K
	for _, l := range s.lookups {
		keys = append(keys, l.keys...)
	}
	err = background.Guard(ctx, q.log, q.doing, func() error {
		found, err = q.find(ctx, keys...)
		return err
	})
	return found, err
}

// next makes a search of the oldest look-ups, or nil where none waits. Its context
// belongs to no single caller. Its step begins under the mutex, before any of its
// callers can leave and end its own step.
func (q *lookups[K, V]) next() (*search[K, V], context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.take()
	q.searching = len(taken) > 0
	if !q.searching {
		return nil, nil
	}
	steps := make([]trace.Span, len(taken))
	for i, l := range taken {
		steps[i] = l.step
	}
	ctx, step := telemetry.StartBatchSpan(context.Background(), q.doing, steps)
	ctx, cancel := context.WithTimeout(ctx, q.within)
	s := &search[K, V]{lookups: taken, callers: len(taken), end: func() { cancel(); step.End() }}
	for _, l := range taken {
		l.search = s
	}
	return s, ctx
}

// take removes the oldest look-ups from the queue, as many as one search may have.
func (q *lookups[K, V]) take() []*lookup[K, V] {
	count, keys := 0, 0
	for _, l := range q.waiting {
		if keys += len(l.keys); count > 0 && keys > q.most {
			break
		}
		count++
	}
	taken := slices.Clone(q.waiting[:count])
	q.waiting = slices.Delete(q.waiting, 0, count)
	return taken
}
