package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// holding is a strategy that holds one unit, and returns it when it may.
type holding struct {
	strategy.Strategy
	may chan struct{}
}

func (h holding) Recall(context.Context, int64) (stock.Recalled, error) {
	<-h.may
	return stock.Recalled{Returned: 1}, nil
}

// Callers that want the same recall share it; one that wants more units gets them.
func TestARecallThatSparesAStrategyIsNotSharedByOneThatDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		may := make(chan struct{})
		r := recaller{
			holders: func(context.Context, int64) ([]string, error) { return []string{"a", "b"}, nil },
			offers:  map[string]*offer{"a": {strategy: holding{may: may}}, "b": {strategy: holding{may: may}}},
			log:     slog.New(slog.DiscardHandler),
		}
		returned := make(map[string]chan int64)
		for _, but := range []string{"a", "b", ""} {
			one := make(chan int64, 1)
			returned[but] = one
			go func() {
				recalled, err := r.recall(t.Context(), 1, but)
				should.Do(t, err)
				one <- recalled.Returned
			}()
			synctest.Wait()
		}
		close(may)
		for but, want := range map[string]int64{"a": 1, "b": 1, "": 2} {
			should.Be(t, <-returned[but], want, "a recall that spares", but)
		}
	})
}

// counted is a strategy with a fixed answer to a recall.
type counted struct {
	strategy.Strategy
	recalled stock.Recalled
	err      error
}

func (c counted) Recall(context.Context, int64) (stock.Recalled, error) { return c.recalled, c.err }

// An allocation that cannot be recalled fails the recall, and the others' units are back.
func TestARecallCountsWhatEachAllocationReturned(t *testing.T) {
	r := recaller{
		holders: func(context.Context, int64) ([]string, error) { return []string{"a", "unknown", "b"}, nil },
		offers: map[string]*offer{
			"a": {strategy: counted{recalled: stock.Recalled{Returned: 2, Pending: 1}}},
			"b": {strategy: counted{recalled: stock.Recalled{Returned: 3, Pending: 4}}},
		},
		log: slog.New(slog.DiscardHandler),
	}
	got, err := r.recall(t.Context(), 1, "")
	should.Fail(t, err, stock.ErrBackendUnavailable, "with an allocation that this replica does not know it fails")
	if got.Recalled != (stock.Recalled{Returned: 5, Pending: 5}) || len(got.Allocations) != 2 || got.Allocations[1].Returned != 3 {
		t.Errorf("recalled %+v, want 5 units back and 5 pending in two allocations", got)
	}
}

// hung is a strategy whose backend does not answer.
type hung struct{ strategy.Strategy }

func (hung) Recall(ctx context.Context, _ int64) (stock.Recalled, error) {
	<-ctx.Done()
	return stock.Recalled{}, &stock.BackendError{Backend: "any", Err: context.Cause(ctx)}
}

func TestARecallLastsNoLongerThanItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"hung"}
		r := recaller{
			holders: func(context.Context, int64) ([]string, error) { return names, nil },
			offers:  map[string]*offer{"hung": {strategy: hung{}}}, log: slog.New(slog.DiscardHandler),
		}
		begun := time.Now()
		if _, err := r.recall(t.Context(), 1, ""); !errors.Is(err, stock.ErrBackendUnavailable) || time.Since(begun) != recallWithin {
			t.Errorf("after %s it is answered with %v, want %v after %s", time.Since(begun), err, stock.ErrBackendUnavailable, recallWithin)
		}
		names = nil
		got, err := r.recall(t.Context(), 1, "")
		if text, failed := json.Marshal(got); err != nil || failed != nil || !strings.Contains(string(text), `"allocations":[]`) {
			t.Errorf("nothing to recall is shown as %s (%v), want an empty list", text, err)
		}
	})
}

// A purchase that lacks units goes on when some of them are back, whatever else failed, and as long as those that
// are pending may come back.
func TestAPurchaseGoesOnWithWhatIsBack(t *testing.T) {
	short := stock.Outcome{Rejected: &stock.AllocatedError{Units: 1, Version: 3}}
	broken := &stock.BackendError{Backend: "redis", Err: errors.New("cut")}
	for name, c := range map[string]struct {
		returned int64
		failure  error // of another allocation
		soldBy   int   // 0: never
		rejected error
		err      error
		calls    int
	}{
		"all is back":                         {1, nil, 2, nil, nil, 2},
		"some is back, and a backend is gone": {1, broken, 2, nil, nil, 2},
		"a backend is gone":                   {0, broken, 2, nil, stock.ErrBackendUnavailable, 1},
		"others had moved them":               {0, nil, 2, nil, nil, 2},
		"nothing comes back":                  {0, nil, 0, stock.ErrInsufficientStock, nil, 3},
	} {
		sold, calls := &counter{}, 0
		s := sold.shop(func(call int, _ stock.Purchase) (stock.Outcome, error) {
			if calls = call; call == c.soldBy {
				return stock.Outcome{Order: soldAs("7")}, nil
			}
			return short, nil
		})
		s.recalls = &recaller{
			holders: func(context.Context, int64) ([]string, error) { return []string{"a", "b"}, nil },
			offers: map[string]*offer{
				"a": {strategy: counted{recalled: stock.Recalled{Returned: c.returned, Pending: 1 - c.returned}}}, "b": {strategy: counted{err: c.failure}},
			},
			log: slog.New(slog.DiscardHandler),
		}
		got, err := s.buy1(t.Context(), stock.Purchase{RequestID: "k", Quantity: 1})
		if want := cmp.Or(c.err, c.rejected); !errors.Is(err, want) || calls != c.calls || (got.Order.ID == "7") != (c.err == nil && c.rejected == nil) {
			t.Errorf("%s: %+v (%v) after %d tries; want %v (%v) after %d", name, got, err, calls, c.rejected, c.err, c.calls)
		}
	}
}

