package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/stock"
)

// NewKey is a key for what a client gives none.
func NewKey() string { return uuid.Must(uuid.NewV7()).String() }

// NewKey is a key for a purchase of a buyer, which may be empty, whose client gives none. Vitess notes it on the shard of the item,
// so that the purchase needs no other one.
func (c *Catalogue) NewKey(goodsID int64, buyer string) (key string) {
	for {
		key = NewKey()
		if c.store.ShardOf(stock.BuyerKey(key, buyer)) == c.store.ShardOfItem(goodsID) {
			return key
		}
	}
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
		func() (stock.Order, bool, error) { return c.redis.FindOrder(ctx, number) })
}

// OrderOf finds the order of a buyer's key, as Order does. The buyer may be empty.
func (c *Catalogue) OrderOf(ctx context.Context, key, buyer string) (AcceptedOrder, error) {
	return c.find(ctx,
		func() (stock.Order, bool, error) { return c.orderUnder(ctx, key, buyer) },
		func() (stock.Order, bool, error) { return c.redis.FindRequest(ctx, stock.BuyerKey(key, buyer)) })
}

// orderUnder finds the order of a buyer's key in the ledger. A reservation is one once it is confirmed, and a basket,
// whose first line has its key, is none: see Reservations.BasketOf.
func (c *Catalogue) orderUnder(ctx context.Context, key, buyer string) (stock.Order, bool, error) {
	id := stock.BuyerKey(key, buyer)
	orders, err := c.requests.Get(ctx, id)
	order, ok := orders[id]
	if order.Kind != stock.Hold {
		return order, ok, err
	}
	if stock.IsLineNumber(order.ID) {
		return stock.Order{}, false, err
	}
	final := stock.FinalKey.Of(order.ID)
	orders, err = c.requests.Get(ctx, final)
	order = orders[final]
	return order, order.Kind == stock.Confirmation, err
}

// ErrSeveralBuyers reports that a key alone is ambiguous.
var ErrSeveralBuyers = errors.New("several buyers have orders under this key")

// OrderOfAny finds the order of a key, of a purchase without a buyer before others, and
// else that of its only buyer: a pending one and a reservation only without a buyer. ErrSeveralBuyers: there
// are orders of more than one.
func (c *Catalogue) OrderOfAny(ctx context.Context, key string) (AcceptedOrder, error) {
	return c.find(ctx,
		func() (stock.Order, bool, error) {
			orders, err := c.store.OrdersOfKey(ctx, key, 2)
			if err != nil {
				return stock.Order{}, false, err
			}
			if len(orders) == 0 {
				return c.orderUnder(ctx, key, "") // a reservation
			}
			if len(orders) > 1 && orders[0].RequestID != key {
				return stock.Order{}, false, ErrSeveralBuyers
			}
			return orders[0], true, nil
		},
		func() (stock.Order, bool, error) { return c.redis.FindRequest(ctx, key) })
}

// find looks into the ledger, at what is pending, and into the ledger again: an order
// may get there between the first two looks.
func (c *Catalogue) find(ctx context.Context, ledger, pending func() (stock.Order, bool, error)) (AcceptedOrder, error) {
	order, ok, err := ledger()
	if err != nil || ok {
		return AcceptedOrder{order, stock.InSQL}, err
	}
	if c.redis != nil {
		if order, ok, err = pending(); err != nil || ok && order.Sells() {
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
