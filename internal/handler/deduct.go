package handler

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/rate"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// sale serves purchases, and the strategies that make them.
type sale struct {
	options Options
	shop    *service.Shop
}

// sold is the answer to an accepted purchase. Pointers and the replica are set only where
// http.reveal is on.
type sold struct {
	OrderID   string   `json:"order_id"`
	GoodsID   int64    `json:"goods_id"`
	Quantity  int64    `json:"quantity"`
	Remaining *int64   `json:"remaining,omitempty"`
	Strategy  string   `json:"strategy"`
	Replica   string   `json:"replica,omitempty"`
	Token     *uint64  `json:"token,omitempty"`
	CreatedAt string   `json:"created_at"`
	WaitMS    *float64 `json:"wait_ms,omitempty"`
	HoldMS    *float64 `json:"hold_ms,omitempty"`
	// Durable is where the order is stored.
	Durable stock.Durability `json:"durable"`
}

func (s sale) deduct(c *gin.Context) {
	s.serve(c, func(f *form, p *stock.Purchase) { p.Durable = f.durability() }, func(_ context.Context, o stock.Outcome) error {
		c.JSON(http.StatusOK, s.answerTo(o))
		return nil
	}, "durable")
}

// serve serves a purchase. read reads the fields of its kind, and accept answers where it was sold, now or earlier.
func (s sale) serve(c *gin.Context, read func(*form, *stock.Purchase), accept func(context.Context, stock.Outcome) error, fields ...string) {
	r, err := s.request(c, read, fields...)
	if err != nil {
		answer(c, err)
		return
	}
	ctx, cancel := s.shop.Within(c.Request.Context())
	defer cancel()
	outcome, err := s.shop.Buy(ctx, r)
	if err == nil {
		replayed(c, outcome.Replayed)
		err = accept(ctx, outcome)
	}
	if err != nil {
		s.reject(c, r.RequestID, err)
	}
}

func (s sale) request(c *gin.Context, read func(*form, *stock.Purchase), fields ...string) (r service.Request, err error) {
	f := readForm(c.Request, append(fields, "strategy", "group", "fence", "goods_id", "quantity", "user_id", "wait_ms")...)
	r.GoodsID = f.whole("goods_id", 1, math.MaxInt64)
	key, userID := f.idempotencyKey(c.Request), f.user("user_id")
	r.Keyed, r.Quantity = key != "", f.wholeOr("quantity", 1, 1, stock.MaxQuantity)
	r.MaxWait = time.Duration(f.wholeOr("wait_ms", 0, 1, maxWait.Milliseconds())) * time.Millisecond
	read(f, &r.Purchase)
	r.Asked = f.asked()
	if err := f.err(); err != nil {
		return r, err
	}
	r.UserID, err = s.options.purchaser(c.Request, userID, stock.Line{GoodsID: r.GoodsID})
	if key == "" {
		key = s.shop.NewKey(r.GoodsID, r.UserID)
	}
	r.RequestID = stock.BuyerKey(key, r.UserID)
	return r, err
}

func (f *form) asked() stock.Choice {
	return stock.Choice{Strategy: f.text("strategy", maxStrategy), Group: f.flagIfGiven("group"), Fence: f.flagIfGiven("fence")}
}

// replayed marks an answer that was given before.
func replayed(c *gin.Context, again bool) {
	if again {
		c.Header("Idempotency-Replayed", "true")
	}
}

func (s sale) answerTo(o stock.Outcome) sold {
	body := sold{
		OrderID:   o.Order.ID,
		GoodsID:   o.Order.GoodsID,
		Quantity:  o.Order.Quantity,
		Strategy:  o.Order.Strategy,
		CreatedAt: timestamp(o.Order.CreatedAt),
		Durable:   cmp.Or(o.Durable, stock.InSQL),
	}
	if s.options.Reveal { // its own copies: a pointer into the outcome would keep all of it on the heap
		body.Remaining, body.Replica, body.Token = new(o.Order.Remaining), o.Order.Replica, new(o.Order.Token)
		body.WaitMS, body.HoldMS = new(milliseconds(o.Wait)), new(milliseconds(o.Hold))
	}
	return body
}

// reject answers a purchase that was not sold. requestID finds out about an unknown outcome.
func (s sale) reject(c *gin.Context, requestID string, err error) {
	p := s.problemOf(err)
	if line, ok := errors.AsType[*stock.LineError](err); ok {
		p.GoodsID = line.GoodsID
	}
	if shed, ok := errors.AsType[*service.ShedError](err); ok {
		s.options.Observer.Shed(shed.Full)
		c.Set(shedKey, true)
	}
	if _, ok := errors.AsType[*rate.Error](err); ok {
		s.options.Observer.RateLimited(byUser)
	}
	if errors.Is(err, stock.ErrUnknownOutcome) {
		p.RequestID = stock.KeyOf(requestID)
		p.Detail += "; send the same request with Idempotency-Key: " + p.RequestID + " to find out"
	}
	logFailure(c, s.options.Log, p, err)
	answer(c, p)
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}

