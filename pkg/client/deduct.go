package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"time"
)

// Purchase is a request for units of one item.
type Purchase struct {
	// RequestID identifies the purchase: up to 128 visible ASCII characters. If it is empty,
	// one is generated; store your own if a purchase must survive a crash of the caller.
	RequestID string `json:"-"`
	GoodsID   int64  `json:"goods_id"`
	// Quantity is 1 to 1,000,000 units; 0 is 1.
	Quantity int64 `json:"quantity,omitempty"`
	// UserID is the buyer, up to 64 characters without a space at either end; a limit per
	// buyer requires it. Leave it empty where a token or a gateway identifies the buyer.
	UserID string `json:"user_id,omitempty"`
	// Strategy is the item's own, or the default, if it is empty. Others may be rejected with
	// ErrChoiceRefused, as may Group and Fence.
	Strategy string `json:"strategy,omitempty"`
	// Group commits all waiting purchases of an item in one transaction, and Fence makes the
	// store check the token of the lock; false is as the item has it.
	Group bool `json:"group,omitempty"`
	Fence bool `json:"fence,omitempty"`
	// Ungrouped and Unfenced switch them off, also where the item has them, and win over
	// Group and Fence.
	Ungrouped bool `json:"-"`
	Unfenced  bool `json:"-"`
	// Durable is where the order must be stored before the answer: InRedis or InSQL; empty is
	// InRedis.
	Durable string `json:"durable,omitempty"`
	// WaitMS is how long the purchase waits for the lock of the item before it is ErrBusy, in
	// milliseconds; 0 is as long as lock.wait, which is the most. Strategies without a lock, and
	// grouped purchases, reject it.
	WaitMS int64 `json:"wait_ms,omitempty"`
}

// Where an order is stored before it is answered.
const (
	InRedis = "redis" // lost if Redis loses its memory before the ledger has it
	InSQL   = "sql"   // the ledger has it
)

// Sale is an accepted purchase. Without http.reveal, Remaining, Replica, Token, WaitMS and HoldMS
// are empty.
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
	// WaitMS and HoldMS are the wait for the lock and its hold time, in milliseconds.
	WaitMS float64 `json:"wait_ms"`
	HoldMS float64 `json:"hold_ms"`
	// Durable is InRedis or InSQL.
	Durable string `json:"durable"`
	// Replayed reports that it was sold earlier, under the same RequestID.
	Replayed bool `json:"-"`
}

func (s *Sale) id() string { return s.OrderID }

// Deduct buys. After ErrOutcomeUnknown the purchase may have happened: sending it again with the
// RequestID of the error finds out. After every other Err… of this package nothing was bought.
func (c Client) Deduct(ctx context.Context, p Purchase) (Sale, error) {
	p.RequestID = cmp.Or(p.RequestID, rand.Text())
	sale := Sale{RequestID: p.RequestID}
	err := c.do(ctx, call{
		method: http.MethodPost, url: c.URL + "/deduct", token: c.BuyerToken, more: c.Header, body: p.body(0), requestID: p.RequestID, into: &sale,
		replayed: &sale.Replayed,
	})
	if err != nil {
		return Sale{}, err
	}
	return sale, nil
}

// body is the purchase as it is sent: nil leaves a modifier to the item. One that is a
// reservation has a ttl.
func (p Purchase) body(ttl time.Duration) any {
	return struct {
		Purchase
		Group *bool `json:"group,omitempty"`
		Fence *bool `json:"fence,omitempty"`
		TTL   int64 `json:"ttl,omitempty"`
	}{p, modifier(p.Group, p.Ungrouped), modifier(p.Fence, p.Unfenced), wholeSeconds(ttl)}
}

// wholeSeconds rounds away from 0, which is as stockd has it: neither a part of a second nor a time
// that is over may become that.
func wholeSeconds(d time.Duration) int64 {
	seconds := int64(d / time.Second)
	return seconds + int64(cmp.Compare(d%time.Second, 0))
}

func modifier(on, off bool) *bool {
	if !on && !off {
		return nil
	}
	on = !off
	return &on
}
