package hot

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// counterWanted is a counter to offer purchases to: one above an epoch.
type counterWanted struct {
	wanted
	above int64
}

// sellOrVerify asks the script until there is a counter, and until what it rejects fits
// neither into the counter nor into the row. Asking again is safe: the script knows the
// orders that it has accepted.
func (s *Stock) sellOrVerify(ctx context.Context, goodsID int64, batch []stock.Purchase, orders []string, at int64) ([]verdict, error) {
	var answers []verdict // of the last time that there was a counter
	mark := s.soldOut.mark()
	for {
		latest, installed, err := s.sell(ctx, goodsID, batch, orders, at)
		if err != nil {
			return unlessSold(answers, err)
		}
		next := &counterWanted{wanted: wanted{goodsID: goodsID}}
		if installed {
			answers = stillSold(answers, latest)
			next, err = s.verify(ctx, goodsID, batch, answers, mark)
		}
		if err == nil && next == nil {
			return answers, nil
		}
		if err == nil {
			err = s.counterAbove(ctx, next.wanted, next.above)
		}
		if err != nil {
			return unlessSold(answers, err)
		}
	}
}

// stillSold are the latest answers, where what was sold before, and Redis knows now, is sold to this
// very purchase and to no copy of it.
func stillSold(before, latest []verdict) []verdict {
	for i, v := range before {
		if v.answer == answerSold && latest[i].answer == answerKnown {
			latest[i] = v
		}
	}
	return latest
}

// unlessSold is the error for the whole batch, or where something of it is sold, for the
// purchases that do not fit alone. Where the last answer was lost it may have sold any other.
func unlessSold(answers []verdict, err error) ([]verdict, error) {
	isSold := func(v verdict) bool {
		return v.answer == answerSold || v.answer == answerKnown || v.answer == answerEarlier
	}
	if !slices.ContainsFunc(answers, isSold) {
		return nil, err
	}
	lost := errors.Is(err, stock.ErrUnknownOutcome)
	for i, v := range answers {
		if v.answer == answerShort || lost && !isSold(v) {
			answers[i] = verdict{answer: answerShort, cause: err}
		}
	}
	return answers, nil
}

// verify looks into the database on behalf of the purchases that do not fit into the
// counter: once a rejection, and not while the item is known to be sold out. Where one of
// them fits with the units of the row, or another epoch has begun, it returns the counter
// that the batch is to be offered to next. Otherwise those that would fit with the units of
// other allocations get stock.ErrAllocated as their cause.
func (s *Stock) verify(ctx context.Context, goodsID int64, batch []stock.Purchase, answers []verdict, mark int64) (*counterWanted, error) {
	left, epoch, short, err := shortOf(answers)
	if err != nil || !short || left == 0 && s.soldOut.verified(goodsID) {
		return nil, s.fault(err)
	}
	goods, place, err := s.reach(ctx, goodsID, epoch)
	if err != nil {
		return nil, fmt.Errorf("see what is left beside redis: %w", err)
	}
	switch {
	case isHome(place):
		left = 0 // whatever a counter of an earlier epoch has
	case place.Epoch != epoch:
		return &counterWanted{wanted{goodsID: goodsID}, epoch}, nil
	}
	inRow := left + max(0, goods.Stock)
	for i, v := range answers {
		switch {
		case v.answer != answerShort:
		case goods.Stock > 0 && batch[i].Quantity <= inRow:
			return &counterWanted{wanted{goodsID: goodsID, open: true}, epoch}, nil
		case goods.Allocated > 0 && batch[i].Quantity <= inRow+goods.Allocated:
			answers[i].cause = &stock.AllocatedError{Units: goods.Allocated, Version: goods.Version}
		}
	}
	if inRow+goods.Allocated == 0 {
		s.soldOut.learn(goodsID, mark)
	}
	return nil, nil //nolint:nilnil // there is nothing to offer it to
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

// shortOf is what is left according to the last purchase that does not fit, and the epoch.
// Not short: all fit.
func shortOf(answers []verdict) (left, epoch int64, short bool, err error) {
	for _, v := range answers {
		if v.answer != answerShort {
			continue
		}
		short = true
		if _, err := fmt.Sscan(v.text, &left, &epoch); err != nil {
			return 0, 0, false, fmt.Errorf("script answered %q to a purchase that does not fit: %w", v.text, err)
		}
	}
	return max(0, left), epoch, short, nil
}
