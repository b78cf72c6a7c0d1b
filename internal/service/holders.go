package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/lock/process"
	"github.com/stockd/stockd/internal/queue"
	"github.com/stockd/stockd/internal/stock"
)

// holders limit how many units one buyer holds at the same time, of all items together; nil limits none. Each
// unit that is held counts, whatever strategy and route have taken it; a line of a basket does until the basket is
// sold.
//
//  1. What one buyer holds through one replica is never beyond the limit: its reservations take turns, and each one
//     finds in the database what those before it hold.
//  2. Replicas do not wait for each other: a buyer that asks n of them in the same moment may exceed the limit by n-1
//     purchases. What is pending after stock.ErrUnknownOutcome counts once it is written.
type holders struct {
	most  int64
	turns *process.Locker
	held  *queue.Shared[string, int64]
}

func newHolders(c *Catalogue, most int64) *holders {
	if most == 0 {
		return nil
	}
	return &holders{most: most, turns: process.New(), held: shareRead(c, "find what buyers hold", c.store.HeldBy, nil)}
}

// begin waits for the end of other reservations of the same buyer. stock.ErrHoldLimit, stock.ErrUserUnknown: this one
// is rejected.
func (h *holders) begin(ctx context.Context, p stock.Purchase) (end func(), err error) {
	if p.UserID == "" { // it could hold any number
		return nil, stock.ErrUserUnknown
	}
	turn, err := h.turns.Acquire(ctx, p.UserID)
	if err != nil {
		return nil, fmt.Errorf("wait for other reservations of the buyer: %w", err)
	}
	end = func() { _ = turn.Release(ctx) } // it never fails
	held, err := h.held.Get(ctx, p.UserID)
	if has := held[p.UserID]; err == nil && has+p.Quantity > h.most {
		err = &stock.HoldLimitError{MaxHeld: h.most, Has: has}
	}
	if err != nil {
		end()
	}
	return end, err
}

// copyOr is the answer to a copy of a reservation that was accepted while this one waited, or why this one is rejected.
func (s *Shop) copyOr(ctx context.Context, r Request, rejected error) (stock.Outcome, error) {
	if r.Keyed && errors.Is(rejected, stock.ErrHoldLimit) {
		if first, err := s.written(ctx, r); err != nil || first.Replayed {
			return first, err
		}
	}
	return stock.Outcome{}, rejected
}
