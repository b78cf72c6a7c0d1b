package handler

import (
	"context"
	"math"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/stock"
)

// reservations serves what becomes of a reservation; sale makes it.
type reservations struct {
	options Options
	private bool // the admin API, which shows buyers
}

// reservationBody is a reservation.
type reservationBody struct {
	ReservationID string      `json:"reservation_id"`
	State         stock.State `json:"state"`
	GoodsID       int64       `json:"goods_id"`
	Quantity      int64       `json:"quantity"`
	UserID        string      `json:"user_id,omitempty"`
	Strategy      string      `json:"strategy"`
	CreatedAt     string      `json:"created_at"`
	ExpiresAt     string      `json:"expires_at"`
	// OrderID and PaymentReference are those of a confirmed one.
	OrderID          string `json:"order_id,omitempty"`
	PaymentReference string `json:"payment_reference,omitempty"`
}

func bodyOf(r stock.Reservation) reservationBody {
	body := reservationBody{
		ReservationID: r.Number, State: r.State, GoodsID: r.GoodsID, Quantity: r.Quantity, Strategy: r.Strategy,
		CreatedAt: timestamp(r.HeldAt), ExpiresAt: timestamp(r.ExpiresAt), PaymentReference: r.PaymentReference,
	}
	if r.State == stock.Confirmed {
		body.OrderID = r.Number
	}
	return body
}

// reserved is the answer to a reservation that was accepted. Pointers and the replica are
// set only where http.reveal is on.
type reserved struct {
	reservationBody

	Remaining *int64   `json:"remaining,omitempty"`
	Replica   string   `json:"replica,omitempty"`
	Token     *uint64  `json:"token,omitempty"`
	WaitMS    *float64 `json:"wait_ms,omitempty"`
	HoldMS    *float64 `json:"hold_ms,omitempty"`
}

// reserve serves POST /reservations: a purchase with a deadline.
func (s sale) reserve(c *gin.Context) {
	var asked time.Duration // or none: the time of a replica that is configured otherwise is as good
	s.serve(c, func(f *form, p *stock.Purchase) {
		p.TTL = f.ttl(s.options.TTL, s.options.LongestTTL)
		if f.given("ttl") {
			asked = p.TTL
		}
	}, func(ctx context.Context, o stock.Outcome) error {
		return s.acceptReservation(ctx, c, asked, o)
	}, "ttl")
}

func (s sale) acceptReservation(ctx context.Context, c *gin.Context, asked time.Duration, o stock.Outcome) error {
	held, err := s.options.Reservations.Accepted(ctx, asked, o)
	if err != nil {
		return err
	}
	body, sold := reserved{reservationBody: bodyOf(held)}, s.answerTo(o)
	body.Remaining, body.Replica, body.Token, body.WaitMS, body.HoldMS = sold.Remaining, sold.Replica, sold.Token, sold.WaitMS, sold.HoldMS
	c.JSON(http.StatusCreated, body)
	return nil
}

// ttl reads for how many seconds units are held.
func (f *form) ttl(otherwise, longest time.Duration) time.Duration {
	const second = int64(time.Second)
	return time.Duration(f.wholeOr("ttl", int64(otherwise)/second, 1, int64(longest)/second)) * time.Second
}

func (o reservations) read(c *gin.Context) (any, error) {
	if err := hasNoFields(c); err != nil {
		return nil, err
	}
	r, err := o.find(c)
	return o.body(r), err
}

// find finds the reservation of a request. A verified buyer finds its own alone. Where buyers
// are not verified, the number, which cannot be guessed, is all that is asked for.
func (o reservations) find(c *gin.Context) (stock.Reservation, error) {
	if o.isForAll() {
		return o.options.Reservations.Read(c.Request.Context(), c.Param("id"))
	}
	own, err := o.options.ownBuyer(c.Request, "") // first: who may not ask learns nothing
	if err != nil {
		return stock.Reservation{}, err
	}
	r, err := o.options.Reservations.Read(c.Request.Context(), c.Param("id"))
	if err == nil && r.UserID != own {
		err = stock.ErrUnknownReservation
	}
	return r, err
}

// isForAll reports that who asks for a reservation need not be its buyer.
func (o reservations) isForAll() bool { return o.private || o.options.Buyers == nil }

func (o reservations) body(r stock.Reservation) reservationBody {
	body := bodyOf(r)
	if o.private {
		body.UserID = r.UserID
	}
	return body
}

// form reads what a step is asked with. What an admin asks for is logged.
func (o reservations) form(c *gin.Context, known ...string) *form {
	if o.private {
		return readAdminForm(c, known...)
	}
	return readForm(c.Request, known...)
}

func (o reservations) confirm(c *gin.Context) (any, error) {
	f := o.form(c, "payment_reference")
	reference := f.visible("payment_reference", stock.MaxPaymentReference)
	if err := f.err(); err != nil {
		return nil, err
	}
	return o.step(c, func(ctx context.Context, number string) (stock.Reservation, bool, error) {
		return o.options.Reservations.Confirm(ctx, number, reference)
	})
}

func (o reservations) release(c *gin.Context) (any, error) {
	if err := o.form(c).err(); err != nil {
		return nil, err
	}
	return o.step(c, o.options.Reservations.Release)
}

func (o reservations) extend(c *gin.Context) (any, error) {
	f := o.form(c, "ttl")
	ttl := f.ttl(o.options.TTL, o.options.LongestTTL)
	if err := f.err(); err != nil {
		return nil, err
	}
	return o.step(c, func(ctx context.Context, number string) (stock.Reservation, bool, error) {
		r, err := o.options.Reservations.Extend(ctx, number, ttl)
		return r, false, err
	})
}

// step takes a step of a reservation that the client may see.
func (o reservations) step(c *gin.Context, take func(ctx context.Context, number string) (r stock.Reservation, again bool, err error)) (any, error) {
	if !o.isForAll() {
		if _, err := o.find(c); err != nil {
			return nil, err
		}
	}
	r, again, err := take(c.Request.Context(), c.Param("id"))
	replayed(c, again)
	return o.body(r), err
}

// returnedBody is the answer to a return.
type returnedBody struct {
	OrderID   string `json:"order_id"`
	GoodsID   int64  `json:"goods_id"`
	Quantity  int64  `json:"quantity"`
	CreatedAt string `json:"created_at"`
}

func (o orders) giveBack(c *gin.Context) (any, error) {
	f := readAdminForm(c, "quantity", "restock")
	units := f.wholeOr("quantity", 0, 1, math.MaxInt64) // 0: all that are left
	damaged := f.given("restock") && !f.flag("restock")
	key := f.idempotencyKey(c.Request)
	if err := f.err(); err != nil {
		return nil, err
	}
	back, again, err := o.options.Reservations.GiveBack(c.Request.Context(), c.Param("id"), units, key, damaged)
	replayed(c, again)
	return returnedBody{back.ID, back.GoodsID, back.Quantity, timestamp(back.CreatedAt)}, err
}
