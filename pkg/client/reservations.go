package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"time"
)

// Reservation takes units of an item until it is confirmed, released or expired.
type Reservation struct {
	// RequestID is that of the purchase, only from Reserve.
	RequestID     string `json:"-"`
	ReservationID string `json:"reservation_id"`
	// State is Held, Confirmed, Released or Expired; nothing leaves the last three.
	State    string `json:"state"`
	GoodsID  int64  `json:"goods_id"`
	Quantity int64  `json:"quantity"`
	// UserID is the buyer, if known; only on the admin API.
	UserID   string `json:"user_id"`
	Strategy string `json:"strategy"`
	// CreatedAt and ExpiresAt are by the clock of the database.
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	// OrderID and PaymentReference are those of a confirmed one.
	OrderID          string `json:"order_id"`
	PaymentReference string `json:"payment_reference"`
	// Replayed reports that it was so before this call.
	Replayed bool `json:"-"`
}

func (r *Reservation) id() string { return r.ReservationID }

// The states of a reservation.
const (
	Held      = "held"
	Confirmed = "confirmed"
	Released  = "released"
	Expired   = "expired"
)

// Reserve holds the units of a purchase for ttl, rounded up to seconds; 0 is as stockd has it. The
// purchase's Durable must be empty. Where it is Replayed, State is that of now, which may be over.
// Failures are those of Deduct.
func (c Client) Reserve(ctx context.Context, p Purchase, ttl time.Duration) (held Reservation, err error) {
	p.RequestID = cmp.Or(p.RequestID, rand.Text())
	held.RequestID = p.RequestID
	err = c.do(ctx, call{
		method: http.MethodPost, url: c.URL + "/reservations", token: c.BuyerToken, more: c.Header, body: p.body(ttl), requestID: p.RequestID, into: &held,
		replayed: &held.Replayed,
	})
	return held, err
}

// Reservation finds a reservation by its id. ErrUnknownReservation: there is none.
func (c Client) Reservation(ctx context.Context, id string) (held Reservation, err error) {
	err = c.do(ctx, call{method: http.MethodGet, url: c.URL + reservationPath(id), token: c.BuyerToken, more: c.Header, into: &held})
	return held, err
}

// Confirm makes an order of a reservation that is paid, on the admin API. ErrReservationExpired,
// ErrReservationReleased: it is over, whatever was paid. ErrReservationConfirmed: it was
// confirmed under another reference. ErrReferenceUsed: the reference has confirmed another
// reservation. After ErrOutcomeUnknown, confirming again finds out.
func (c Client) Confirm(ctx context.Context, id, paymentReference string) (Reservation, error) {
	return c.step(ctx, c.AdminURL+reservationPath(id)+"/confirm", c.Token, nil, map[string]string{"payment_reference": paymentReference})
}

// Release gives the units of a reservation back. ErrReservationExpired,
// ErrReservationConfirmed: nothing was changed. After ErrOutcomeUnknown, releasing again finds out.
func (c Client) Release(ctx context.Context, id string) (Reservation, error) {
	return c.step(ctx, c.URL+reservationPath(id)+"/release", c.BuyerToken, c.Header, nil)
}

// Extend holds a reservation for ttl from now on, rounded up to seconds, as far as stockd allows it.
// ErrReservationExpired, ErrReservationReleased, ErrReservationConfirmed: nothing was changed.
func (c Client) Extend(ctx context.Context, id string, ttl time.Duration) (Reservation, error) {
	return c.step(ctx, c.URL+reservationPath(id)+"/extend", c.BuyerToken, c.Header, map[string]int64{"ttl": wholeSeconds(ttl)})
}

func (c Client) step(ctx context.Context, to, token string, more http.Header, body any) (held Reservation, err error) {
	err = c.do(ctx, call{
		method: http.MethodPost, url: to, token: token, more: more, body: body, into: &held,
		replayed: &held.Replayed,
	})
	return held, err
}

// returned is the answer to a return.
type returned struct {
	OrderID  string `json:"order_id"`
	Quantity int64  `json:"quantity"`
}

func (r *returned) id() string { return r.OrderID }

// Return gives units of an order back, all that are left of it where units is 0, on the admin
// API, and returns how many. Under a requestID it happens once; if it is empty, one is generated.
// ErrUnknownOrder, ErrOrderReturned, ErrStockLimit: nothing came back.
func (c Client) Return(ctx context.Context, orderID string, units int64, requestID string) (came int64, err error) {
	var back returned
	body := make(map[string]int64)
	if units != 0 {
		body["quantity"] = units
	}
	err = c.do(ctx, call{
		method: http.MethodPost, url: c.AdminURL + "/orders/" + url.PathEscape(orderID) + "/return", token: c.Token,
		requestID: cmp.Or(requestID, rand.Text()), body: body, into: &back,
	})
	return back.Quantity, err
}

func reservationPath(id string) string { return "/reservations/" + url.PathEscape(id) }
