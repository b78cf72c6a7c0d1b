package strategy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// memory is a strategy and its ledger in memory. It does what a test says.
type memory struct {
	mu      sync.Mutex
	stock   int64
	ledger  map[string]stock.Order
	batches []string // the request ids of each call
	// gate holds every batch until the test lets it go; nil: nothing does.
	gate chan struct{}
	// fails is what every batch is answered with; nil: nothing fails.
	fails error
	// locked is how long each batch waits for its lock.
	locked time.Duration
	// panics has every batch panic after it was written.
	panics bool
	// forgets has the ledger find nothing, broken not answer.
	forgets bool
	broken  error
}

func (m *memory) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	ids := make([]string, len(batch))
	for i, p := range batch {
		ids[i] = p.RequestID
	}
	m.mu.Lock()
	m.batches = append(m.batches, strings.Join(ids, " "))
	gate := m.gate
	m.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, fmt.Errorf("write: %w", context.Cause(ctx))
		}
	}
	return m.write(goodsID, batch)
}

func (m *memory) write(goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fails != nil {
		return nil, m.fails
	}
	for _, p := range batch {
		if _, ok := m.ledger[p.RequestID]; ok {
			return nil, fmt.Errorf("append: %w", stock.ErrDuplicateRequest)
		}
	}
	outcomes := make([]stock.Outcome, len(batch))
	for i := range outcomes {
		outcomes[i].Wait = m.locked
	}
	for i, rejected := range stock.Allot(m.stock, batch, stock.Limit{}) {
		if outcomes[i].Rejected = rejected; rejected != nil {
			continue
		}
		m.stock -= batch[i].Quantity
		outcomes[i].Order = stock.Order{RequestID: batch[i].RequestID, GoodsID: goodsID, Quantity: batch[i].Quantity, Remaining: m.stock}
		m.ledger[batch[i].RequestID] = outcomes[i].Order
	}
	if m.panics {
		panic("a strategy that is broken")
	}
	return outcomes, nil
}

func (m *memory) Orders(_ context.Context, requestIDs ...string) (map[string]stock.Order, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	found := make(map[string]stock.Order)
	for _, id := range requestIDs {
		if order, ok := m.ledger[id]; ok && !m.forgets {
			found[id] = order
		}
	}
	return found, m.broken
}

// sold lists what is in the ledger.
func (m *memory) sold() []string { return slices.Sorted(maps.Keys(m.ledger)) }

// answer is what a caller gets, once it has got it.
type answer struct {
	answered bool
	outcomes []stock.Outcome
	err      error
}

// queued is a grouped strategy over memory, on item 1, and its callers.
type queued struct {
	t *testing.T
	*memory
	grouped *strategy.Batcher
}

// bounds are wide enough for every test that is not about them.
var bounds = strategy.Group{Batch: 100, Units: 1000, Queue: 100, Timeout: time.Minute}

// inQueue runs a test in a bubble of time. No goroutine may outlive it, and
// nothing may be kept of the item.
func inQueue(t *testing.T, units int64, bounds strategy.Group, test func(q *queued)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &memory{stock: units, ledger: make(map[string]stock.Order)}
		q := &queued{t: t, memory: m, grouped: strategy.NewBatcher(m.Deduct, m.Orders, bounds)}
		test(q)
	})
}

// hold keeps every batch from now on in the middle of being written.
func (q *queued) hold() (release func()) {
	gate := make(chan struct{})
	q.gate = gate
	return func() { close(gate); synctest.Wait() }
}

// call calls and returns when the call is in the queue, or in a batch, or
// answered.
func (q *queued) call(ctx context.Context, purchases ...stock.Purchase) *answer {
	a := new(answer)
	go func() {
		outcomes, err := q.grouped.Deduct(ctx, 1, purchases)
		*a = answer{answered: true, outcomes: outcomes, err: err}
	}()
	synctest.Wait()
	return a
}

