package service_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// outbox is a strategy that accepts orders ahead of the ledger.
type outbox struct {
	strategy.Outbox // nil: the tests call no method of it
}

func (outbox) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, stock.ErrBusy
}

func openCatalogue(t *testing.T, entries ...strategy.Entry) (*service.Catalogue, error) {
	t.Helper()
	store := labtest.Open(t, lab.Database(t, servers.SQLite), "replica-1")
	return service.NewCatalogue(t.Context(), entries, strategy.Deps{Store: store, Lock: lock.Deps{Clients: new(backend.Clients)}}, time.Second)
}

func TestASecondOutboxIsRejected(t *testing.T) {
	entry := strategy.Entry{Name: "first", New: func(strategy.Deps) strategy.Strategy { return outbox{} }}
	second := entry
	second.Name = "second"
	if _, err := openCatalogue(t, entry); err != nil {
		t.Errorf("one outbox: %v", err)
	}
	_, err := openCatalogue(t, entry, second)
	if !errors.Is(err, service.ErrSecondOutbox) || !strings.Contains(err.Error(), "second") {
		t.Errorf("two outboxes: %v, want %v that names the second", err, service.ErrSecondOutbox)
	}
}

func TestAStrategyNeedsItsMinimumVersion(t *testing.T) {
	newOutbox := func(strategy.Deps) strategy.Strategy { return outbox{} }
	for _, test := range []struct {
		least    strategy.Minimum
		rejected bool
	}{
		{strategy.Minimum{Server: "SQLite", Version: "99.1"}, true},
		{strategy.Minimum{Server: "SQLite", Version: "3.1"}, false},
		{strategy.Minimum{Server: "MariaDB", Version: "99.1"}, false}, // it is not there
		{strategy.Minimum{Server: strategy.Redis, Version: "99.1"}, false},
	} {
		c, err := openCatalogue(t, strategy.Entry{Name: "modern", Minimums: []strategy.Minimum{test.least}, New: newOutbox})
		if err != nil {
			t.Fatal(err)
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
