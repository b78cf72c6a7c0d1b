// Package queue writes together what waits together.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// Options are what the users of a Queue differ in.
type Options[K comparable, C, A any] struct {
	// Doing names a write: in its span, its errors, and the log.
	Doing string
	// Plain has a write of one call be a part of the caller's span, and not have one of its own.
	Plain bool
	// Write serves calls of one key, and answers each. What it leaves open is answered with its panic.
	Write func(ctx context.Context, key K, calls []*Call[C, A])
	// Changes reports that a write changes something. A caller that leaves one waits a moment for its
	// answer, which is stock.ErrUnknownOutcome after that; so is a panic.
	Changes bool
	// Within bounds a write.
	Within time.Duration
	// Weight is how much of Most and of Room a call takes; nil: 1 each.
	Weight func(C) int
	// Most bounds the weight of a write. A heavier call has a write of its own.
	Most int
	// Take divides waiting calls, oldest first, into those of the next write and the others; nil: as
	// many as Most allows.
	Take func(waiting []*Call[C, A]) (taken, rest []*Call[C, A])
	// Room is the largest weight that waits for one key, beside one call that waits alone; 0: any.
	Room int
	// Writers is how many writes of one key are under way before calls wait; 0: one.
	Writers int
	// Patience is how long a call waits for one of them to end, before one more begins; 0: for ever.
	Patience time.Duration
	// Late makes the error of a caller whose deadline has ended its wait; nil: it has the cause.
	Late func(doing string, cause error) error
	Log  *slog.Logger
}

// Queue makes one write of the calls for the same key that wait while others are being written.
//
//  1. No call waits for others to come: the first call of an idle key is written at once, and those
//     that arrive meanwhile are the next write, first come first served.
//  2. Keys do not wait for each other.
//  3. A caller that leaves the queue leaves no trace. A caller that leaves a write does not disturb
//     the others; the last one to leave ends it. A write lasts no longer than its callers wait.
//  4. A full queue is stock.ErrBusy at once.
//  5. Close answers waiting calls with stock.ErrBusy, and waits for what is being written.
type Queue[K comparable, C, A any] struct {
	o       Options[K, C, A]
	writers sync.WaitGroup

	mu     sync.Mutex
	lines  map[K]*line[C, A] // of those keys that have calls
	closed bool
}

// line is the calls of one key.
type line[C, A any] struct {
	waiting []*Call[C, A]
	weight  int         // of those that wait
	writing int         // writes under way
	late    *time.Timer // begins one more where none of them ends in time
}

// New makes a queue. Its options do not change.
func New[K comparable, C, A any](o Options[K, C, A]) *Queue[K, C, A] {
	if o.Weight == nil {
		o.Weight = func(C) int { return 1 }
	}
	o.Writers = max(o.Writers, 1)
	q := &Queue[K, C, A]{o: o, lines: make(map[K]*line[C, A])}
	if o.Take == nil {
		q.o.Take = q.take
	}
	return q
}

// Do waits for a write, and then for its answer. Nothing is done for a ctx that has ended. An error of
// the queue has the cause of the caller's ctx; it is stock.ErrUnknownOutcome where a change may happen
// nevertheless.
func (q *Queue[K, C, A]) Do(ctx context.Context, key K, ask C) (A, error) {
	var none A
	if ctx.Err() != nil {
		return none, q.gone(ctx)
	}
	c := &Call[C, A]{Ask: ask, Since: time.Now(), mu: &q.mu, step: trace.SpanFromContext(ctx), done: make(chan struct{})}
	c.until, _ = ctx.Deadline()
	if err := q.enter(key, c); err != nil {
		return none, err
	}
	select {
	case <-c.done:
		return c.answer, c.err
	case <-ctx.Done():
	}
	cause := context.Cause(ctx)
	written := q.leave(key, c, cause)
	if written && q.o.Changes {
		return c.awaitEnd(q.o.Doing, cause)
	}
	select {
	case <-c.done: // it was answered as its caller gave up
		return c.answer, c.err
	default:
		return none, q.gone(ctx)
	}
}

// gone is the error of a caller whose ctx has ended, and who has changed nothing.
func (q *Queue[K, C, A]) gone(ctx context.Context) error {
	if q.o.Late != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return q.o.Late(q.o.Doing, context.Cause(ctx))
	}
	return fmt.Errorf("%s: %w", q.o.Doing, context.Cause(ctx))
}

// Waiting is the weight of all calls that wait.
func (q *Queue[K, C, A]) Waiting() (weight int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lines {
		weight += l.weight
	}
	return weight
}

// Close ends the queue: see 5 above.
func (q *Queue[K, C, A]) Close() {
	q.mu.Lock()
	q.closed = true
	for _, l := range q.lines {
		for _, c := range l.waiting {
			var none A
			c.settle(none, errClosing)
		}
		l.waiting, l.weight = nil, 0
	}
	q.mu.Unlock()
	q.writers.Wait()
}

