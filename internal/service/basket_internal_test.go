package service

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// A basket is rejected, and the backend of a strategy hangs that keeps a copy of the stock: all lines are given back
// at once all the same.
func TestALineIsGivenBackWhileABackendHangs(t *testing.T) {
	const lines = 20
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		store, copied := opened(t, path), unresponsive{notified: make(chan int64, lines)}
		r := NewReservations(store, &Catalogue{
			offers: []*offer{{strategy: copied}}, requests: &shared[string, stock.Order]{}, log: slog.New(slog.DiscardHandler), timeout: time.Minute,
		}, time.Hour, uncounted{})
		basket := Basket{RequestID: "key"}
		for id := range int64(lines) {
			basket.Lines = append(basket.Lines, stock.Line{GoodsID: id + 1, Quantity: 1})
		}
		var held []string
		_, err := r.Sell(t.Context(), basket, func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
			if goodsID == lines {
				return stock.Outcome{}, stock.ErrInsufficientStock
			}
			held = append(held, p.Number)
			return hold(ctx, store, goodsID, p)
		})
		if !errors.Is(err, stock.ErrInsufficientStock) {
			t.Fatalf("the basket is answered with %v", err)
		}
		for _, number := range held {
			if line, err := r.Read(t.Context(), number); err != nil || line.State != stock.Released {
				t.Errorf("line %s is %s (%v)", number, line.State, err)
			}
		}
		for range held {
			<-copied.notified
		}
		if err := errors.Join(r.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A payment that has no answer among others, because its reservation was locked, is made alone.
func TestAPaymentWithoutAnAnswerIsMadeAlone(t *testing.T) {
	store := opened(t, filepath.Join(t.TempDir(), "s.db"))
	defer store.Close() //nolint:errcheck // the test is over
	r := NewReservations(store, &Catalogue{
		requests: &shared[string, stock.Order]{}, log: slog.New(slog.DiscardHandler), timeout: time.Minute,
	}, time.Hour, uncounted{})
	r.confirming.query = func(context.Context, ...*repo.Payment) (map[*repo.Payment]repo.Confirmation, error) {
		return map[*repo.Payment]repo.Confirmation{}, nil
	}
	const number = "018bcfe5-6800-7000-8000-000000000000"
	p := stock.Purchase{RequestID: "key", Number: number, Quantity: 1, TTL: time.Minute}
	if _, err := hold(t.Context(), store, 1, p); err != nil {
		t.Fatal(err)
	}
	if paid, again, err := r.Confirm(t.Context(), number, "paid"); err != nil || again || paid.State != stock.Confirmed {
		t.Errorf("it is answered with %+v, %t (%v)", paid, again, err)
	}
}
