package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/stock"
)

// Call is what one caller asks for.
type Call[C, A any] struct {
	Ask   C
	Since time.Time // when it entered the queue

	mu      *sync.Mutex // of the queue: what stands below it
	step    trace.Span  // that the call is a part of
	until   time.Time   // its deadline; zero: it has none
	write   *write[C, A]
	left    error // why its caller has left; nil: it waits
	settled bool
	done    chan struct{} // closed once answer and err are there
	answer  A
	err     error
}

// write is calls that are written together.
type write[C, A any] struct {
	calls   []*Call[C, A]
	callers int // that wait for it
	step    trace.Span
	end     func(cause error) // ends its context
	ended   error             // why its last caller has left
}

// Answer answers the call. Only the first answer counts.
func (c *Call[C, A]) Answer(answer A, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled {
		return
	}
	if c.left == nil {
		c.write.callers--
	}
	c.settle(answer, err)
}

// Left is why the caller has left the write, and nil where it still waits.
func (c *Call[C, A]) Left() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}

func (c *Call[C, A]) settle(answer A, err error) {
	c.answer, c.err, c.settled = answer, err, true
	close(c.done)
}

// EndWithin bounds how long a caller that leaves waits for what is being written. It is shorter than
// what a stopping replica leaves to a request that it has cancelled.
const EndWithin = 650 * time.Millisecond

// awaitEnd waits a moment for the answer of a write that its caller has left.
func (c *Call[C, A]) awaitEnd(doing string, cause error) (A, error) {
	select {
	case <-c.done:
		return c.answerTo(doing, cause)
	case <-time.After(EndWithin):
		var none A
		return none, fmt.Errorf("%w: %s: it is still being written: %w", stock.ErrUnknownOutcome, doing, cause)
	}
}

// answerTo is the answer to a caller that has left. Where the write was ended by others that left, or by their deadlines,
// it has a cause of its own.
func (c *Call[C, A]) answerTo(doing string, cause error) (A, error) {
	c.mu.Lock()
	ended := c.write.ended
	c.mu.Unlock()
	if !errors.Is(c.err, context.DeadlineExceeded) && (ended == nil || !errors.Is(c.err, ended)) {
		return c.answer, c.err
	}
	err := fmt.Errorf("%s: %w", doing, cause)
	if errors.Is(c.err, stock.ErrUnknownOutcome) {
		err = fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
	}
	return c.answer, err
}

// lastDeadline is when the last of the callers gives up, and at most a limit: later none waits for what
// is being written.
func lastDeadline[C, A any](calls []*Call[C, A], limit time.Time) time.Time {
	var last time.Time
	for _, c := range calls {
		if c.until.IsZero() || c.until.After(limit) {
			return limit
		}
		if c.until.After(last) {
			last = c.until
		}
	}
	return last
}