// errClosing answers calls that arrive when the replica stops.
var errClosing = fmt.Errorf("%w: this replica is stopping", stock.ErrBusy)

// enter appends a call, and starts a writer where fewer than allowed are at work.
func (q *Queue[K, C, A]) enter(key K, c *Call[C, A]) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errClosing
	}
	l, ok := q.lines[key]
	if !ok {
		l = new(line[C, A])
		q.lines[key] = l
	}
	weight := q.o.Weight(c.Ask)
	if q.o.Room > 0 && l.weight > 0 && l.weight+weight > q.o.Room {
		return fmt.Errorf("%w: %s: %d wait already", stock.ErrBusy, q.o.Doing, l.weight)
	}
	l.waiting = append(l.waiting, c)
	l.weight += weight
	if l.writing < q.o.Writers {
		q.start(key, l)
	} else if len(l.waiting) == 1 {
		q.startLate(key, l)
	}
	return nil
}

// leave withdraws a call, and reports whether it was in a write already.
func (q *Queue[K, C, A]) leave(key K, c *Call[C, A], cause error) (written bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if c.settled {
		return false
	}
	if c.write != nil {
		c.left = cause
		if c.write.callers--; c.write.callers == 0 {
			c.write.ended = cause
			c.write.end(cause)
		}
		return true
	}
	l := q.lines[key]
	l.waiting = slices.DeleteFunc(l.waiting, func(other *Call[C, A]) bool { return other == c })
	l.weight -= q.o.Weight(c.Ask)
	return false
}

// start begins a writer, which makes one write after the other until no call waits, or more are under way than there may be.
func (q *Queue[K, C, A]) start(key K, l *line[C, A]) {
	l.writing++
	q.writers.Go(func() {
		for first := true; q.write(key, l, first); first = false {
		}
	})
}

// startLate begins one more writer when the oldest of those that wait has lost its patience.
func (q *Queue[K, C, A]) startLate(key K, l *line[C, A]) {
	if q.o.Patience == 0 {
		return
	}
	l.late = time.AfterFunc(q.o.Patience, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if len(l.waiting) > 0 {
			q.start(key, l)
		}
	})
}

// write makes a write, if there is one to make. A panic there must not end the replica, and may come after a commit.
func (q *Queue[K, C, A]) write(key K, l *line[C, A], first bool) (made bool) {
	w, ctx := q.next(key, l, first)
	if w == nil {
		return false
	}
	made = true // as it is where it panics
	defer func() {
		var none A
		var err error
		if cause := recover(); cause != nil {
			err = background.Panicked(ctx, q.o.Log, q.o.Doing, cause)
			if q.o.Changes {
				err = fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
			}
		}
		for _, c := range w.calls {
			c.Answer(none, err)
		}
		w.end(nil)
		w.step.End()
	}()
	q.o.Write(ctx, key, w.calls)
	return made
}

// next begins a write of the calls that wait longest, or gives the writer up where none does. Its
// context belongs to no single caller. Its span begins under the mutex, before any caller can leave
// and end its own.
func (q *Queue[K, C, A]) next(key K, l *line[C, A], first bool) (*write[C, A], context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(l.waiting) == 0 || !first && l.writing > q.o.Writers {
		if l.writing--; l.writing == 0 {
			delete(q.lines, key)
		}
		return nil, nil
	}
	if l.late != nil {
		l.late.Stop()
	}
	var calls []*Call[C, A]
	calls, l.waiting = q.o.Take(l.waiting)
	if len(l.waiting) > 0 {
		q.startLate(key, l)
	}
	steps := make([]trace.Span, len(calls))
	for i, c := range calls {
		l.weight -= q.o.Weight(c.Ask)
		steps[i] = c.step
	}
	ctx, step := trace.ContextWithSpan(context.Background(), steps[0]), trace.Span(noop.Span{})
	if len(calls) > 1 || !q.o.Plain {
		ctx, step = telemetry.StartBatchSpan(context.Background(), q.o.Doing, steps)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	ctx, free := context.WithDeadline(ctx, lastDeadline(calls, time.Now().Add(q.o.Within)))
	w := &write[C, A]{calls: calls, callers: len(calls), step: step, end: func(cause error) { cancel(cause); free() }}
	for _, c := range calls {
		c.write = w
	}
	return w, ctx
}

// take is as many of the oldest calls as one write may have.
func (q *Queue[K, C, A]) take(waiting []*Call[C, A]) (taken, rest []*Call[C, A]) {
	count, weight := 0, 0
	for _, c := range waiting {
		if weight += q.o.Weight(c.Ask); count > 0 && weight > q.o.Most {
			break
		}
		count++
	}
	return slices.Clone(waiting[:count]), slices.Delete(waiting, 0, count)
}
