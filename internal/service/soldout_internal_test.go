package service

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/stock"
)

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
