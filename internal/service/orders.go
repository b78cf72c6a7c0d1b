package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// Within bounds a purchase, from the search for its key to its answer.
func (c *Catalogue) Within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.timeout)
}

// Replay answers a key with the order that the ledger has under it. An outcome that is
// not Replayed means that there is none; a purchase without a key has none. One search
// serves all callers that wait for one. stock.ErrKeyReused: the order is another.
func (c *Catalogue) Replay(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	if !p.Keyed {
		return stock.Outcome{}, nil
	}
	begun := time.Now()
	outcome, err := replay(ctx, c.ledger, goodsID, p)
	c.observe(outcome, begun)
	return outcome, err
}

// ReplayPending is Replay for orders that are accepted and not in the ledger yet, for a
// purchase that would be rejected otherwise. It waits for the ledger where the purchase
// wants that. stock.ErrUnknownOutcome: the server that has such orders does not answer.
func (c *Catalogue) ReplayPending(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	if !p.Keyed || c.outbox == nil {
		return stock.Outcome{}, nil
	}
	begun := time.Now()
	pending, err := c.findPending(ctx, stock.StoredIDs(p.RequestID))
	if err != nil {
		return stock.Outcome{}, fmt.Errorf("%w: %w", stock.ErrUnknownOutcome, err)
	}
	first, ok, err := p.First(goodsID, pending)
	if err != nil || !ok {
		return stock.Outcome{}, err
	}
	outcome := stock.Outcome{Order: first, Replayed: true, Durable: stock.InRedis}
	if p.Durable == stock.InSQL {
		outcome, err = written(ctx, c.outbox, outcome)
	}
	c.observe(outcome, begun)
	return outcome, err
}

// findPending finds pending orders by their request ids.
func (c *Catalogue) findPending(ctx context.Context, requestIDs []string) (map[string]stock.Order, error) {
	orders := make(map[string]stock.Order, len(requestIDs))
	for _, id := range requestIDs {
		order, ok, err := c.outbox.FindRequest(ctx, id)
		if err != nil {
			return nil, err
		}
		if ok {
			orders[id] = order
		}
	}
	return orders, nil
}

// ReplayElsewhere is ReplayPending for a purchase that a seller is about to sell, where
// another strategy may have it pending: the item has units in Redis, or had a moment ago.
// Where Redis does not answer, the purchase is sold: what is pending there is then
// dead-lettered, so that the ledger has one order under a key.
func (c *Catalogue) ReplayElsewhere(ctx context.Context, s *Seller, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	if s.ownsOutbox() || !c.switches.hasUnitsInRedis(goodsID) {
		return stock.Outcome{}, nil
	}
	outcome, err := c.ReplayPending(ctx, goodsID, p)
	if _, down := errors.AsType[*stock.BackendError](err); down && ctx.Err() == nil {
		return stock.Outcome{}, nil
	}
	return outcome, err
}

// observe counts a replayed order as one of the strategy that sold it.
func (c *Catalogue) observe(outcome stock.Outcome, begun time.Time) {
	if o, ok := c.byName[outcome.Order.Strategy]; ok && outcome.Replayed {
		o.observer.Deducted(outcome, nil, time.Since(begun))
	}
}

// replay searches the ledger for the first answer to a key.
func replay(ctx context.Context, ledger strategy.Ledger, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
	orders, err := ledger.Orders(ctx, stock.StoredIDs(p.RequestID)...)
	if err != nil {
		return stock.Outcome{}, err
	}
	first, ok, err := p.First(goodsID, orders)
	return stock.Outcome{Order: first, Replayed: ok}, err
}

// AcceptedOrder is an order, and where it is stored.
type AcceptedOrder struct {
	stock.Order

	Durable stock.Durability
}

// Order finds an order by its number. stock.ErrUnknownOrder: there is none.
// stock.ErrBackendUnavailable: it is unknown whether there is one.
func (c *Catalogue) Order(ctx context.Context, number string) (AcceptedOrder, error) {
	return c.find(ctx,
		func() (stock.Order, bool, error) { return c.store.Order(ctx, number) },
		func() (stock.Order, bool, error) { return c.outbox.FindOrder(ctx, number) })
}

// OrderOf finds the order of a buyer's key, as Order does. The buyer may be empty.
func (c *Catalogue) OrderOf(ctx context.Context, key, buyer string) (AcceptedOrder, error) {
	own := func(orders map[string]stock.Order) (stock.Order, bool) {
		for _, id := range stock.StoredIDs(stock.BuyerKey(key, buyer)) {
			if order, ok := orders[id]; ok && order.Kind == stock.Deduction && order.UserID == buyer {
				return order, true
			}
		}
		return stock.Order{}, false
	}
	ids := stock.StoredIDs(stock.BuyerKey(key, buyer))
	return c.find(ctx,
		func() (stock.Order, bool, error) {
			orders, err := c.ledger.Orders(ctx, ids...)
			order, ok := own(orders)
			return order, ok, err
		},
		func() (stock.Order, bool, error) {
			orders, err := c.findPending(ctx, ids)
			order, ok := own(orders)
			return order, ok, err
		})
}

// ErrSeveralBuyers reports that a key alone is ambiguous.
var ErrSeveralBuyers = errors.New("several buyers have orders under this key")

// OrderOfAny finds the order of a key, of a purchase without a buyer before others, and
// else that of its only buyer: a pending one only without a buyer. ErrSeveralBuyers: there
// are orders of more than one.
func (c *Catalogue) OrderOfAny(ctx context.Context, key string) (AcceptedOrder, error) {
	return c.find(ctx,
		func() (stock.Order, bool, error) {
			orders, err := c.store.OrdersOfKey(ctx, key, 2)
			if err != nil || len(orders) == 0 {
				return stock.Order{}, false, err
			}
			if len(orders) > 1 && orders[0].RequestID != key {
				return stock.Order{}, false, ErrSeveralBuyers
			}
			return orders[0], true, nil
		},
		func() (stock.Order, bool, error) { return c.outbox.FindRequest(ctx, key) })
}

// find looks into the ledger, at what is pending, and into the ledger again: an order
// may get there between the first two looks.
func (c *Catalogue) find(ctx context.Context, ledger, pending func() (stock.Order, bool, error)) (AcceptedOrder, error) {
	order, ok, err := ledger()
	if err != nil || ok {
		return AcceptedOrder{order, stock.InSQL}, err
	}
	if c.outbox != nil {
		if order, ok, err = pending(); err != nil || ok {
			return AcceptedOrder{order, stock.InRedis}, err
		}
		if order, ok, err = ledger(); err != nil || ok {
			return AcceptedOrder{order, stock.InSQL}, err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return AcceptedOrder{}, fmt.Errorf("find an order: %w", err)
	}
	return AcceptedOrder{}, stock.ErrUnknownOrder
}

// Orders lists orders of the ledger: see repo.Store.OrdersAfter.
func (i *Inventory) Orders(ctx context.Context, goodsID, after int64, limit int) (orders []stock.Order, next int64, err error) {
	return i.store.OrdersAfter(ctx, goodsID, after, limit)
}