func (q *queued) buy(id string, units int64) *answer {
	return q.call(q.t.Context(), stock.Purchase{RequestID: id, Quantity: units})
}

// leaving is a caller who can be made to give up.
func (q *queued) leaving(id string) (a *answer, leave func()) {
	ctx, cancel := context.WithCancelCause(q.t.Context())
	return q.call(ctx, stock.Purchase{RequestID: id, Quantity: 1}), func() {
		cancel(errGone)
		synctest.Wait()
	}
}

var errGone = errors.New("the buyer hung up")

func (q *queued) assertBatches(want ...string) {
	q.t.Helper()
	if !slices.Equal(q.batches, want) {
		q.t.Errorf("the batches are %q, want %q", q.batches, want)
	}
}

func (q *queued) assertSold(want ...string) {
	q.t.Helper()
	if !slices.Equal(q.sold(), want) {
		q.t.Errorf("the ledger has %q, want %q", q.sold(), want)
	}
}

// assertSale holds an answer to a sale of the request ids.
func (q *queued) assertSale(a *answer, ids ...string) {
	q.t.Helper()
	if !a.answered || a.err != nil || len(a.outcomes) != len(ids) {
		q.t.Errorf("the answer is %+v, want the sale of %q", a, ids)
		return
	}
	for i, id := range ids {
		if o := a.outcomes[i]; o.Rejected != nil || o.Order.RequestID != id {
			q.t.Errorf("answer %d is %+v, want the sale of %s", i, o, id)
		}
	}
}

func (q *queued) assertError(a *answer, kinds ...error) {
	q.t.Helper()
	for _, kind := range kinds {
		if !a.answered || !errors.Is(a.err, kind) {
			q.t.Errorf("the answer is %+v, want %v", a, kind)
		}
	}
}

func TestABatchKeepsItsBounds(t *testing.T) {
	narrow := bounds
	narrow.Batch, narrow.Units = 3, 10
	inQueue(t, 100, narrow, func(q *queued) {
		release := q.hold()
		for i, units := range []int64{1, 1, 1, 1, 2, 8, 9, 50, 10, 1} {
			q.buy(fmt.Sprint("p", i), units)
		}
		release()
		// Three purchases; what has more units than fit waits, and so does who
		// comes after it; what fits into no batch has one of its own.
		q.assertBatches("p0", "p1 p2 p3", "p4 p5", "p6", "p7", "p8", "p9")
	})
}

// Above eight purchases a batch has one of few lengths, and what is beyond it is written next, in its order.
func TestALargeBatchHasOneOfFewLengths(t *testing.T) {
	for waiting, want := range map[int][]int{
		1: {1}, 7: {7}, 8: {8}, 9: {8, 1}, 12: {12}, 15: {12, 3}, 16: {16}, 23: {16, 7}, 24: {24}, 31: {24, 7}, 32: {32},
		47: {32, 12, 3}, 63: {48, 12, 3}, 95: {64, 24, 7}, 100: {96, 4}, 130: {96, 32, 2},
	} {
		wide := bounds
		wide.Batch, wide.Units, wide.Queue = 100, 1000, 1000
		inQueue(t, 1000, wide, func(q *queued) {
			release := q.hold()
			q.buy("first", 1)
			all := make([]string, waiting)
			for i := range all {
				all[i] = fmt.Sprint("p", i)
				q.buy(all[i], 1)
			}
			release()
			batches, rest := make([]string, len(want)), all
			for i, n := range want {
				batches[i], rest = strings.Join(rest[:n], " "), rest[n:]
			}
			q.assertBatches(append([]string{"first"}, batches...)...)
		})
	}
}

// A copy of what is in the batch is the first of the next batch, before what came after it.
func TestACopyKeepsItsPlaceInTheQueue(t *testing.T) {
	narrow := bounds
	narrow.Batch = 2
	inQueue(t, 100, narrow, func(q *queued) {
		release := q.hold()
		q.buy("first", 1)
		for _, id := range []string{"a", "a", "b", "c", "d"} {
			q.buy(id, 1)
		}
		release()
		q.assertBatches("first", "a b", "a c", "c", "d") // a copy in the ledger: the rest is written again
	})
}

