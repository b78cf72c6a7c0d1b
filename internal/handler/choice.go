package handler

import (
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// mostStrategy is the longest name of a strategy, in characters.
const mostStrategy = 64

// errChoiceRefused rejects a purchase that asks for what its item does not have.
var errChoiceRefused = errors.New("requests may not choose")

// seller serves a purchase.
type seller struct {
	*service.Seller

	own bool // in the mode that purchases have that ask for none
}

// asked is the service where the purchase asked for it, else nil.
func (s seller) asked() *service.Seller {
	if s.own {
		return nil
	}
	return s.Seller
}

// seller finds what serves a purchase of so many units: as it asks, as its item has it,
// or by default. The item's maximum is checked before anything is locked or counted, and
// after the ledger was searched for the purchase: what was sold before the maximum was
// lowered is still replayed.
func (s sale) seller(goodsID, quantity int64, asked stock.Choice) (seller, error) {
	if most := s.options.Catalogue.MaxQuantity(goodsID); quantity > most {
		return seller{}, invalid(fieldError{"quantity", fmt.Sprintf("must be a whole number from 1 to %d, not %d", most, quantity)})
	}
	mode, own := s.options.Catalogue.Mode(goodsID, asked)
	if !s.options.Choose && mode != own {
		return seller{}, fmt.Errorf("%w: item %d is sold by %s, and deduct.choose is off; PATCH /goods/%d of the admin API changes it",
			errChoiceRefused, goodsID, own, goodsID)
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
	why := "is not known"
	if errors.Is(err, service.ErrStrategyRefused) {
		why = "is refused here"
	}
	p.Errors = []fieldError{{"strategy", fmt.Sprintf("%q %s; allowed are those of GET /strategies that are available", mode.Strategy, why)}}
	return seller{}, p
}

func notFenceable(strategy string) fieldError {
	return fieldError{"fence", "cannot be true: " + strategy + " has no lock whose token the store could check; " +
		"GET /strategies tells which are fenceable"}
}

// choice reads what a request changes of the choice of an item: a field that is not
// there stays as it is, and one that is null, or an empty strategy, is cleared.
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

// flagOrNull is flagIfGiven for a field that null clears.
func (f *form) flagOrNull(name string) *bool {
	if f.values[name].kind == jsonNull {
		return nil
	}
	return f.flagIfGiven(name)
}

// wrongChoice names the field of a choice that cannot be.
func (g goods) wrongChoice(err error) error {
	switch {
	case errors.Is(err, service.ErrUnknownStrategy):
		return invalid(fieldError{"strategy", "must be one of " + fmt.Sprint(g.options.Catalogue.Names()) + ": " + err.Error()})
	case errors.Is(err, service.ErrNotFenceable):
		return invalid(fieldError{"fence", "cannot be true: " + err.Error()})
	case errors.Is(err, service.ErrStrategyRefused):
		p := problemOf(err)
		p.Strategies = g.options.Catalogue.Names()
		return p
	default:
		return err
	}
}
