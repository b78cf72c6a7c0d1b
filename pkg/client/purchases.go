package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
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
	// store check the token of the lock; nil is as the item has it.
	Group *bool `json:"group,omitempty"`
	Fence *bool `json:"fence,omitempty"`
	// Durable is where the order must be stored before the answer: InRedis or InSQL; empty is
	// InRedis.
	Durable string `json:"durable,omitempty"`
	// Wait is how long the purchase waits for the lock of the item before it is ErrBusy, rounded
	// up to milliseconds; 0 is as long as lock.wait, which is the most. Strategies without a lock,
	// and grouped purchases, reject it.
	Wait time.Duration `json:"wait_ms,omitempty"`
}

// Where an order is stored before it is answered.
const (
	InRedis = "redis" // lost if Redis loses its memory before the ledger has it
	InSQL   = "sql"   // the ledger has it
)

// Sale is an accepted purchase. Without http.reveal, Remaining, Replica, Token, Wait and Hold
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
	// Wait is how long it waited for the lock, and Hold how long it held it.
	Wait time.Duration `json:"wait_ms"`
	Hold time.Duration `json:"hold_ms"`
	// Durable is InRedis or InSQL.
	Durable string `json:"durable"`
	// Replayed reports that it was sold earlier, under the same RequestID.
	Replayed bool `json:"-"`
}

func (s *Sale) id() string { return s.OrderID }

func (s *Sale) asked(requestID string, replayed bool) { s.RequestID, s.Replayed = requestID, replayed }

// UnmarshalJSON reads the answer to a purchase, whose times are fractions of milliseconds.
func (s *Sale) UnmarshalJSON(answer []byte) error {
	type fields Sale
	sold := struct {
		*fields
		Wait float64 `json:"wait_ms"`
		Hold float64 `json:"hold_ms"`
	}{fields: (*fields)(s)}
	err := json.Unmarshal(answer, &sold)
	s.Wait, s.Hold = time.Duration(sold.Wait*float64(time.Millisecond)), time.Duration(sold.Hold*float64(time.Millisecond))
	return err
}

// Deduct buys. After ErrOutcomeUnknown the purchase may have happened: sending it again with the
// RequestID of the error finds out. After every other Err… of this package nothing was bought.
func (c Client) Deduct(ctx context.Context, p Purchase) (Sale, error) {
	return answer[Sale](ctx, c, c.asBuyer(http.MethodPost, "/deduct").under(p.RequestID, p.body(0)))
}

// under is the call with a body, which happens once under a request id; if that is empty, one is generated.
func (k call) under(requestID string, body any) call {
	k.requestID, k.body = cmp.Or(requestID, rand.Text()), body
	return k
}

// body is the purchase as it is sent. One that is a reservation has a ttl.
func (p Purchase) body(ttl time.Duration) any {
	return struct {
		Purchase
		Wait int64 `json:"wait_ms,omitempty"`
		TTL  int64 `json:"ttl,omitempty"`
	}{p, whole(p.Wait, time.Millisecond), whole(ttl, time.Second)}
}

// whole rounds away from 0, which is as stockd has it: neither a part of a unit nor a time that is
// over may become that.
func whole(d, unit time.Duration) int64 {
	return int64(d/unit) + int64(cmp.Compare(d%unit, 0))
}

// Basket is an order of several items, all of them or none.
type Basket struct {
	// RequestID is as that of a Purchase.
	RequestID string `json:"-"`
	// Lines are 1 to 32 items; one that is there twice is one line.
	Lines []Line `json:"lines"`
	// UserID, Strategy, Group and Fence are as those of a Purchase, for every line.
	UserID   string `json:"user_id,omitempty"`
	Strategy string `json:"strategy,omitempty"`
	Group    *bool  `json:"group,omitempty"`
	Fence    *bool  `json:"fence,omitempty"`
}

// Line is so many units of an item; 0 is 1.
type Line struct {
	GoodsID  int64 `json:"goods_id"`
	Quantity int64 `json:"quantity,omitempty"`
}

// SoldBasket is a basket that was sold.
type SoldBasket struct {
	// RequestID is that of the basket.
	RequestID string `json:"-"`
	// OrderID is that of the whole; each line has its own, which the ledger, the feed and Return
	// name it by.
	OrderID   string     `json:"order_id"`
	Lines     []SoldLine `json:"lines"`
	CreatedAt time.Time  `json:"created_at"`
	// Replayed reports that it was sold earlier, under the same RequestID.
	Replayed bool `json:"-"`
}

func (s *SoldBasket) id() string { return s.OrderID }

func (s *SoldBasket) asked(requestID string, replayed bool) {
	s.RequestID, s.Replayed = requestID, replayed
}

// SoldLine is a line of a basket that was sold.
type SoldLine struct {
	OrderID  string `json:"order_id"`
	GoodsID  int64  `json:"goods_id"`
	Quantity int64  `json:"quantity"`
	Strategy string `json:"strategy"`
}

// Buy buys all of a basket or nothing. Failures are those of Deduct; GoodsID of their Problem is the
// item that is the cause.
func (c Client) Buy(ctx context.Context, b Basket) (SoldBasket, error) {
	return answer[SoldBasket](ctx, c, c.asBuyer(http.MethodPost, "/orders").under(b.RequestID, b))
}

// Basket finds a basket by its OrderID, on the admin API. It never buys. ErrUnknownOrder: none was
// sold under it. ErrUnavailable: it is unknown whether one was.
func (c Client) Basket(ctx context.Context, id string) (SoldBasket, error) {
	return answer[SoldBasket](ctx, c, c.asAdmin(http.MethodGet, orderPath(id)))
}