func TestACopyInTheLedgerAffectsNoOtherCall(t *testing.T) {
	inQueue(t, 10, bounds, func(q *queued) {
		q.assertSale(q.buy("known", 1), "known")
		release := q.hold()
		q.buy("first", 1)
		a, copied, b := q.buy("a", 1), q.buy("known", 1), q.buy("b", 1)
		pair := q.call(q.t.Context(), stock.Purchase{RequestID: "c", Quantity: 1}, stock.Purchase{RequestID: "known", Quantity: 1})
		release()
		q.assertError(copied, stock.ErrDuplicateRequest)
		q.assertError(pair, stock.ErrDuplicateRequest)
		q.assertSale(a, "a")
		q.assertSale(b, "b")
		// The pair has a copy of what is in the batch, and waits for the next.
		q.assertBatches("known", "first", "a known b", "a b", "c known")
		q.assertSold("a", "b", "first", "known")
	})
}

func TestCopiesAreNeverInOneBatch(t *testing.T) {
	inQueue(t, 10, bounds, func(q *queued) {
		release := q.hold()
		q.buy("first", 1)
		one, two, other := q.buy("same", 1), q.buy("same", 1), q.buy("other", 1)
		twice := q.call(q.t.Context(), stock.Purchase{RequestID: "x", Quantity: 1}, stock.Purchase{RequestID: "x", Quantity: 1})
		release()
		q.assertBatches("first", "same other", "same")
		q.assertSale(one, "same")
		q.assertSale(other, "other")
		q.assertError(two, stock.ErrDuplicateRequest)
		q.assertError(twice, stock.ErrDuplicateRequest)
		q.assertSold("first", "other", "same")
	})
}

// What is written again because of a copy is written for those that still wait; for the others it was not.
func TestACallThatLeftABatchIsNotWrittenAgain(t *testing.T) {
	inQueue(t, 10, bounds, func(q *queued) {
		q.buy("known", 1)
		release := q.hold()
		q.buy("first", 1)
		gone, leave := q.leaving("gone")
		copied, stays := q.buy("known", 1), q.buy("stays", 1)
		q.gate <- struct{}{}
		synctest.Wait()
		leave()
		release()
		if q.assertError(gone, errGone); errors.Is(gone.err, stock.ErrUnknownOutcome) {
			t.Errorf("what was rolled back, and not written again, is %v", gone.err)
		}
		q.assertError(copied, stock.ErrDuplicateRequest)
		q.assertSale(stays, "stays")
		q.assertBatches("known", "first", "gone known stays", "stays")
		q.assertSold("first", "known", "stays")
	})
}

func TestACopyThatCannotBeFoundIsNotWrittenForEver(t *testing.T) {
	inQueue(t, 10, bounds, func(q *queued) {
		q.buy("known", 1)
		q.forgets = true
		release := q.hold()
		q.buy("first", 1)
		a, b := q.buy("a", 1), q.buy("known", 1)
		release()
		q.assertError(a, stock.ErrBusy)
		q.assertError(b, stock.ErrBusy)
		q.assertSold("first", "known")
	})
}

func TestAnUnresponsiveLedgerFailsEveryCall(t *testing.T) {
	inQueue(t, 10, bounds, func(q *queued) {
		q.buy("known", 1)
		q.broken = &stock.BackendError{Backend: "mysql", Err: errors.New("gone away")}
		release := q.hold()
		q.buy("first", 1)
		a, b := q.buy("a", 1), q.buy("known", 1)
		release()
		q.assertError(a, stock.ErrBackendUnavailable)
		q.assertError(b, stock.ErrBackendUnavailable)
		q.assertSold("first", "known")
	})
}

