package redisstock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// sellOrVerify asks the script until there is a counter, and until what it rejects fits
// neither into the counter nor into the row. Asking again is safe: the script knows the
// orders that it has accepted.
func (s *Stock) sellOrVerify(ctx context.Context, goodsID int64, batch []stock.Purchase, orders []string, at int64) ([]verdict, error) {
	var answers []verdict // of the last time that there was a counter
	mark := s.soldOut.mark()
	for {
		latest, installed, err := s.sell(ctx, goodsID, batch, orders, at)
		again := true
		switch {
		case err != nil:
		case installed:
			answers = stillSold(answers, latest)
			again, err = s.verify(ctx, goodsID, batch, answers, mark)
		default:
			err = s.counterAbove(ctx, wanted{goodsID: goodsID}, 0)
		}
		if err != nil {
			return unlessSold(answers, err)
		}
		if !again {
			return answers, nil
		}
	}
}

// stillSold are the latest answers, where what was sold before is sold, also to a Redis that has lost it since.
func stillSold(before, latest []verdict) []verdict {
	for i, v := range before {
		if v.isSold() {
			latest[i] = v
		}
	}
	return latest
}

// unlessSold is the error for the whole batch, or where something of it is sold, for the
// purchases that do not fit alone. Where the last answer was lost it may have sold any other.
func unlessSold(answers []verdict, err error) ([]verdict, error) {
	if !slices.ContainsFunc(answers, verdict.isSold) {
		return nil, err
	}
	lost := errors.Is(err, stock.ErrUnknownOutcome)
	for i, v := range answers {
		if v.answer == answerShort || lost && !v.isSold() {
			answers[i] = verdict{answer: answerShort, cause: err}
		}
	}
	return answers, nil
}

// verify looks into the database on behalf of the purchases that do not fit into the
// counter: once a rejection, and not while the item is known to be sold out. Where one of
// them fits with the units of the row, or another epoch has begun, it waits for a counter that
// the batch is to be offered to again. So it does now and then for buyers at their limit: what they
// gave back may be on its way to the counter, or its replica died. Otherwise those that would fit with the units of
// other allocations get stock.ErrAllocated as their cause.
func (s *Stock) verify(ctx context.Context, goodsID int64, batch []stock.Purchase, answers []verdict, mark int64) (again bool, err error) {
	no, err := rejectedOf(batch, answers)
	if err != nil {
		return false, s.fault(err)
	}
	if len(no.limited) > 0 && !s.doubtsLimit(goodsID) {
		no.limited = nil
	}
	if len(no.limited) == 0 && (!no.short || no.left == 0 && s.soldOut.verified(goodsID)) {
		return false, nil
	}
	return s.verifyBeside(ctx, goodsID, batch, answers, no, mark)
}

// verifyBeside is verify for what a counter has rejected.
func (s *Stock) verifyBeside(
	ctx context.Context, goodsID int64, batch []stock.Purchase, answers []verdict, no rejected, mark int64,
) (again bool, err error) {
	goods, place, err := s.reach(ctx, goodsID, no.epoch)
	if err != nil {
		return false, fmt.Errorf("see what is left beside redis: %w", err)
	}
	switch {
	case isHome(place):
		no.left = 0 // whatever a counter of an earlier epoch has
	case place.Epoch != no.epoch:
		return true, s.counterAbove(ctx, wanted{goodsID: goodsID}, no.epoch)
	}
	inRow := no.left + max(0, goods.Stock)
	if !place.Closed {
		inRow += max(0, place.Added-no.added) // a replica died before the counter had it
	}
	fits := anyFits(batch, answers, goods, inRow, no.left)
	switch {
	case fits && place.Closed:
		return true, s.counterAbove(ctx, wanted{goodsID: goodsID, open: true}, no.epoch)
	case fits, len(no.limited) > 0:
		if again, err = s.added(ctx, goodsID, no.limited...); again || fits || err != nil {
			return again || fits, err
		}
	}
	if no.short && inRow+goods.Allocated == 0 && goods.Withheld == nil {
		s.soldOut.learn(goodsID, mark)
	}
	return false, nil
}

// anyFits reports whether the units of the row, together with those of the counter, are enough for a purchase
// that the counter alone has rejected. One that needs units of other allocations gets that as its cause.
func anyFits(batch []stock.Purchase, answers []verdict, goods stock.Goods, inRow, inCounter int64) (fits bool) {
	for i, v := range answers {
		switch {
		case v.answer != answerShort:
		case goods.Withheld != nil:
			answers[i].cause = goods.OffSale()
		case inRow > inCounter && batch[i].Quantity <= inRow:
			fits = true
		case goods.Allocated > 0 && batch[i].Quantity <= inRow+goods.Allocated:
			answers[i].cause = &stock.AllocatedError{Units: goods.Allocated, Version: goods.Version}
		}
	}
	return fits
}

// doubtsLimit reports, now and then, that a limit is to be held against the database.
func (s *Stock) doubtsLimit(goodsID int64) bool {
	if s.limited.isRecent(goodsID, limitDoubted) {
		return false
	}
	s.limited.Store(goodsID, time.Now())
	return true
}

// reach reads what an item has beside its counter of an epoch. Units of a recall that did
// not end are returned to the row before.
func (s *Stock) reach(ctx context.Context, goodsID, epoch int64) (stock.Goods, repo.Allocation, error) {
	goods, place, err := s.store.Reach(ctx, goodsID, Allocation)
	if err != nil || !place.Closed || place.Units == 0 || place.Epoch != epoch {
		return goods, place, err
	}
	if _, _, err := s.returnUnits(ctx, goodsID); err != nil {
		return goods, place, notUnknown(err)
	}
	return s.store.Reach(ctx, goodsID, Allocation)
}

// rejected is what a counter of an epoch says of purchases that it rejects.
type rejected struct {
	left, epoch, added int64
	short              bool     // some do not fit
	limited            []string // buyers at the limit
}

// rejectedOf sums the rejections of a batch up; what is left is that after the last purchase.
func rejectedOf(batch []stock.Purchase, answers []verdict) (no rejected, err error) {
	for i, v := range answers {
		switch v.answer {
		case answerShort:
			no.short = true
			_, err = fmt.Sscan(v.text, &no.left, &no.epoch, &no.added)
		case answerLimited:
			no.limited = append(no.limited, batch[i].UserID)
			var most, has int64
			_, err = fmt.Sscan(v.text, &most, &has, &no.epoch)
		}
		if err != nil {
			return no, fmt.Errorf("script answered %q to a purchase that it rejects: %w", v.text, err)
		}
	}
	no.left = max(0, no.left)
	return no, nil
}
