package redisstock

import (
	"context"
	"fmt"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// recallTries bounds how often purchases open the allocation again during one recall.
const recallTries = 5

// isHome tells that an allocation is closed and has no units: nothing is pending, and
// Redis need not be asked about it.
func isHome(place repo.Allocation) bool { return place.Closed && place.Units == 0 }

// Recall returns the units of an item to its row, but for those of pending orders, which
// stay accepted. It closes the allocation in the database, has a closed counter in Redis
// count what is pending, takes the units off that counter, and then moves them in one
// transaction. After each of these steps any replica may go on: Recall begins with the
// first that is left to do, and so does Reconcile.
//
// stock.ErrBusy: purchases open the allocation again and again, or the counter was not
// rebuilt before ctx ended.
func (s *Stock) Recall(ctx context.Context, goodsID int64) (stock.Recalled, error) {
	var above int64
	for range recallTries {
		place, err := s.store.CloseAllocation(ctx, goodsID, Allocation)
		if err != nil || place.Units == 0 {
			return stock.Recalled{}, notUnknown(err)
		}
		if err := s.counterAbove(ctx, wanted{goodsID: goodsID}, max(above, place.Epoch-1)); err != nil {
			return stock.Recalled{}, err
		}
		if got, ok, err := s.returnUnits(ctx, goodsID); ok || err != nil {
			return got, err
		}
		counter, err := s.look(ctx, goodsID)
		if err != nil {
			return stock.Recalled{}, err
		}
		above = counter.Epoch // a database that was restored may be behind Redis
	}
	return stock.Recalled{}, fmt.Errorf("%w: purchases open the allocation of item %d all the time", stock.ErrBusy, goodsID)
}

// returnTries bounds how often consumers write orders between the count of what is
// pending and the return of the rest.
const returnTries = 5

// returnUnits returns the units of an allocation whose closed counter is there. Not ok:
// it is not, or another epoch has begun. What is written after the count is not pending any
// more, and as many units stay: they return with the next count.
func (s *Stock) returnUnits(ctx context.Context, goodsID int64) (got stock.Recalled, ok bool, err error) {
	for range returnTries {
		pending, held, epoch, ok, err := s.countPending(ctx, goodsID)
		if err != nil || !ok {
			return stock.Recalled{}, false, err
		}
		place, units, err := s.store.ReturnUnits(ctx, goodsID, Allocation, epoch, pending)
		if err != nil {
			return stock.Recalled{}, false, fmt.Errorf("return the units of item %d to its row: %w", goodsID, err)
		}
		got = stock.Recalled{Returned: got.Returned + units, Pending: place.Units}
		if units > 0 {
			s.options.Log.InfoContext(ctx, "units recalled", "goods", goodsID, "units", units, "pending", place.Units, "epoch", epoch)
		}
		if !place.Closed || place.Epoch != epoch {
			return got, false, nil
		}
		if allPending := held <= pending || place.Units+units == held; allPending || place.Units == 0 {
			return got, true, nil
		}
	}
	return got, got.Returned > 0, nil
}

// countPending takes the units off the closed counter of an item, and counts what its
// orders have that are not in the ledger. What is written meanwhile is counted as well.
// held is what the allocation had before: where that is not more, all of it was pending
// at that time. Not ok: there is no closed counter.
func (s *Stock) countPending(ctx context.Context, goodsID int64) (pending, held, epoch int64, ok bool, err error) {
	pending, epoch, ok, err = s.drain(ctx, goodsID)
	if err != nil || !ok || pending == 0 {
		return pending, 0, epoch, ok, err
	}
	place, err := s.store.Allocation(ctx, goodsID, Allocation)
	if err != nil {
		return 0, 0, 0, false, err
	}
	// Some may be written, and never be settled by their consumer.
	if err := s.settleWritten(ctx, goodsID); err != nil {
		return 0, 0, 0, false, err
	}
	pending, epoch, ok, err = s.drain(ctx, goodsID)
	return pending, place.Units, epoch, ok, err
}

// drain takes the units off the closed counter of an item. pending is what its orders
// have that are accepted and not settled, which only falls in that epoch. Not ok: there
// is no closed counter.
func (s *Stock) drain(ctx context.Context, goodsID int64) (pending, epoch int64, ok bool, err error) {
	const doing = "take the units off a closed counter"
	p := s.part(goodsID)
	answer, err := s.ask(ctx, "drain", []string{p.counter(goodsID), p.orders()})
	if err != nil || answer == absent {
		return 0, 0, false, failed(doing, err)
	}
	row, isList := answer.([]any)
	if !isList || len(row) != 2 {
		return 0, 0, false, failed(doing, fmt.Errorf("script answered %v", answer))
	}
	_, err = fmt.Sscan(fmt.Sprint(row[0], " ", row[1]), &pending, &epoch)
	return pending, epoch, err == nil, failed(doing, err)
}
