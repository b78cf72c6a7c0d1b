package client

import (
	"context"
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

func (r *Reservation) asked(requestID string, replayed bool) {
	r.RequestID, r.Replayed = requestID, replayed
}

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
func (c Client) Reserve(ctx context.Context, p Purchase, ttl time.Duration) (Reservation, error) {
	k := c.asBuyer(http.MethodPost, "/reservations").under(p.RequestID, p.body(ttl))
	held, err := answer[Reservation](ctx, c, k)
	held.RequestID = k.requestID // also where it fails
	return held, err
}

// Reservation finds a reservation by its id. ErrUnknownReservation: there is none.
func (c Client) Reservation(ctx context.Context, id string) (Reservation, error) {
	return answer[Reservation](ctx, c, c.asBuyer(http.MethodGet, reservationPath(id)))
}

// Confirm makes an order of a reservation that is paid, on the admin API. ErrReservationExpired,
// ErrReservationReleased: it is over, whatever was paid. ErrReservationConfirmed: it was
// confirmed under another reference. ErrReferenceUsed: the reference has confirmed another
// reservation. After ErrOutcomeUnknown, confirming again finds out.
func (c Client) Confirm(ctx context.Context, id, paymentReference string) (Reservation, error) {
	k := c.asAdmin(http.MethodPost, reservationPath(id)+"/confirm")
	return answer[Reservation](ctx, c, k.with(map[string]string{"payment_reference": paymentReference}))
}

// Release gives the units of a reservation back. ErrReservationExpired,
// ErrReservationConfirmed: nothing was changed. After ErrOutcomeUnknown, releasing again finds out.
func (c Client) Release(ctx context.Context, id string) (Reservation, error) {
	return answer[Reservation](ctx, c, c.asBuyer(http.MethodPost, reservationPath(id)+"/release"))
}

// Extend holds a reservation for ttl from now on, rounded up to seconds, as far as stockd allows it.
// ErrReservationExpired, ErrReservationReleased, ErrReservationConfirmed: nothing was changed.
func (c Client) Extend(ctx context.Context, id string, ttl time.Duration) (Reservation, error) {
	k := c.asBuyer(http.MethodPost, reservationPath(id)+"/extend")
	return answer[Reservation](ctx, c, k.with(map[string]int64{"ttl": whole(ttl, time.Second)}))
}

func reservationPath(id string) string { return "/reservations/" + url.PathEscape(id) }