// A recall that a backend has ended is no unknown outcome.
func TestTheOutcomeOfARecallIsKnownWhereItHasEnded(t *testing.T) {
	store := opened(t, filepath.Join(t.TempDir(), "s.db"))
	defer store.Close() //nolint:errcheck // the test is over
	must.Do(t, store.CreateGoods(t.Context(), 1, 1, "item"))
	cut := &stock.BackendError{Backend: "redis", Err: errors.New("cut")}
	i := &Inventory{store: store, catalogue: &Catalogue{recalls: &recaller{
		holders: func(context.Context, int64) ([]string, error) { return []string{"a"}, nil },
		offers:  map[string]*offer{"a": {strategy: counted{err: cut}}}, log: slog.New(slog.DiscardHandler),
	}}}
	if _, err := i.Recall(t.Context(), 1); !errors.Is(err, stock.ErrBackendUnavailable) || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("it is answered with %v, want what the backend said", err)
	}
}

// A look that finds nothing rejects in place of the strategy, once the item was too short, where purchases exclude each
// other: the others keep their race.
func TestALookRejectsInPlaceOfTheStrategy(t *testing.T) {
	down := &stock.BackendError{Backend: "mysql", Err: errors.New("cut")}
	out := stock.ErrInsufficientStock
	for name, c := range map[string]struct {
		short, excludes, finds bool // finds nothing
		fails                  error
		purchase               stock.Purchase
		want                   error
		looks, sales, searches int
	}{
		"it is not known to be short":     {false, true, true, nil, unkeyed(), nil, 0, 1, 0},
		"there is nothing":                {true, true, true, nil, unkeyed(), out, 1, 0, 0},
		"there is nothing for a key":      {true, true, true, nil, keyed, out, 1, 0, 1},
		"there is something":              {true, true, false, nil, unkeyed(), nil, 1, 1, 0},
		"the database does not answer":    {true, true, false, down, unkeyed(), down, 1, 0, 0},
		"the item is gone":                {true, true, false, stock.ErrUnknownGoods, unkeyed(), nil, 1, 1, 0},
		"a strategy that excludes no one": {true, false, true, nil, unkeyed(), nil, 0, 1, 0},
	} {
		looked, sales := 0, 0
		sold := &counter{}
		s := sold.shop(func(call int, _ stock.Purchase) (stock.Outcome, error) {
			sales = call
			return stock.Outcome{}, nil
		})
		s.looks = &looks{switches: newSwitches(nil), queue: queue.New(queue.Options[int64, stock.Purchase, error]{Most: 1, Within: time.Minute, Write: func(_ context.Context, _ int64, calls []*queue.Call[stock.Purchase, error]) {
			if looked++; sold.searches > 0 {
				t.Errorf("%s: the key was searched for first", name)
			}
			var rejected error
			if c.finds {
				rejected = out
			}
			calls[0].Answer(rejected, c.fails)
		}})}
		s.byName["s"].entry.Guarantees.ExclusiveInProcess = c.excludes
		if c.short {
			s.looks.note(1, false)
		}
		_, err := s.buy1(t.Context(), c.purchase)
		if !errors.Is(err, c.want) || looked != c.looks || sales != c.sales || sold.searches != c.searches {
			t.Errorf("%s: %v after %d looks, %d sales and %d searches; want %v after %d, %d and %d",
				name, err, looked, sales, sold.searches, c.want, c.looks, c.sales, c.searches)
		}
		if len(sold.observed) != 1 || !errors.Is(errors.Join(sold.failures[0], sold.observed[0].Rejected), c.want) {
			t.Errorf("%s: it was observed %d times, with %v", name, len(sold.observed), sold.failures)
		}
	}
}

func unkeyed() stock.Purchase { return stock.Purchase{RequestID: "k", Quantity: 1} }
