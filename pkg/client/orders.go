package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Order is an accepted purchase, or a step of one: see Pages.Steps.
type Order struct {
	// Kind is one of the steps below, only where steps are listed.
	Kind      string `json:"kind"`
	OrderID   string `json:"order_id"`
	GoodsID   int64  `json:"goods_id"`
	Quantity  int64  `json:"quantity"`
	RequestID string `json:"request_id"`
	// UserID is the buyer, if known; it is empty on the public API.
	UserID string `json:"user_id"`
	// Remaining is what was left, as the writer of the order saw it.
	Remaining int64  `json:"remaining"`
	Strategy  string `json:"strategy"`
	// Replica is the one that sold.
	Replica string `json:"replica"`
	// Token is the fencing token of the lock, or 0.
	Token uint64 `json:"token"`
	// Durable is InRedis or InSQL.
	Durable string `json:"durable"`
	// CreatedAt is when it was accepted, by the clock of the replica.
	CreatedAt time.Time `json:"created_at"`
}

func (o *Order) id() string { return o.OrderID }

// The steps of orders and reservations. OrderID is the number of the reservation, which its order
// keeps. Deducted is a purchase without a reservation.
const (
	StepDeducted  = "deduct"
	StepHeld      = "hold"
	StepConfirmed = "confirm"
	StepReleased  = "release"
	StepExpired   = "expire"
	StepReturned  = "return"
)

// Order finds an order by its number, on the admin API. It never buys. It may
// return ErrUnknownOrder. ErrUnavailable: it is unknown whether the order exists.
func (c Client) Order(ctx context.Context, id string) (order Order, err error) {
	err = c.do(ctx, call{method: http.MethodGet, url: c.AdminURL + "/orders/" + url.PathEscape(id), token: c.Token, into: &order})
	return order, err
}

// OrderByRequest finds an order by the RequestID of its purchase, without a UserID, or with the
// buyer of BuyerToken or of a gateway: see OrderOf.
func (c Client) OrderByRequest(ctx context.Context, requestID string) (Order, error) {
	return c.OrderOf(ctx, Purchase{RequestID: requestID})
}

// OrderOf finds the order of a purchase by its RequestID and its UserID. It never buys. Of a basket
// it has OrderID and CreatedAt alone.
// ErrUnknownOrder: there is none, but a recent purchase may still be accepted until its time limit.
// ErrUnavailable: it is unknown whether the order exists.
func (c Client) OrderOf(ctx context.Context, p Purchase) (order Order, err error) {
	query := url.Values{"request_id": {p.RequestID}}
	if p.UserID != "" {
		query.Set("user_id", p.UserID)
	}
	err = c.do(ctx, call{method: http.MethodGet, url: c.URL + "/orders?" + query.Encode(), token: c.BuyerToken, more: c.Header, into: &order})
	return order, err
}

// Pages selects the orders of Orders.
type Pages struct {
	// GoodsID is the item; 0 is all.
	GoodsID int64
	// Steps lists every step of reservations and every return, too. Without it there are
	// orders alone: purchases, and reservations when they are confirmed.
	Steps bool
	// Reader is a name under which the replicas' metrics say how far this reader is behind, or
	// empty. At most 64 bytes.
	Reader string
	// Cursor is the Cursor of an order that was listed earlier, or empty for the beginning.
	Cursor string
	// Limit is the size of a page, 1 to 1,000; 0 is 100.
	Limit int
	// Follow is the pause before polling for new orders; 0 ends after the last order.
	Follow time.Duration
}

// ListedOrder is an order of a page.
type ListedOrder struct {
	Order

	// Cursor continues after this order if it is the last of its page; otherwise it lists the
	// orders of the page again. Store it once the order is processed.
	Cursor string `json:"cursor"`
}

// Orders lists the orders of the ledger, on the admin API, in its order. Each is listed
// once by a loop, and at least once by loops that continue at a stored Cursor. It ends with
// the last order, or where Pages follows, with ctx; an error is the last that it yields.
func (c Client) Orders(ctx context.Context, p Pages) iter.Seq2[ListedOrder, error] {
	return func(yield func(ListedOrder, error) bool) {
		for {
			after := cmp.Or(p.Cursor, "0")
			page, err := c.page(ctx, p)
			if err != nil {
				yield(ListedOrder{}, err)
				return
			}
			for i, order := range page.Orders {
				if i == len(page.Orders)-1 {
					p.Cursor = page.Next
				}
				if !yield(ListedOrder{order, p.Cursor}, nil) {
					return
				}
			}
			// A page is bounded by rows as well: an empty one may be followed by another.
			moved := page.Next != after
			if p.Cursor = page.Next; moved {
				continue
			}
			if p.Follow <= 0 {
				return
			}
			select {
			case <-time.After(p.Follow):
			case <-ctx.Done():
				yield(ListedOrder{}, fmt.Errorf("stockd: follow orders: %w", context.Cause(ctx)))
				return
			}
		}
	}
}

type ordersPage struct {
	Orders []Order `json:"orders"`
	Next   string  `json:"next"`
}

// id is the cursor after the page, which each has.
func (p *ordersPage) id() string { return p.Next }

func (c Client) page(ctx context.Context, p Pages) (page ordersPage, err error) {
	query := make(url.Values)
	if p.GoodsID != 0 {
		query.Set("goods_id", strconv.FormatInt(p.GoodsID, 10))
	}
	if p.Cursor != "" {
		query.Set("after", p.Cursor)
	}
	if p.Steps {
		query.Set("steps", "true")
	}
	if p.Reader != "" {
		query.Set("reader", p.Reader)
	}
	if p.Limit != 0 {
		query.Set("limit", strconv.Itoa(p.Limit))
	}
	err = c.do(ctx, call{method: http.MethodGet, url: c.AdminURL + "/orders?" + query.Encode(), token: c.Token, into: &page})
	return page, err
}
