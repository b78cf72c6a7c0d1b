package client

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Order is an accepted purchase, a step of one, or a change of an item: see Pages.Kinds.
type Order struct {
	// Kind is one of those below, only where steps or kinds are listed.
	Kind      string `json:"kind"`
	OrderID   string `json:"order_id"`
	GoodsID   int64  `json:"goods_id"`
	Quantity  int64  `json:"quantity"`
	RequestID string `json:"request_id"`
	// UserID is the buyer, if known; it is empty on the public API.
	UserID string `json:"user_id"`
	// Remaining is what was left, as the writer of the order saw it; of a limit or a time of sale it is what is left now.
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
	// Reason and Counted are those of a correction; Counted is nil where it was by a difference.
	Reason  string `json:"reason"`
	Counted *int64 `json:"counted"`
	// PerUser is that of SetLimit. Strategy, Group, Fenced and MaxQuantity are those of SetStrategy: empty or nil means as
	// configured. StartsAt and EndsAt are those of SetSale; nil is any time.
	PerUser     *int64     `json:"per_user"`
	Group       *bool      `json:"group"`
	Fenced      *bool      `json:"fenced"`
	MaxQuantity *int64     `json:"max_quantity"`
	StartsAt    *time.Time `json:"starts_at"`
	EndsAt      *time.Time `json:"ends_at"`
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
	// StepCorrected is a correction of the stock, of no order: its Quantity is negative where units were taken off.
	StepCorrected = "correct"
)

// Changes of items, which are no steps. The first units of an item are a restock, too.
const (
	Restocked   = "restock"
	SetLimit    = "limit"
	SetStrategy = "strategy"
	// SetSale is new times of a sale, and the close of one.
	SetSale = "sale"
)

// Order finds an order by its number, on the admin API. It never buys. It may
// return ErrUnknownOrder. ErrUnavailable: it is unknown whether the order exists.
func (c Client) Order(ctx context.Context, id string) (Order, error) {
	return answer[Order](ctx, c, c.asAdmin(http.MethodGet, orderPath(id)))
}

func orderPath(id string) string { return "/orders/" + url.PathEscape(id) }

// OrderOf finds the order of a purchase by its RequestID and its UserID, which is empty where a token
// or a gateway identifies the buyer. It never buys. Of a basket it has OrderID and CreatedAt alone.
// ErrUnknownOrder: there is none, but a recent purchase may still be accepted until its time limit.
// ErrUnavailable: it is unknown whether the order exists.
func (c Client) OrderOf(ctx context.Context, p Purchase) (Order, error) {
	query := url.Values{"request_id": {p.RequestID}}
	if p.UserID != "" {
		query.Set("user_id", p.UserID)
	}
	return answer[Order](ctx, c, c.asBuyer(http.MethodGet, "/orders?"+query.Encode()))
}

// Return gives units of an order back, all that are left of it where units is 0, on the admin
// API, and returns how many. Under a requestID it happens once; if it is empty, one is generated.
// ErrUnknownOrder, ErrOrderReturned, ErrStockLimit: nothing came back.
func (c Client) Return(ctx context.Context, orderID string, units int64, requestID string) (came int64, err error) {
	return c.giveBack(ctx, orderID, units, requestID, make(map[string]any))
}

// ReturnDamaged is Return of units that cannot be sold again: they do not come back into the stock.
func (c Client) ReturnDamaged(ctx context.Context, orderID string, units int64, requestID string) (came int64, err error) {
	return c.giveBack(ctx, orderID, units, requestID, map[string]any{"restock": false})
}

func (c Client) giveBack(ctx context.Context, orderID string, units int64, requestID string, body map[string]any) (came int64, err error) {
	if units != 0 {
		body["quantity"] = units
	}
	back, err := answer[Order](ctx, c, c.asAdmin(http.MethodPost, orderPath(orderID)+"/return").under(requestID, body))
	return back.Quantity, err
}

// Pages selects the orders of Orders.
type Pages struct {
	// GoodsID is the item; 0 is all.
	GoodsID int64
	// Steps lists every step of reservations, every return and every correction of the stock, too. Without it there are
	// orders alone: purchases, and reservations when they are confirmed.
	Steps bool
	// Kinds are the only ones that are listed, in place of Steps: steps and changes of items, such as Restocked.
	Kinds []string
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

func (c Client) page(ctx context.Context, p Pages) (ordersPage, error) {
	query := make(url.Values)
	for name, value := range map[string]string{"after": p.Cursor, "reader": p.Reader, "kinds": strings.Join(p.Kinds, ",")} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, value := range map[string]int64{"goods_id": p.GoodsID, "limit": int64(p.Limit)} {
		if value != 0 {
			query.Set(name, strconv.FormatInt(value, 10))
		}
	}
	if p.Steps {
		query.Set("steps", "true")
	}
	return answer[ordersPage](ctx, c, c.asAdmin(http.MethodGet, "/orders?"+query.Encode()))
}