func TestAnErrorOfABatchFailsEveryCall(t *testing.T) {
	for _, err := range []error{
		stock.ErrBusy, stock.ErrFenced, stock.ErrLeaseLost, stock.ErrUnknownGoods, stock.ErrUnknownOutcome, stock.ErrBackendUnavailable,
	} {
		t.Run(err.Error(), func(t *testing.T) {
			inQueue(t, 10, bounds, func(q *queued) {
				q.fails = fmt.Errorf("write: %w", err)
				release := q.hold()
				answers := []*answer{q.buy("first", 1), q.buy("a", 1), q.buy("b", 1)}
				release()
				for _, a := range answers {
					q.assertError(a, err)
				}
				q.assertBatches("first", "a b")
			})
		})
	}
}

func TestEveryBatchIsReportedWithItsPurchases(t *testing.T) {
	seen := new(listener)
	observed := bounds
	observed.Observer = seen
	inQueue(t, 10, observed, func(q *queued) {
		release := q.hold()
		q.buy("first", 1)
		q.buy("a", 1)
		q.call(q.t.Context(), stock.Purchase{RequestID: "b", Quantity: 1}, stock.Purchase{RequestID: "c", Quantity: 1})
		if waiting := q.grouped.Waiting(); waiting != 3 {
			q.t.Errorf("%d purchases wait, want 3", waiting)
		}
		release()
		q.assertBatches("first", "a b c")
	})
	should.Equal(t, seen.batches, []int{1, 3}, "the reported sizes of batches")
}

// A copy of a purchase that is still being written waits for what becomes of it, and is written where that failed.
func TestACopyOfWhatFailedIsWritten(t *testing.T) {
	inQueue(t, 2, bounds, func(q *queued) {
		release := q.hold()
		q.buy("before", 1)
		first, copied := q.buy("same", 1), q.buy("same", 1)
		for _, q.fails = range []error{nil, stock.ErrBusy} {
			q.gate <- struct{}{}
			synctest.Wait()
		}
		q.fails = nil
		release()
		q.assertError(first, stock.ErrBusy)
		q.assertSale(copied, "same")
		q.assertBatches("before", "same", "same")
	})
}

func TestTheWaitIsThatInTheQueueAndThatForTheLock(t *testing.T) {
	inQueue(t, 10, bounds, func(q *queued) {
		q.locked = 5 * time.Second
		release := q.hold()
		first := q.buy("first", 1)
		time.Sleep(time.Second)
		a := q.buy("a", 1)
		time.Sleep(2 * time.Second)
		release()
		should.Be(t, first.outcomes[0].Wait, q.locked, "a call with an empty queue before it waited")
		should.Be(t, a.outcomes[0].Wait, 2*time.Second+q.locked, "a call that came 2 s before the batch ended waited", q.locked)
	})
}

// After a batch of unknown outcome nothing is written until it is known that no
// transaction is open, however often that has to be asked.
func TestNothingIsWrittenBeforeABatchOfUnknownOutcomeIsSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written, asked int
		g := strategy.NewBatcher(func(_ context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
			if written++; written == 1 {
				return nil, stock.ErrUnknownOutcome
			}
			return make([]stock.Outcome, len(batch)), nil
		}, nil, strategy.Group{Batch: 8, Units: 8, Queue: 8, Timeout: time.Minute, Settled: func(_ context.Context, goodsID int64) error {
			if asked++; asked < 3 || goodsID != 1 {
				return stock.ErrBackendUnavailable
			}
			return nil
		}})
		for i, want := range []struct {
			goodsID        int64
			err            error
			written, asked int
		}{
			{1, stock.ErrUnknownOutcome, 1, 0},
			{1, stock.ErrBackendUnavailable, 1, 1},
			{2, nil, 2, 1}, // items do not wait for each other
			{1, stock.ErrBackendUnavailable, 2, 2},
			{1, nil, 3, 3},
			{1, nil, 4, 3},
		} {
			_, err := g.Deduct(t.Context(), want.goodsID, []stock.Purchase{{RequestID: strconv.Itoa(i), Quantity: 1}})
			if !errors.Is(err, want.err) || written != want.written || asked != want.asked {
				t.Errorf("purchase %d: %v, %d batches were written and %d times it was asked; want %+v", i, err, written, asked, want)
			}
		}
		g.Close()
	})
}

