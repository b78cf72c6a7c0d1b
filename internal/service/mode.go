package service

import (
	"cmp"
	"fmt"

	"github.com/stockd/stockd/internal/stock"
)

// Mode is how a purchase is served: a strategy and its modifiers.
type Mode struct {
	Strategy     string
	Group, Fence bool
}

// String is the mode as the fields of a request.
func (m Mode) String() string {
	return fmt.Sprintf("strategy=%s, group=%t, fence=%t", m.Strategy, m.Group, m.Fence)
}

// SetDefault sets the mode of purchases of which neither the request nor the item says
// more. It is called before anything is sold. ErrUnknownStrategy, ErrStrategyRejected,
// ErrNotFenceable: nothing could be sold in this mode.
func (c *Catalogue) SetDefault(m Mode) error {
	c.standard = m
	_, err := c.In(m)
	return err
}

// SetMaxQuantity sets the most units of one purchase of which the item says nothing, 1 to
// stock.MaxQuantity. It is called before anything is sold.
func (c *Catalogue) SetMaxQuantity(units int64) { c.maxQuantity = units }

// MaxQuantity is the most units of one purchase of an item. The item's own maximum holds,
// also where it is above that of the configuration.
func (c *Catalogue) MaxQuantity(goodsID int64) int64 {
	return *cmp.Or(c.Choice(goodsID).MaxQuantity, &c.maxQuantity)
}

// Default is what SetDefault has set.
func (c *Catalogue) Default() Mode { return c.standard }

// Choice is what is chosen for an item, as far as this replica knows: within about a
// second it has what was changed through another one.
func (c *Catalogue) Choice(goodsID int64) stock.Choice { return c.switches.choice(goodsID) }

// Mode is how a purchase of an item is served that asks for a choice, and own how one is
// that asks for nothing. Both are of one moment.
func (c *Catalogue) Mode(goodsID int64, asked stock.Choice) (mode, own Mode) {
	choice := c.Choice(goodsID)
	return c.mode(asked, choice), c.mode(stock.Choice{}, choice)
}

// mode takes what is asked for, else what is chosen, else the default. A fence that is
// not asked for is meant for the strategies that can have one.
func (c *Catalogue) mode(asked, chosen stock.Choice) Mode {
	standard := c.standard
	m := Mode{
		Strategy: cmp.Or(asked.Strategy, chosen.Strategy, standard.Strategy),
		Group:    *cmp.Or(asked.Group, chosen.Group, &standard.Group),
		Fence:    *cmp.Or(asked.Fence, chosen.Fence, &standard.Fence),
	}
	if o, ok := c.byName[m.Strategy]; ok && asked.Fence == nil {
		m.Fence = m.Fence && o.fenceable()
	}
	return m
}

// In finds what serves purchases in a mode. ErrUnknownStrategy, ErrStrategyRejected and
// ErrNotFenceable: why nothing does.
func (c *Catalogue) In(m Mode) (*Seller, error) {
	o, ok := c.byName[m.Strategy]
	if !ok {
		return nil, fmt.Errorf("%w: %q", ErrUnknownStrategy, m.Strategy)
	}
	if why := c.rejection(o, m.Fence); why != "" {
		return nil, fmt.Errorf("%w: %s, because %s", ErrStrategyRejected, m.Strategy, why)
	}
	if o.unconfigured != nil {
		return nil, o.unconfigured
	}
	seller, ok := o.sellers[m]
	if !ok {
		return nil, fmt.Errorf("%w: %s has no lock whose token the store could check", ErrNotFenceable, m.Strategy)
	}
	return seller, nil
}

// rejection is why the admin does not want a strategy used: by the configuration of this
// replica, or by a switch. It is empty where the strategy is not rejected.
func (c *Catalogue) rejection(o *offer, fenced bool) string {
	if o.rejected != "" {
		return o.rejected
	}
	if !fenced && o.rejectedUnfenced != "" {
		return o.rejectedUnfenced
	}
	if reason, off := c.switches.reason(o.entry.Name); off {
		return "it is switched off: " + reason
	}
	return ""
}

// Names lists the strategies that the admin lets requests name without a fence of their
// own, in the registry's order, also those whose backend is not configured.
func (c *Catalogue) Names() []string {
	names := make([]string, 0, len(c.offers))
	for _, o := range c.offers {
		if c.rejection(o, c.mode(stock.Choice{Strategy: o.entry.Name}, stock.Choice{}).Fence) == "" {
			names = append(names, o.entry.Name)
		}
	}
	return names
}

// check reports whether purchases could be served as a choice says.
func (c *Catalogue) check(choice stock.Choice) error {
	_, err := c.In(c.mode(choice, stock.Choice{}))
	return err
}

// Unserved counts the items that this replica cannot sell as they are chosen to be sold,
// by the reason.
func (c *Catalogue) Unserved() map[string]int {
	items := make(map[string]int)
	if known := c.switches.choices.Load(); known != nil {
		for _, choice := range *known {
			if err := c.check(choice); err != nil {
				items[err.Error()]++
			}
		}
	}
	return items
}

// ItemsThrough is how many items have chosen a strategy.
func (c *Catalogue) ItemsThrough(strategy string) (items int) {
	if known := c.switches.choices.Load(); known != nil {
		for _, choice := range *known {
			if choice.Strategy == strategy {
				items++
			}
		}
	}
	return items
}
