package service

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/internal/telemetry"
)

// frozenLedger answers a query when it thaws, also a cancelled one.
type frozenLedger struct {
	thaw chan struct{}

	mu      sync.Mutex
	queries [][]string
}

func (f *frozenLedger) Orders(ctx context.Context, requestIDs ...string) (map[string]stock.Order, error) {
	_, step := telemetry.StartSpan(ctx, "sql")
	defer step.End()
	f.mu.Lock()
	f.queries = append(f.queries, slices.Clone(requestIDs))
	f.mu.Unlock()
	<-f.thaw
	return map[string]stock.Order{}, ctx.Err()
}

func newFrozen(most int) (*frozenLedger, *shared[string, stock.Order]) {
	f := &frozenLedger{thaw: make(chan struct{})}
	return f, sharedIn(f.Orders, most)
}

func sharedIn(find strategy.FindOrders, most int) *shared[string, stock.Order] {
	return &shared[string, stock.Order]{query: find, doing: "find requests", most: most, within: time.Hour, log: slog.New(slog.DiscardHandler)}
}

// A caller that left before asking is not served at all: a write for it would be answered to no one.
func TestNothingIsAskedForACallerThatHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, g := newFrozen(10)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := g.get(ctx, "gone"); !errors.Is(err, context.Canceled) {
			t.Errorf("it gets %v, want %v", err, context.Canceled)
		}
		synctest.Wait()
		if len(ledger.queries) != 0 || len(g.waiting) != 0 {
			t.Errorf("%d queries were made, and %d calls wait", len(ledger.queries), len(g.waiting))
		}
	})
}

func TestALookupWhoseCallerLeftIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, g := newFrozen(10)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		for i := range 1000 {
			callers.Go(func() {
				if _, err := g.get(ctx, "gone-"+strconv.Itoa(i)); !errors.Is(err, context.Canceled) {
					t.Errorf("a cancelled caller gets %v, want %v", err, context.Canceled)
				}
			})
		}
		synctest.Wait()
		cancel()
		callers.Wait()
		if len(g.waiting) != 0 {
			t.Errorf("%d calls are queued, want 0", len(g.waiting))
		}
		callers.Go(func() {
			if _, err := g.get(t.Context(), "live"); err != nil {
				t.Errorf("the live caller gets %v", err)
			}
		})
		synctest.Wait()
		close(ledger.thaw)
		callers.Wait()
		if len(ledger.queries) != 2 || !slices.Equal(ledger.queries[1], []string{"live"}) {
			t.Errorf("%d queries, want the cancelled one and then the live one", len(ledger.queries))
		}
	})
}

// hungLedger answers only to cancellation.
type hungLedger struct{}

func (hungLedger) Orders(ctx context.Context, _ ...string) (map[string]stock.Order, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func TestTheLastCallerOfASearchCancelsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := sharedIn(hungLedger{}.Orders, 10)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.get(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller gets %v, want %v", err, context.DeadlineExceeded)
		}
		synctest.Wait()
		if g.querying {
			t.Error("the search goes on without a caller")
		}
	})
}

// A write that its last caller has left ends with what ended that caller: a payment that was cut off by the end of
// a replica is busy, and not the client's doing.
func TestAWriteThatIsCutOffHasItsCallersCause(t *testing.T) {
	for _, cause := range []error{context.DeadlineExceeded, stock.ErrBusy} {
		synctest.Test(t, func(t *testing.T) {
			g := sharedIn(hungLedger{}.Orders, 10)
			g.writes = true
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(cause) })
			if _, err := g.get(ctx, "a"); !errors.Is(err, cause) || errors.Is(err, context.Canceled) {
				t.Errorf("the caller gets %v, want %v", err, cause)
			}
		})
	}
}

// A search has a limit of its own, for callers that have none.
func TestASearchLastsNoLongerThanItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, begun := sharedIn(hungLedger{}.Orders, 10), time.Now()
		if _, err := g.get(t.Context(), "a"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != g.within {
			t.Errorf("after %s the caller gets %v, want %v after %s", time.Since(begun), err, context.DeadlineExceeded, g.within)
		}
	})
}

// A call may have more keys than a query has for several calls.
func TestALargeCallHasAQueryOfItsOwn(t *testing.T) {
	ledger, g := newFrozen(2)
	close(ledger.thaw)
	if _, err := g.get(t.Context(), "a", "b", "c"); err != nil || len(ledger.queries) != 1 || len(ledger.queries[0]) != 3 {
		t.Errorf("three keys are asked for by %q (%v)", ledger.queries, err)
	}
}

func TestASearchStaysWhileOneCallerWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, g := newFrozen(10)
		ctx, cancel := context.WithCancel(t.Context())
		var callers sync.WaitGroup
		callers.Go(func() { _, _ = g.get(t.Context(), "first") }) // it only makes the next two one search
		synctest.Wait()
		callers.Go(func() { _, _ = g.get(ctx, "gone") }) // the error is not the subject
		callers.Go(func() {
			if _, err := g.get(t.Context(), "live"); err != nil {
				t.Errorf("the caller that stayed gets %v", err)
			}
		})
		synctest.Wait()
		ledger.thaw <- struct{}{}
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(ledger.thaw)
		callers.Wait()
	})
}

// The first caller starts the goroutine that searches for all. Its trace has ended
// when the others are served.
func TestASearchIsAPartOfALiveCallersTrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spans := tracetest.NewSpanRecorder()
		tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)).Tracer("test")
		ledger, g := newFrozen(10)
		var callers sync.WaitGroup
		ask := func(name string) (trace.SpanContext, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			ctx, span := tracer.Start(telemetry.WithRequestID(ctx, name), name)
			callers.Go(func() {
				_, _ = g.get(ctx, name) // the answer is not the subject
				span.End()
			})
			synctest.Wait()
			return span.SpanContext(), cancel
		}
		_, leave := ask("gone")
		leave()
		first, _ := ask("first")
		second, _ := ask("second")
		close(ledger.thaw)
		callers.Wait()
		synctest.Wait()
		var searches, queries []sdk.ReadOnlySpan
		for _, s := range spans.Ended() {
			switch s.Name() {
			case "find requests":
				searches = append(searches, s)
			case "sql":
				queries = append(queries, s)
			}
		}
		if len(searches) != 2 || len(queries) != 2 {
			t.Fatalf("%d searches with %d queries, want 2 with 2", len(searches), len(queries))
		}
		search := searches[1]
		if search.Parent().SpanID() != first.SpanID() || len(search.Links()) != 1 || search.Links()[0].SpanContext.SpanID() != second.SpanID() {
			t.Errorf("the search is a child of %v with links %v, want the live callers", search.Parent(), search.Links())
		}
		if queries[1].Parent().SpanID() != search.SpanContext().SpanID() {
			t.Errorf("the query is a child of %v, want the search", queries[1].Parent())
		}
	})
}

// A caller that leaves what is being written gets its outcome where that comes soon, and else
// does not know it.
func TestACallerThatLeavesAWriteKnowsItsOutcomeOrThatItIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		thaws time.Duration // after the callers have left
		want  error
	}{
		"it is written in time": {endWithin - 1, nil},
		"it takes longer":       {endWithin + 1, stock.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ledger, g := newFrozen(10)
				g.writes, g.query = true, func(ctx context.Context, ids ...string) (map[string]stock.Order, error) {
					orders, _ := ledger.Orders(ctx, ids...) // it is being committed, and cannot be ended
					return orders, nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				var callers sync.WaitGroup
				for _, id := range []string{"a", "b"} {
					callers.Go(func() {
						if _, err := g.get(ctx, id); id == "a" && !errors.Is(err, c.want) {
							t.Errorf("a caller that left gets %v, want %v", err, c.want)
						} else if id == "b" && !errors.Is(err, context.Canceled) || errors.Is(err, stock.ErrUnknownOutcome) && id == "b" {
							t.Errorf("a caller that left the queue gets %v, want %v", err, context.Canceled)
						}
					})
					synctest.Wait()
				}
				cancel()
				time.Sleep(c.thaws)
				close(ledger.thaw)
				callers.Wait()
				if len(ledger.queries) != 1 {
					t.Errorf("%d were written, want the one that was under way", len(ledger.queries))
				}
			})
		})
	}
}

// A panic may come after the commit.
func TestAPanicOfAWriteIsAnUnknownOutcome(t *testing.T) {
	g := sharedIn(func(context.Context, ...string) (map[string]stock.Order, error) { panic("after the commit") }, 10)
	g.writes = true
	if _, err := g.get(t.Context(), "a"); !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("the caller gets %v, want %v", err, stock.ErrUnknownOutcome)
	}
}

