package strategy

import (
	"math/bits"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/stock"
)

// queue has the calls that wait for one item, first come first served. All of this file is
// guarded by the mutex of the Batcher.
type queue struct {
	calls     []*call
	purchases int // of all calls
}

// call is one call of Deduct.
type call struct {
	purchases []stock.Purchase
	asked     time.Time
	until     time.Time  // its deadline; zero: it has none
	step      trace.Span // that the call is a part of
	state     callState
	batch     *callBatch // from when it is being written
	// done is closed when the answer is there.
	done     chan struct{}
	outcomes []stock.Outcome
	err      error
}

// callState is how far a call is.
type callState int

const (
	callWaiting callState = iota // in the queue
	callWriting                  // in a batch, and its caller waits
	callLeft                     // its caller has left
	callSettled                  // answered
)

// callBatch is calls that are written together.
type callBatch struct {
	calls []*call
	// end ends its context.
	end func(cause error)
}

// othersStay reports whether another caller still waits for the answer.
func (b *callBatch) othersStay(besides *call) bool {
	return slices.ContainsFunc(b.calls, func(c *call) bool { return c != besides && c.state == callWriting })
}

func (c *call) settle(outcomes []stock.Outcome, err error) {
	c.outcomes, c.err, c.state = outcomes, err, callSettled
	close(c.done)
}

// lastDeadline is when the last of those that wait gives up, and at most a limit: later
// none waits for what is being written.
func lastDeadline[W any](waiting []W, until func(W) time.Time, limit time.Time) time.Time {
	var last time.Time
	for _, w := range waiting {
		deadline := until(w)
		if deadline.IsZero() || deadline.After(limit) {
			return limit
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	return last
}

// isIn reports whether one of the purchases is among the orders.
func (c *call) isIn(orders map[string]stock.Order) bool {
	return slices.ContainsFunc(c.purchases, func(p stock.Purchase) bool {
		_, ok := orders[p.RequestID]
		return ok
	})
}

func (q *queue) append(c *call) {
	q.calls = append(q.calls, c)
	q.purchases += len(c.purchases)
}

func (q *queue) remove(c *call) {
	i := slices.Index(q.calls, c)
	q.calls = slices.Delete(q.calls, i, i+1)
	q.purchases -= len(c.purchases)
}

// clear empties the queue and returns its calls.
func (q *queue) clear() []*call {
	calls := q.calls
	*q = queue{}
	return calls
}

// take removes the calls of the next batch: the oldest, as many as the bounds and
// fewLengths allow. A copy of a purchase that is in the batch waits for the next one, when that purchase
// is in the ledger or not.
func (q *queue) take(bounds Group) []*call {
	most := fewLengths(min(q.purchases, bounds.Batch))
	var batch, copies []*call
	var purchases int
	var units int64
	ids := make(map[string]bool, min(len(q.calls), bounds.Batch))
	rest := q.calls
	for ; len(rest) > 0; rest = rest[1:] {
		c := rest[0]
		more := stock.Units(c.purchases)
		if len(batch) > 0 && (purchases+len(c.purchases) > most || units+more > bounds.Units) {
			break
		}
		if !reserve(ids, c.purchases) {
			copies = append(copies, c)
			continue
		}
		batch = append(batch, c)
		purchases += len(c.purchases)
		units += more
	}
	if len(copies) > 0 {
		rest = append(copies, rest...)
	}
	q.calls = rest
	q.purchases -= purchases
	return batch
}

// fewLengths is n up to eight, and above it the next smaller of 8, 12, 16, 24, 32, 48 and so on. A
// database prepares the statements of batches that come again and again, and keeps only so
// many of them.
func fewLengths(n int) int {
	if n <= 8 {
		return n
	}
	half := 1 << (bits.Len(uint(n)) - 2) // of the power of two below n
	return n - n%half
}

// reserve adds the request ids of the purchases, or none of them where one is
// there already.
func reserve(ids map[string]bool, purchases []stock.Purchase) bool {
	for _, p := range purchases {
		if ids[p.RequestID] {
			return false
		}
	}
	for _, p := range purchases {
		ids[p.RequestID] = true
	}
	return true
}

// repeats reports whether a request id is in a batch twice.
func repeats(purchases []stock.Purchase) bool {
	if len(purchases) < 2 {
		return false
	}
	ids := make(map[string]bool, len(purchases))
	for _, p := range purchases {
		if ids[p.RequestID] {
			return true
		}
		ids[p.RequestID] = true
	}
	return false
}

// purchasesOf is the batch that the calls make.
func purchasesOf(calls []*call) []stock.Purchase {
	if len(calls) == 1 {
		return calls[0].purchases
	}
	list := make([]stock.Purchase, 0, len(calls))
	for _, c := range calls {
		list = append(list, c.purchases...)
	}
	return list
}

func stepsOf(calls []*call) []trace.Span {
	steps := make([]trace.Span, len(calls))
	for i, c := range calls {
		steps[i] = c.step
	}
	return steps
}

func requestIDs(calls []*call) []string {
	ids := make([]string, 0, len(calls))
	for _, c := range calls {
		for _, p := range c.purchases {
			ids = append(ids, p.RequestID)
		}
	}
	return ids
}
