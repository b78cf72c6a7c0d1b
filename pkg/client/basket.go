package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"time"
)

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
	b.RequestID = cmp.Or(b.RequestID, rand.Text())
	sold := SoldBasket{RequestID: b.RequestID}
	err := c.do(ctx, call{
		method: http.MethodPost, url: c.URL + "/orders", token: c.BuyerToken, more: c.Header, body: b, requestID: b.RequestID, into: &sold,
		replayed: &sold.Replayed,
	})
	if err != nil {
		return SoldBasket{}, err
	}
	return sold, nil
}

// Basket finds a basket by its OrderID, on the admin API. It never buys. ErrUnknownOrder: none was
// sold under it. ErrUnavailable: it is unknown whether one was.
func (c Client) Basket(ctx context.Context, id string) (sold SoldBasket, err error) {
	err = c.do(ctx, call{method: http.MethodGet, url: c.AdminURL + "/orders/" + url.PathEscape(id), token: c.Token, into: &sold})
	return sold, err
}
