package handler

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/stock"
)

// sale serves purchases, and the strategies that make them.
type sale struct {
	options Options
	slots   *slots
	users   *limiter
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
	f, err := readForm(c.Request, "strategy", "group", "fence", "goods_id", "quantity", "user_id", "durable")
	if err != nil {
		answer(c, err)
		return
	}
	goodsID := f.whole("goods_id", 1, math.MaxInt64)
	key, userID := f.idempotencyKey(c.Request), f.user("user_id")
	purchase := stock.Purchase{
		Keyed:    key != "",
		Quantity: f.wholeOr("quantity", 1, 1, stock.MaxQuantity),
		Durable:  f.durability(),
	}
	asked := stock.Choice{Strategy: f.text("strategy", mostStrategy), Group: f.flagIfGiven("group"), Fence: f.flagIfGiven("fence")}
	if err := f.err(); err != nil {
		answer(c, err)
		return
	}
	if purchase.UserID, err = s.options.purchaser(c.Request, goodsID, userID); err != nil {
		answer(c, err)
		return
	}
	if purchase.Keyed {
		purchase.RequestID = stock.BuyerKey(key, purchase.UserID)
	}
	ctx, cancel := s.options.Catalogue.Within(c.Request.Context())
	defer cancel()
	outcome, err := s.options.Catalogue.Replay(ctx, goodsID, purchase)
	if err == nil && !outcome.Replayed {
		outcome, err = s.sell(ctx, goodsID, purchase, func() (seller, error) { return s.seller(goodsID, purchase.Quantity, asked) })
	}
	if err != nil {
		s.reject(c, cmp.Or(outcome.Order.RequestID, key), err)
		return
	}
	s.accept(c, outcome)
}

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

// accept answers a purchase that was sold now or earlier.
func (s sale) accept(c *gin.Context, outcome stock.Outcome) {
	if outcome.Replayed {
		c.Header("Idempotency-Replayed", "true")
	}
	c.JSON(http.StatusOK, s.answerTo(outcome))
}

func (s sale) answerTo(o stock.Outcome) sold {
	answer := sold{
		OrderID:   o.Order.ID,
		GoodsID:   o.Order.GoodsID,
		Quantity:  o.Order.Quantity,
		Strategy:  o.Order.Strategy,
		CreatedAt: timestamp(o.Order.CreatedAt),
		Durable:   cmp.Or(o.Durable, stock.InSQL),
	}
	if s.options.Reveal {
		answer.Remaining, answer.Replica, answer.Token = &o.Order.Remaining, o.Order.Replica, &o.Order.Token
		answer.WaitMS, answer.HoldMS = new(milliseconds(o.Wait)), new(milliseconds(o.Hold))
	}
	return answer
}

func (s sale) reject(c *gin.Context, requestID string, err error) {
	p := s.problemOf(err)
	if _, ok := errors.AsType[*shedError](err); ok {
		c.Set(shedKey, true)
	}
	if errors.Is(err, stock.ErrUnknownOutcome) {
		p.RequestID = stock.KeyOf(requestID)
		p.Detail += "; send the same request with Idempotency-Key: " + p.RequestID + " to find out"
	}
	logFailure(c, s.options.Log, p, err)
	answer(c, p)
}

// strategies serves GET /strategies.
func (s sale) strategies(c *gin.Context) (any, error) {
	return gin.H{"strategies": s.options.Catalogue.Describe(c.Request.Context())}, nil
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}