// A payment that is being written when its client leaves may be taken.
func TestAPaymentThatIsLeftIsOfUnknownOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Catalogue{requests: sharedIn(nil, 10), timeout: time.Hour, log: slog.New(slog.DiscardHandler)}
		r, written := NewReservations(nil, c, time.Hour, nil), make(chan struct{})
		r.confirming.query = func(context.Context, ...*repo.Payment) (map[*repo.Payment]repo.Confirmation, error) {
			<-written
			return nil, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := r.Confirm(ctx, "number", "reference"); !errors.Is(err, stock.ErrUnknownOutcome) {
			t.Errorf("it is answered with %v, want %v", err, stock.ErrUnknownOutcome)
		}
		close(written)
	})
}

// shelf answers a search for items when it is opened.
type shelf struct {
	opened   chan struct{}
	existing map[int64]bool
	searches [][]int64
}

func (s *shelf) find(_ context.Context, ids ...int64) (map[int64]bool, error) {
	s.searches = append(s.searches, ids)
	<-s.opened
	return s.existing, nil
}

func newShelf(most int, existing ...int64) (*shelf, *items) {
	s := &shelf{opened: make(chan struct{}), existing: make(map[int64]bool)}
	for _, id := range existing {
		s.existing[id] = true
	}
	return s, &items{
		switches: newSwitches(nil), most: most, known: make(map[int64]struct{}),
		search: &shared[int64, bool]{query: s.find, doing: "find items", most: 1000, within: time.Hour, log: slog.New(slog.DiscardHandler)},
	}
}

func TestOneSearchFindsTheItemsOfAllCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, i := newShelf(10, 7)
		var callers sync.WaitGroup
		for n := range int64(100) {
			callers.Go(func() {
				err := i.require(t.Context(), n)
				if known := n == 7; known != (err == nil) || !known && !errors.Is(err, stock.ErrUnknownGoods) {
					t.Errorf("item %d: %v", n, err)
				}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := i.require(ctx, 7); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller whose time is over gets %v, want %v", err, context.DeadlineExceeded)
		}
		close(s.opened)
		callers.Wait()
		if len(s.searches) > 2 {
			t.Errorf("%d searches, want the first caller's and one for all others", len(s.searches))
		}
	})
}

func TestAnItemIsSearchedOnceAndAnUnknownOneEachTime(t *testing.T) {
	s, i := newShelf(10, 6, 7)
	close(s.opened)
	for range 3 {
		if err := errors.Join(i.require(t.Context(), 6), i.require(t.Context(), 7)); err != nil {
			t.Error(err)
		}
	}
	if len(s.searches) != 2 {
		t.Errorf("%d searches for two items, want one for each", len(s.searches))
	}
	for range 3 {
		if err := i.require(t.Context(), 8); !errors.Is(err, stock.ErrUnknownGoods) {
			t.Errorf("%v, want %v", err, stock.ErrUnknownGoods)
		}
	}
	s.existing[8] = true // another replica has created it
	if err := i.require(t.Context(), 8); err != nil {
		t.Errorf("an item that was just created: %v", err)
	}
	i.forget(7)
	delete(s.existing, 7) // by hand
	if err := i.require(t.Context(), 7); !errors.Is(err, stock.ErrUnknownGoods) {
		t.Errorf("an item that was deleted: %v, want %v", err, stock.ErrUnknownGoods)
	}
}

func TestKnownItemsAreBounded(t *testing.T) {
	const most = 10
	s, i := newShelf(most)
	close(s.opened)
	for n := range int64(1000) {
		s.existing[n] = true
		if err := i.require(t.Context(), n); err != nil {
			t.Error(err)
		}
		_ = i.require(t.Context(), -n-1) // unknown
		if len(i.known) > most || !i.isKnown(n) {
			t.Fatalf("%d items are known after item %d, want at most %d and this one", len(i.known), n, most)
		}
	}
}

func TestASearchHasAtMostSoManyKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, i := newShelf(10)
		i.search.most = 2
		var callers sync.WaitGroup
		for n := range int64(5) {
			callers.Go(func() { _ = i.require(t.Context(), n) })
			synctest.Wait()
		}
		close(s.opened)
		callers.Wait()
		if len(s.searches) != 3 || len(s.searches[1]) != 2 || len(s.searches[2]) != 2 {
			t.Errorf("one search and four callers after it: searched for %v", s.searches)
		}
	})
}

func TestASearchThatFailsFailsItsCallers(t *testing.T) {
	broken := errors.New("the database is gone")
	_, i := newShelf(10)
	i.search.query = func(context.Context, ...int64) (map[int64]bool, error) { return nil, broken }
	if err := i.require(t.Context(), 7); !errors.Is(err, broken) {
		t.Errorf("it fails with %v, want %v", err, broken)
	}
}
