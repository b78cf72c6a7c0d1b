package service_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// outbox is a strategy that accepts orders ahead of the ledger. Its last pending order
// reaches the ledger when it is looked at.
type outbox struct {
	strategy.Outbox // nil: the tests call no other method of it
	settle          func()
}

func (o *outbox) Pending(context.Context, int64) (int64, error) {
	o.settle()
	return 0, nil
}

func (*outbox) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, stock.ErrBusy
}

// openEntries opens a replica that has these strategies, and SQLite alone.
func openEntries(t *testing.T, entries ...strategy.Entry) (*repo.Store, *service.Catalogue, error) {
	t.Helper()
	store := labtest.Open(t, lab.Database(t, servers.SQLite), "replica-1")
	catalogue, err := service.NewCatalogue(t.Context(), entries, strategy.Deps{
		Store: store, Lock: lock.Deps{Clients: new(backend.Clients)}, Retry: strategy.Retry{Tries: 1}, Buckets: 2, UnitRows: 2,
		Group: strategy.Group{Batch: 10, Units: 100, Queue: 10},
	}, copiesWait)
	return store, catalogue, err
}

// held sells a batch when it is let go, and says before how large it is.
type held struct{ batches, let chan int }

func (h held) Deduct(_ context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	h.batches <- len(batch)
	<-h.let
	return make([]stock.Outcome, len(batch)), nil
}

// A strategy that sells together what waits does so whether the requests ask for it or not.
func TestWhatWaitsIsSoldTogetherWithoutBeingAskedTo(t *testing.T) {
	h := held{make(chan int), make(chan int)}
	store, c, err := openEntries(t, strategy.Entry{Name: "held", Together: true, New: func(strategy.Deps) strategy.Strategy { return h }})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.CreateGoods(t.Context(), 1, 10, "created"); err != nil {
		t.Fatal(err)
	}
	var buyers sync.WaitGroup
	buy := func(mode service.Mode) {
		buyers.Go(func() {
			seller, err := c.In(mode)
			if err == nil {
				_, err = seller.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1})
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	alone := service.Mode{Strategy: "held"}
	buy(alone)
	if n := <-h.batches; n != 1 {
		t.Errorf("the first is written with %d, want at once", n)
	}
	for i := range 4 {
		buy(service.Mode{Strategy: "held", Group: i == 0})
	}
	if !labtest.Eventually(5*time.Second, func() bool { return c.Waiting()["held"] == 4 }) {
		t.Fatalf("%v wait, want 4", c.Waiting())
	}
	h.let <- 1
	if n := <-h.batches; n != 4 {
		t.Errorf("%d are sold together, want 4", n)
	}
	h.let <- 4
	buyers.Wait()
}

func TestASecondOutboxIsRejected(t *testing.T) {
	entry := strategy.Entry{Name: "first", New: func(strategy.Deps) strategy.Strategy { return new(outbox) }}
	second := entry
	second.Name = "second"
	_, alone, err := openEntries(t, entry)
	if err != nil {
		t.Errorf("one outbox: %v", err)
	}
	if err := alone.SetDefault(service.Mode{Strategy: "second"}); !errors.Is(err, service.ErrUnknownStrategy) {
		t.Errorf("a strategy that there is not is made the default: %v", err)
	}
	_, _, err = openEntries(t, entry, second)
	if !errors.Is(err, service.ErrSecondOutbox) || !strings.Contains(err.Error(), "second") {
		t.Errorf("two outboxes: %v, want %v that names the second", err, service.ErrSecondOutbox)
	}
}

func TestAStrategyNeedsItsMinimumVersion(t *testing.T) {
	newOutbox := func(strategy.Deps) strategy.Strategy { return new(outbox) }
	for _, test := range []struct {
		least    strategy.Minimum
		rejected bool
	}{
		{strategy.Minimum{Server: "SQLite", Version: "99.1"}, true},
		{strategy.Minimum{Server: "SQLite", Version: "3.1"}, false},
		{strategy.Minimum{Server: "MariaDB", Version: "99.1"}, false}, // it is not there
		{strategy.Minimum{Server: strategy.Redis, Version: "99.1"}, false},
	} {
		_, c, err := openEntries(t, strategy.Entry{Name: "modern", Minimums: []strategy.Minimum{test.least}, New: newOutbox})
		if err != nil {
			t.Fatal(err)
		}
		if d := c.Describe(t.Context())[0]; d.Available == test.rejected {
			t.Errorf("with %v as the minimum it is described as %+v", test.least, d)
		}
		_, err = c.In(service.Mode{Strategy: "modern"})
		if !test.rejected {
			if err != nil {
				t.Errorf("with %v as the minimum: %v", test.least, err)
			}
			continue
		}
		if !errors.Is(err, service.ErrStrategyRejected) {
			t.Fatalf("with %v as the minimum: %v, want %v", test.least, err, service.ErrStrategyRejected)
		}
		if old, ok := errors.AsType[*service.UnconfiguredError](err); !ok || old.Backend != "sqlite" {
			t.Errorf("the backend of %v is not sqlite", err)
		}
		for _, part := range []string{"modern", "SQLite", "version 3.", "99.1 or later"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not name %q", err, part)
			}
		}
	}
}

func TestVersionsAreComparedByTheirNumbers(t *testing.T) {
	for version, tooOld := range map[string]bool{
		"6.0.16": true, "6.2": false, "6.2.0": false, "6.10.1": false, "7.0.15": false, "10.11.14-MariaDB": false, "5": true,
	} {
		if got := (strategy.Minimum{Version: "6.2"}).After(version); got != tooOld {
			t.Errorf("6.2 is after %s: %t, want %t", version, got, tooOld)
		}
	}
}
