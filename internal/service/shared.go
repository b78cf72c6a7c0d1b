package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// shared answers all calls that wait with one query, so that any number of them has one
// connection. It knows neither items nor locks: a known key is found also while the queue
// of its item is blocked.
type shared[K comparable, V any] struct {
	query  func(ctx context.Context, keys ...K) (map[K]V, error)
	doing  string // of a query
	most   int    // keys of a query, unless one call alone has more
	within time.Duration
	// writes reports that a query changes something: a caller that leaves it waits a moment
	// for the outcome, which is unknown after that.
	writes bool
	log    *slog.Logger

	mu       sync.Mutex
	waiting  []*sharedCall[K, V]
	querying bool
}

// sharedCall is what one caller asks for.
type sharedCall[K comparable, V any] struct {
	keys    []K
	step    trace.Span         // of the caller
	query   *sharedQuery[K, V] // nil while the call is queued; guarded by shared.mu
	done    chan struct{}
	answers map[K]V // once done is closed
	err     error
}

// sharedQuery is one query for several calls.
type sharedQuery[K comparable, V any] struct {
	calls   []*sharedCall[K, V]
	callers int // that have not left; guarded by shared.mu
	end     func(cause error)
}

// get gives the answers to keys. The map may hold other callers' answers as well, and
// must not be written to. A caller whose ctx ends leaves the queue at once; the last
// caller of a query that leaves cancels the query. Nothing is asked for a ctx that has ended.
func (s *shared[K, V]) get(ctx context.Context, keys ...K) (map[K]V, error) {
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: %w", s.doing, context.Cause(ctx))
	}
	c := &sharedCall[K, V]{keys: keys, step: trace.SpanFromContext(ctx), done: make(chan struct{})}
	s.enter(c)
	select {
	case <-c.done:
		return c.answers, c.err
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	if queried := s.leave(c, cause); queried && s.writes {
		return s.awaitEnd(c, cause)
	}
	return nil, fmt.Errorf("%s: %w", s.doing, cause)
}

// endWithin bounds how long a caller that leaves waits for what is being written. It is shorter than
// what a stopping replica leaves to a request that it has cancelled.
const endWithin = 650 * time.Millisecond

// awaitEnd waits a moment for the outcome of a query that its caller has left.
func (s *shared[K, V]) awaitEnd(c *sharedCall[K, V], cause error) (map[K]V, error) {
	timer := time.NewTimer(endWithin)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.answers, c.err
	case <-timer.C:
		return nil, fmt.Errorf("%w: %s: it is still being written: %w", stock.ErrUnknownOutcome, s.doing, cause)
	}
}

func (s *shared[K, V]) enter(c *sharedCall[K, V]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, c)
	if !s.querying {
		s.querying = true
		go s.serve()
	}
}

// leave withdraws a call, and reports whether it was in a query already. One that is cancelled so
// ends with the cause of the caller, which may wait for it.
func (s *shared[K, V]) leave(c *sharedCall[K, V], cause error) (queried bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.query == nil {
		at := slices.Index(s.waiting, c)
		s.waiting = slices.Delete(s.waiting, at, at+1)
		return false
	}
	if c.query.callers--; c.query.callers == 0 {
		c.query.end(cause)
	}
	return true
}

// serve queries until no call waits.
func (s *shared[K, V]) serve() {
	for {
		q, ctx := s.next()
		if q == nil {
			return
		}
		answers, err := s.ask(ctx, q)
		q.end(nil)
		for _, c := range q.calls {
			c.answers, c.err = answers, err
			close(c.done)
		}
	}
}

// ask makes a query. A panic there must not end the replica, and may come after a commit.
func (s *shared[K, V]) ask(ctx context.Context, q *sharedQuery[K, V]) (answers map[K]V, err error) {
	var keys []K
	for _, c := range q.calls {
		keys = append(keys, c.keys...)
	}
	err = background.Guard(ctx, s.log, s.doing, func() error {
		answers, err = s.query(ctx, keys...)
		return err
	})
	if s.writes && errors.Is(err, background.ErrPanicked) {
		err = fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
	}
	return answers, err
}

// next makes a query of the oldest calls, or nil where none waits. Its context belongs to
// no single caller. Its step begins under the mutex, before any of its callers can leave
// and end its own step.
func (s *shared[K, V]) next() (*sharedQuery[K, V], context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.take()
	s.querying = len(taken) > 0
	if !s.querying {
		return nil, nil
	}
	steps := make([]trace.Span, len(taken))
	for i, c := range taken {
		steps[i] = c.step
	}
	ctx, step := telemetry.StartBatchSpan(context.Background(), s.doing, steps)
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, release := context.WithTimeout(ctx, s.within)
	q := &sharedQuery[K, V]{calls: taken, callers: len(taken), end: func(cause error) { cancel(cause); release(); step.End() }}
	for _, c := range taken {
		c.query = q
	}
	return q, ctx
}

// take removes the oldest calls from the queue, as many as one query may have.
func (s *shared[K, V]) take() []*sharedCall[K, V] {
	count, keys := 0, 0
	for _, c := range s.waiting {
		if keys += len(c.keys); count > 0 && keys > s.most {
			break
		}
		count++
	}
	taken := slices.Clone(s.waiting[:count])
	s.waiting = slices.Delete(s.waiting, 0, count)
	return taken
}
