package hot

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// slowLedger is asked for orders, and has them once they are written.
type slowLedger struct {
	mu      sync.Mutex
	looks   int
	asked   []string // the last time
	written map[string]stock.Order
}

func (l *slowLedger) find(_ context.Context, ids ...string) (map[string]stock.Order, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looks++
	l.asked = ids
	if l.looks > 10_000 {
		return map[string]stock.Order{"patient": {}, "impatient": {}}, nil // ends a look that would never end
	}
	return maps.Clone(l.written), nil
}

func (l *slowLedger) write(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written[id] = stock.Order{}
}

func (l *slowLedger) seen() (looks int, asked []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.looks, l.asked
}

// The ledger is asked as long as a request waits, and no longer. A request that gives up
// leaves the others waiting, also its copies.
func TestTheLedgerIsAskedAsLongAsARequestWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowLedger{written: make(map[string]stock.Order)}
		w := newLedgerWatch(l.find, slog.New(slog.DiscardHandler))
		patient := make(chan error, 1)
		go func() {
			_, err := w.await(t.Context(), "patient")
			patient <- err
		}()
		synctest.Wait()
		for id, limit := range map[string]time.Duration{"impatient": time.Second, "patient": time.Millisecond} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if _, err := w.await(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a request for %s that gives up gets %v", id, err)
			}
		}
		time.Sleep(time.Second)
		if _, asked := l.seen(); !slices.Equal(asked, []string{"patient"}) {
			t.Errorf("%q are looked for, want the one that is waited for", asked)
		}
		l.write("patient")
		if err := <-patient; err != nil {
			t.Errorf("the other request gets %v", err)
		}
		before, _ := l.seen()
		time.Sleep(time.Minute)
		if after, _ := l.seen(); after > before+1 {
			t.Errorf("it was asked %d times more while no request waits", after-before)
		}
	})
}

// Requests that wait one after the other, each of which gives up, share one look.
func TestTheLedgerIsAskedByOneLookAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asking, most := 0, 0
		w := newLedgerWatch(func(context.Context, ...string) (map[string]stock.Order, error) {
			mu.Lock()
			asking++
			most = max(most, asking)
			mu.Unlock()
			time.Sleep(3 * ledgerLook)
			mu.Lock()
			asking--
			mu.Unlock()
			return nil, nil
		}, slog.New(slog.DiscardHandler))
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), 2*ledgerLook)
			if _, err := w.await(ctx, "impatient"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("a request that gives up gets %v", err)
			}
			cancel()
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if most != 1 || asking != 0 {
			t.Errorf("%d looks at once, %d in the end; want 1 and none", most, asking)
		}
	})
}

// Each of many requests gets its own order, some of them the same one, although looks at the ledger panic, fail, and are
// not answered before.
func TestEveryRequestThatWaitsGetsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		w := newLedgerWatch(func(ctx context.Context, ids ...string) (map[string]stock.Order, error) {
			switch looks++; looks {
			case 1:
				panic("a ledger that is broken")
			case 2:
				return nil, errors.New("a ledger that is away")
			case 3:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			if len(ids) > ledgerAtOnce {
				t.Errorf("%d orders are looked for at once", len(ids))
			}
			found := make(map[string]stock.Order)
			for _, id := range ids {
				found[id] = stock.Order{ID: "order of " + id}
			}
			return found, nil
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		var waiting sync.WaitGroup
		for i := range 2*ledgerAtOnce + 10 {
			waiting.Go(func() {
				id := strconv.Itoa(i / 2)
				if order, err := w.await(ctx, id); err != nil || order.ID != "order of "+id {
					t.Errorf("request %s gets %+v (%v)", id, order, err)
				}
			})
		}
		waiting.Wait()
	})
}

// An order that the ledger is found to have as its request gives up is an answer, and no unknown outcome.
func TestAnOrderThatIsFoundAsItsRequestGivesUpIsItsAnswer(t *testing.T) {
	l := &slowLedger{written: map[string]stock.Order{"key": {ID: "number"}}}
	w := newLedgerWatch(l.find, slog.New(slog.DiscardHandler))
	found, late := make(chan stock.Order, 1), make(chan stock.Order, 1)
	w.waiting["key"] = []chan stock.Order{found}
	if err := w.ask([]string{"key"}); err != nil {
		t.Fatal(err)
	}
	if order, ok := w.leave("key", found); !ok || order.ID != "number" {
		t.Errorf("it leaves with %+v, %t", order, ok)
	}
	w.waiting["key"] = []chan stock.Order{late}
	if order, ok := w.leave("key", late); ok || len(w.waiting) > 0 {
		t.Errorf("one that no look has found leaves with %+v, and %d wait", order, len(w.waiting))
	}
}