// The replica lives on, no caller gets an error that means "nothing happened", and the next batch
// is written.
func TestAPanicIsAnUnknownOutcomeOfItsBatch(t *testing.T) {
	var log strings.Builder
	loud := bounds
	loud.Log = slog.New(slog.NewJSONHandler(&log, nil))
	inQueue(t, 10, loud, func(q *queued) {
		release := q.hold()
		answers := []*answer{q.buy("first", 1), q.buy("second", 1), q.buy("third", 1)}
		q.panics = true
		release() // "first" alone, and then the others
		for i, a := range answers {
			if !a.answered || !errors.Is(a.err, stock.ErrUnknownOutcome) || strings.Contains(a.err.Error(), "broken") {
				q.t.Errorf("answer %d is %+v, want an unknown outcome that keeps the cause to itself", i, a)
			}
		}
		q.panics, q.gate = false, nil
		if a := q.buy("fourth", 1); a.err != nil || a.outcomes[0].Rejected != nil {
			q.t.Errorf("after a panic: %+v", a)
		}
		if again := q.buy("second", 1); !errors.Is(again.err, stock.ErrDuplicateRequest) {
			q.t.Errorf("what was written before the panic, asked for again: %v, want %v", again.err, stock.ErrDuplicateRequest)
		}
	})
	lines := slices.Collect(strings.Lines(log.String()))
	if len(lines) != 2 || !strings.Contains(lines[0], "a strategy that is broken") || !strings.Contains(lines[0], "batcher_test.go") {
		t.Errorf("two batches have panicked, the log is %q", lines)
	}
}

// A lock must not stay with a holder that panicked, nor a goroutine that serves others
// end with it.
func TestAPanicKeepsNoLock(t *testing.T) {
	for _, entry := range strategy.Registry() {
		if entry.Name != "mutex" && entry.Name != "channel" {
			continue
		}
		t.Run(entry.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				quiet := slog.New(slog.DiscardHandler)
				nowhere := new(repo.Store) // it has no database: the first read panics
				made := entry.New(strategy.Deps{Store: nowhere, LockWait: time.Second, Log: quiet})
				grouped := strategy.NewBatcher(made.Deduct, nil, strategy.Group{Batch: 1, Units: 1, Queue: 1, Timeout: time.Minute, Log: quiet})
				for range 2 {
					_, err := grouped.Deduct(t.Context(), 1, []stock.Purchase{{RequestID: "id", Quantity: 1}})
					should.Fail(t, err, stock.ErrUnknownOutcome, "a panic under the lock is answered with")
				}
			})
		})
	}
}

// Each step of a purchase is in its trace, and has an end.
func TestATraceHasTheStepsOfItsPurchase(t *testing.T) {
	store := onSale(t, lab.Database(t, servers.SQLite), 10)
	spans := tracetest.NewSpanRecorder()
	ctx, request := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "request")
	locked := entryOf(t, "mutex").New(strategy.Deps{Store: store.As("mutex"), LockWait: time.Minute})
	batcher := strategy.NewBatcher(locked.Deduct, store.Orders, strategy.Group{Batch: 5, Units: 1000, Queue: 10, Timeout: time.Minute})
	should.Do(t, oneOf(batcher.Deduct(ctx, 1, []stock.Purchase{purchase(1)})))
	batcher.Close()
	request.End()
	names := make([]string, 0, 4)
	for _, s := range spans.Ended() {
		names = append(names, s.Name())
	}
	should.Equal(t, names, []string{"wait for lock", "hold lock", "write batch", "request"}, "the steps that have ended are")
}