// maxStrategy is the longest name of a strategy, in characters.
const maxStrategy = 64

// maxWait is far above any lock.wait.
const maxWait = time.Hour

// needsBuyer reports that purchases must not be anonymous. A rate limit of buyers requires
// that: otherwise a client evades it by leaving its name out.
func (o Options) needsBuyer() bool { return o.BuyerRequired || o.Limits.User.PerSecond > 0 }

// buyerOf identifies the buyer of a request. Its user_id is trusted only where buyers are not
// verified; a verified buyer may repeat its own.
func (o Options) buyerOf(r *http.Request, userID string) (buyer.Buyer, error) {
	if o.Buyers == nil {
		return buyer.Buyer{ID: userID}, nil
	}
	verified, err := o.Buyers.From(r)
	if wrong, ok := errors.AsType[*buyer.HeaderError](err); ok {
		return buyer.Buyer{}, invalid(fieldError{wrong.Header, wrong.Reason})
	}
	if err != nil {
		p := unauthorized().detail("%v", err)
		p.authenticate = `Bearer error="invalid_token"`
		return buyer.Buyer{}, p
	}
	if userID != "" && userID != verified.ID {
		return buyer.Buyer{}, invalid(fieldError{"user_id", "must be left out, or be that of the verified buyer"})
	}
	return verified, nil
}

// ownBuyer is buyerOf for what a buyer has, which another one must not see.
func (o Options) ownBuyer(r *http.Request, userID string) (string, error) {
	verified, err := o.buyerOf(r, userID)
	if err == nil && verified.ID == "" && o.needsBuyer() {
		err = o.unnamed("is missing; a client sees its own orders and reservations only")
	}
	return verified.ID, err
}

// purchaser is buyerOf for a purchase of items.
func (o Options) purchaser(r *http.Request, userID string, lines ...stock.Line) (string, error) {
	verified, err := o.buyerOf(r, userID)
	another := func(l stock.Line) bool { return l.GoodsID != verified.GoodsID }
	switch {
	case err != nil:
		return "", err
	case verified.ID == "" && o.needsBuyer():
		return "", o.unnamed("is missing; every purchase must name its buyer")
	case verified.GoodsID != 0 && slices.ContainsFunc(lines, another):
		return "", newProblem(http.StatusForbidden, "token-bound", "The token is for another item").
			detail("the token is for goods_id %d alone", verified.GoodsID)
	}
	return verified.ID, nil
}

func (o Options) unnamed(why string) problem {
	if o.Buyers == nil {
		return invalid(fieldError{"user_id", why})
	}
	return unauthorized().detail("the buyer %s", why)
}

// problemOf is the problem of a purchase that was not sold. How many units a buyer has is
// private: where buyers are not verified, it is shown only where http.reveal is on.
func (s sale) problemOf(err error) problem {
	if errors.Is(err, stock.ErrUserUnknown) {
		return s.options.unnamed("is missing; a limit per buyer applies")
	}
	if field, ok := errors.AsType[*service.FieldError](err); ok {
		return invalid(fieldError{field.Field, field.Reason})
	}
	if often, ok := errors.AsType[*rate.Error](err); ok {
		return tooOften("this buyer buys", often.Wait)
	}
	p := problemOf(err)
	if mode, ok := errors.AsType[*service.ModeError](err); ok {
		return s.wrongMode(p, mode)
	}
	if p.Has != nil && s.options.Buyers == nil && !s.options.Reveal {
		p.Has, p.Detail = nil, fmt.Sprintf("%v: one buyer may have %d", stock.ErrUserLimit, p.PerUser)
		if p.MaxHeld > 0 {
			p.Detail = fmt.Sprintf("%v: one buyer may hold %d", stock.ErrHoldLimit, p.MaxHeld)
		}
	}
	return p
}

// wrongMode names the field for which a strategy cannot sell.
func (s sale) wrongMode(p problem, mode *service.ModeError) problem {
	why := "is unknown"
	switch {
	case errors.Is(mode, service.ErrNotFenceable):
		return invalid(fieldError{"fence", "cannot be true: " + mode.Strategy + " has no lock whose token the store could check; " +
			"GET /strategies tells which are fenceable"})
	case errors.Is(mode, service.ErrStrategyRejected):
		why = "is not available here"
	}
	p.Strategies = s.options.Catalogue.Names()
	p.Errors = []fieldError{{"strategy", fmt.Sprintf("%q %s; allowed are those of GET /strategies that are available", mode.Strategy, why)}}
	return p
}

// timestamp formats a time for JSON: RFC 3339 in UTC, with microseconds.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }
