package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"time"
)

// Purchase is a wish to buy some units of one goods.
type Purchase struct {
	// RequestID names the purchase for ever: up to 128 visible ASCII characters. One
	// is made where it is empty; keep your own where a purchase must survive a crash
	// of the caller.
	RequestID string `json:"-"`
	GoodsID   int64  `json:"goods_id"`
	// Quantity is how many units, 1 to 1,000,000; 0 is 1.
	Quantity int64 `json:"quantity,omitempty"`
	// UserID is who buys, up to 64 characters without a space at either end; limits of one
	// buyer need it. Leave it where a token or a gateway says who buys.
	UserID string `json:"user_id,omitempty"`
	// Strategy sells; the item's own where it is empty, else the stockd's default. Many a
	// stockd answers ErrChoiceRefused to any other: leave it, Group and Fence alone.
	Strategy string `json:"strategy,omitempty"`
	// Group commits all waiting purchases of an item in one transaction, and Fence has
	// the store check the token of the lock; false is as the item has it.
	Group bool `json:"group,omitempty"`
	Fence bool `json:"fence,omitempty"`
	// Ungrouped and Unfenced ask for neither, also where the item has it. Group and Fence
	// do not count beside them.
	Ungrouped bool `json:"-"`
	Unfenced  bool `json:"-"`
	// Durable is what is waited for: InRedis or InSQL; empty is InRedis.
	Durable string `json:"durable,omitempty"`
}

// Where an order is written down before it is answered.
const (
	InRedis = "redis" // it is lost where Redis loses its memory before the ledger has it
	InSQL   = "sql"   // the ledger has it
)

// Sale is a purchase that was accepted. Where the stockd conceals them from the public
// (http.reveal), Remaining, Replica, Token, WaitMS and HoldMS are empty.
type Sale struct {
	// RequestID is that of the purchase.
	RequestID string `json:"-"`
	OrderID   string `json:"order_id"`
	GoodsID   int64  `json:"goods_id"`
	Quantity  int64  `json:"quantity"`
	// Remaining is what was left, as the writer of the order saw it.
	Remaining int64  `json:"remaining"`
	Strategy  string `json:"strategy"`
	// Replica is the one that sold.
	Replica string `json:"replica"`
	// Token is the fencing token of the lock, or 0.
	Token uint64 `json:"token"`
	// CreatedAt is when it was accepted, by the clock of the replica.
	CreatedAt time.Time `json:"created_at"`
	// WaitMS and HoldMS are how long the lock was waited for and held, in milliseconds.
	WaitMS float64 `json:"wait_ms"`
	HoldMS float64 `json:"hold_ms"`
	// Durable is InRedis or InSQL.
	Durable string `json:"durable"`
	// Replayed tells that it was sold before, under the same RequestID.
	Replayed bool `json:"-"`
}

// Deduct buys. ErrOutcomeUnknown tells that nobody knows whether it was bought: the
// RequestID of the error finds out. Every other Err… of this package tells that nothing
// was bought.
func (c Client) Deduct(ctx context.Context, p Purchase) (Sale, error) {
	p.RequestID = cmp.Or(p.RequestID, rand.Text())
	sale := Sale{RequestID: p.RequestID}
	err := c.do(ctx, call{
		method: http.MethodPost, url: c.URL + "/deduct", token: c.BuyerToken, more: c.Header, body: p.body(), requestID: p.RequestID, into: &sale,
		header: func(h http.Header) { sale.Replayed = h.Get("Idempotency-Replayed") == "true" },
	})
	if err != nil {
		return Sale{}, err
	}
	return sale, nil
}

// body is the purchase as it is sent: a modifier that is nil is left to the item.
func (p Purchase) body() any {
	return struct {
		Purchase
		Group *bool `json:"group,omitempty"`
		Fence *bool `json:"fence,omitempty"`
	}{p, modifier(p.Group, p.Ungrouped), modifier(p.Fence, p.Unfenced)}
}

func modifier(on, off bool) *bool {
	if !on && !off {
		return nil
	}
	on = !off
	return &on
}
