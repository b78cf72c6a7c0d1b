package handler

import (
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// mostStrategy is the longest name of a strategy, in characters.
const mostStrategy = 64

// errChoiceRejected rejects a purchase that asks for a mode other than its item's.
var errChoiceRejected = errors.New("requests may not choose")

// seller serves a purchase.
type seller struct {
	*service.Seller

	own bool // in the item's own mode
}

// asked is the service if the purchase asked for another mode than its item's, else nil.
func (s seller) asked() *service.Seller {
	if s.own {
		return nil
	}
	return s.Seller
}

// seller finds the service of a purchase: the one it asks for, its item's, or the default. The
// item's maximum is checked before anything is locked or counted, and after the ledger was
// searched for the purchase, so that sales from before the maximum was lowered are replayed.
func (s sale) seller(goodsID, quantity int64, asked stock.Choice) (seller, error) {
	if most := s.options.Catalogue.MaxQuantity(goodsID); quantity > most {
		return seller{}, invalid(fieldError{"quantity", fmt.Sprintf("must be a whole number from 1 to %d, not %d", most, quantity)})
	}
	mode, own := s.options.Catalogue.Mode(goodsID, asked)
	if !s.options.Choose && mode != own {
		return seller{}, fmt.Errorf("%w: item %d is sold by %s, and deduct.choose is off; PATCH /goods/%d of the admin API changes it",
			errChoiceRejected, goodsID, own, goodsID)
	}
	found, err := s.options.Catalogue.In(mode)
	if err == nil {
		return seller{found, mode == own}, nil
	}
	if errors.Is(err, service.ErrNotFenceable) {
		return seller{}, invalid(notFenceable(mode.Strategy))
	}
	p := problemOf(err)
	p.Strategies = s.options.Catalogue.Names()
	why := "is unknown"
	if errors.Is(err, service.ErrStrategyRejected) {
		why = "is not available here"
	}
	p.Errors = []fieldError{{"strategy", fmt.Sprintf("%q %s; allowed are those of GET /strategies that are available", mode.Strategy, why)}}
	return seller{}, p
}

func notFenceable(strategy string) fieldError {
	return fieldError{"fence", "cannot be true: " + strategy + " has no lock whose token the store could check; " +
		"GET /strategies tells which are fenceable"}
}

// choice reads a change to the choice of an item: a missing field keeps its value; null, or an
// empty strategy, clears it.
func (f *form) choice() func(stock.Choice) stock.Choice {
	var to stock.Choice
	if f.values["strategy"].text != "" {
		to.Strategy = f.text("strategy", mostStrategy)
	}
	to.Group, to.Fence = f.flagOrNull("group"), f.flagOrNull("fence")
	if f.given("max_quantity") && f.values["max_quantity"].kind != jsonNull {
		to.MaxQuantity = new(f.whole("max_quantity", 1, stock.MaxQuantity))
	}
	return func(c stock.Choice) stock.Choice {
		if f.given("strategy") {
			c.Strategy = to.Strategy
		}
		if f.given("group") {
			c.Group = to.Group
		}
		if f.given("fence") {
			c.Fence = to.Fence
		}
		if f.given("max_quantity") {
			c.MaxQuantity = to.MaxQuantity
		}
		return c
	}
}

// flagOrNull is flagIfGiven, where null is nil as well.
func (f *form) flagOrNull(name string) *bool {
	if f.values[name].kind == jsonNull {
		return nil
	}
	return f.flagIfGiven(name)
}

// wrongChoice names the field of an invalid choice.
func (g goods) wrongChoice(err error) error {
	switch {
	case errors.Is(err, service.ErrUnknownStrategy):
		return invalid(fieldError{"strategy", "must be one of " + fmt.Sprint(g.options.Catalogue.Names()) + ": " + err.Error()})
	case errors.Is(err, service.ErrNotFenceable):
		return invalid(fieldError{"fence", "cannot be true: " + err.Error()})
	case errors.Is(err, service.ErrStrategyRejected):
		p := problemOf(err)
		p.Strategies = g.options.Catalogue.Names()
		return p
	default:
		return err
	}
}
