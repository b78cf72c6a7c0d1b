package service

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

// broken is a ledger that panics, for as many times as it says.
type broken int

func (b *broken) Orders(context.Context, ...string) (map[string]stock.Order, error) {
	if *b--; *b >= 0 {
		panic("a ledger that is broken")
	}
	return map[string]stock.Order{"id": {}}, nil
}

func TestAPanicInASearchFailsItsCallers(t *testing.T) {
	once := broken(1)
	g := sharedIn(once.Orders, 10)
	if _, err := g.get(t.Context(), "id"); !errors.Is(err, background.ErrPanicked) {
		t.Errorf("answered with %v, want %v", err, background.ErrPanicked)
	}
	if orders, err := g.get(t.Context(), "id"); err != nil || len(orders) != 1 {
		t.Errorf("the next search is answered with %v (%v)", orders, err)
	}
}

func TestKeepingTotalsOutlivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*settleEvery/2)
		defer cancel()
		var failures []error
		nowhere := NewInventory(nil, &Catalogue{log: slog.New(slog.DiscardHandler)}) // it has no store
		nowhere.KeepTotals(ctx, func(err error) { failures = append(failures, err) })
		if len(failures) != 2 || !errors.Is(failures[0], background.ErrPanicked) {
			t.Errorf("two rounds came to %v", failures)
		}
	})
}
