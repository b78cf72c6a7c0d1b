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
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// sale serves purchases, and the strategies that make them.
type sale struct {
	options Options
	slots   *slots
	users   rate
}

// rate is how often buyers may buy: see limiter.
type rate interface {
	take(buyer string, now time.Time) (wait time.Duration)
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

// deduct serves POST /deduct.
func (s sale) deduct(c *gin.Context) {
	s.serve(c, func(f *form, p *stock.Purchase) { p.Durable = f.durability() }, s.accept, "durable")
}

// serve serves a purchase. read reads the fields of its kind, and accept answers where it was
// sold, now or earlier.
func (s sale) serve(c *gin.Context, read func(*form, *stock.Purchase), accept acceptance, fields ...string) {
	f, err := readForm(c.Request, append(fields, "strategy", "group", "fence", "goods_id", "quantity", "user_id", "wait_ms")...)
	if err != nil {
		answer(c, err)
		return
	}
	goodsID := f.whole("goods_id", 1, math.MaxInt64)
	key, userID := f.idempotencyKey(c.Request), f.user("user_id")
	purchase := stock.Purchase{
		Keyed:    key != "",
		Quantity: f.wholeOr("quantity", 1, 1, stock.MaxQuantity),
		MaxWait:  time.Duration(f.wholeOr("wait_ms", 0, 1, mostWait.Milliseconds())) * time.Millisecond,
	}
	read(f, &purchase)
	asked := stock.Choice{Strategy: f.text("strategy", mostStrategy), Group: f.flagIfGiven("group"), Fence: f.flagIfGiven("fence")}
	if err := f.err(); err != nil {
		answer(c, err)
		return
	}
	if purchase.UserID, err = s.options.purchaser(c.Request, userID, stock.Line{GoodsID: goodsID}); err != nil {
		answer(c, err)
		return
	}
	if purchase.Keyed {
		purchase.RequestID = stock.BuyerKey(key, purchase.UserID)
	}
	ctx, cancel := s.options.Catalogue.Within(c.Request.Context())
	defer cancel()
	outcome, err := s.buy(ctx, goodsID, purchase, asked)
	if err == nil {
		if outcome.Replayed {
			c.Header("Idempotency-Replayed", "true")
		}
		err = accept(ctx, c, outcome)
	}
	if err != nil {
		s.reject(c, cmp.Or(outcome.Order.RequestID, key), err)
	}
}

// buy answers a purchase with the order that the ledger has under its key, or sells.
func (s sale) buy(ctx context.Context, goodsID int64, p stock.Purchase, asked stock.Choice) (stock.Outcome, error) {
	outcome, err := s.options.Catalogue.Replay(ctx, goodsID, p)
	if err == nil && !outcome.Replayed {
		outcome, err = s.sell(ctx, goodsID, p, func() (seller, error) { return s.seller(goodsID, p, asked) })
	}
	return outcome, err
}

// acceptance answers a purchase that was sold now or earlier, or returns why it cannot.
type acceptance func(context.Context, *gin.Context, stock.Outcome) error

// sell sells, or rejects with the reason as its error. A rejected purchase may repeat one that
// is pending in the ledger: then it gets the answer of that one.
func (s sale) sell(ctx context.Context, goodsID int64, p stock.Purchase, by func() (seller, error)) (stock.Outcome, error) {
	chosen, taken, rejected := s.admit(goodsID, p, by)
	if rejected == nil {
		defer taken.release()
		outcome, err := s.options.Catalogue.ReplayElsewhere(ctx, chosen.Seller, goodsID, p)
		if err == nil && !outcome.Replayed {
			outcome, err = chosen.Deduct(ctx, goodsID, p)
		}
		if err == nil {
			err = outcome.Rejected
		}
		if !errors.Is(err, stock.ErrUserLimit) {
			return outcome, err
		}
		rejected = err
	}
	pending, err := s.options.Catalogue.ReplayPending(ctx, goodsID, p)
	if err == nil && !pending.Replayed {
		err = rejected
	}
	return pending, err
}

// admit finds the seller and takes a slot, after the whole request was read, so that slow
// clients occupy none. A shed purchase does not count for the rate of its user, so that its
// retry is not throttled.
func (s sale) admit(goodsID int64, p stock.Purchase, by func() (seller, error)) (chosen seller, taken slot, err error) {
	if chosen, err = by(); err != nil {
		return seller{}, slot{}, err
	}
	taken, full := s.slots.take(goodsID, chosen.asked())
	if full != "" {
		s.options.observer().Shed(full)
		return seller{}, slot{}, &shedError{full, goodsID}
	}
	if wait := s.users.take(p.UserID, time.Now()); wait > 0 {
		taken.release()
		s.options.observer().RateLimited(byUser)
		return seller{}, slot{}, tooOften("this buyer buys", wait)
	}
	return chosen, taken, nil
}

// accept answers a purchase that is an order at once.
func (s sale) accept(_ context.Context, c *gin.Context, outcome stock.Outcome) error {
	c.JSON(http.StatusOK, s.answerTo(outcome))
	return nil
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

func (s sale) reject(c *gin.Context, id string, err error) {
	p := s.problemOf(err)
	if line, ok := errors.AsType[*stock.LineError](err); ok {
		p.GoodsID = line.GoodsID
	}
	if _, ok := errors.AsType[*shedError](err); ok {
		c.Set(shedKey, true)
	}
	if errors.Is(err, stock.ErrUnknownOutcome) {
		p.RequestID = stock.KeyOf(id)
		p.Detail += "; send the same request with Idempotency-Key: " + p.RequestID + " to find out"
	}
	logFailure(c, s.options.Log, p, err)
	answer(c, p)
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}

// mostStrategy is the longest name of a strategy, in characters.
const mostStrategy = 64

// errChoiceRejected rejects a purchase that asks for a mode other than its item's.
var errChoiceRejected = errors.New("requests may not choose")

// seller serves a purchase.
type seller struct {
	*service.Seller

	own bool // in the item's own mode
}

// asked is the service if the purchase asked for another mode than its item's, else nil.
func (s seller) asked() *service.Seller {
	if s.own {
		return nil
	}
	return s.Seller
}

// seller finds the service of a purchase: the one it asks for, its item's, or the default. The
// item's maximum is checked before anything is locked or counted, and after the ledger was
// searched for the purchase, so that sales from before the maximum was lowered are replayed.
func (s sale) seller(goodsID int64, purchase stock.Purchase, asked stock.Choice) (seller, error) {
	if most := s.options.Catalogue.MaxQuantity(goodsID); purchase.Quantity > most {
		return seller{}, invalid(fieldError{"quantity", fmt.Sprintf("must be a whole number from 1 to %d, not %d", most, purchase.Quantity)})
	}
	mode, own := s.options.Catalogue.Mode(goodsID, asked)
	if !s.options.Choose && mode != own {
		return seller{}, fmt.Errorf("%w: item %d is sold by %s, and deduct.choose is off; PATCH /goods/%d of the admin API changes it",
			errChoiceRejected, goodsID, own, goodsID)
	}
	found, err := s.options.Catalogue.In(mode)
	if err == nil {
		return seller{found, mode == own}, waitable(found, purchase.MaxWait)
	}
	if errors.Is(err, service.ErrNotFenceable) {
		return seller{}, invalid(notFenceable(mode.Strategy))
	}
	p := problemOf(err)
	p.Strategies = s.options.Catalogue.Names()
	why := "is unknown"
	if errors.Is(err, service.ErrStrategyRejected) {
		why = "is not available here"
	}
	p.Errors = []fieldError{{"strategy", fmt.Sprintf("%q %s; allowed are those of GET /strategies that are available", mode.Strategy, why)}}
	return seller{}, p
}

// mostWait is far above any lock.wait.
const mostWait = time.Hour

// waitable rejects a wait that a purchase cannot have.
func waitable(by *service.Seller, wait time.Duration) error {
	switch most := by.LockWait(); {
	case wait == 0 || wait <= most:
		return nil
	case by.Group:
		return invalid(fieldError{"wait_ms", "cannot be given with group=true: grouped purchases wait for their lock together"})
	case most == 0:
		return invalid(fieldError{"wait_ms", "cannot be given: " + by.Strategy + " has no lock that a purchase waits for"})
	default:
		return invalid(fieldError{"wait_ms", fmt.Sprintf("must be a whole number from 1 to %d, which is lock.wait, not %d", most.Milliseconds(), wait.Milliseconds())})
	}
}

func notFenceable(strategy string) fieldError {
	return fieldError{"fence", "cannot be true: " + strategy + " has no lock whose token the store could check; " +
		"GET /strategies tells which are fenceable"}
}

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

// unnamed rejects a request without a buyer.
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
		return s.options.unnamed("is missing; this item has a limit per buyer")
	}
	p := problemOf(err)
	if p.Has != nil && s.options.Buyers == nil && !s.options.Reveal {
		p.Has, p.Detail = nil, fmt.Sprintf("%v: one buyer may have %d", stock.ErrUserLimit, p.PerUser)
	}
	return p
}

// timestamp formats a time for JSON: RFC 3339 in UTC, with microseconds.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }
