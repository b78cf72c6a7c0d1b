package handler

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// sale serves buyers.
type sale struct {
	options Options
	places  places
	users   *limiter
}

// places are those of the purchases that are served at a time; nil has room for
// all.
type places chan struct{}

func newPlaces(most int) places {
	if most == 0 {
		return nil
	}
	return make(places, most)
}

// take takes a place, which free gives back. Nobody waits for one: where all
// are taken there is a queue already, which another one would only make longer.
func (p places) take() (free func(), err error) {
	if p == nil {
		return func() {}, nil
	}
	select {
	case p <- struct{}{}:
		return func() { <-p }, nil
	default:
		return nil, fmt.Errorf("%w: this replica serves %d purchases already", stock.ErrBusy, cap(p))
	}
}

// sold is the answer to a purchase that was accepted.
type sold struct {
	OrderID   string  `json:"order_id"`
	GoodsID   int64   `json:"goods_id"`
	Quantity  int64   `json:"quantity"`
	Remaining int64   `json:"remaining"`
	Strategy  string  `json:"strategy"`
	Replica   string  `json:"replica"`
	Token     uint64  `json:"token"`
	WaitMS    float64 `json:"wait_ms"`
	HoldMS    float64 `json:"hold_ms"`
	// Durable is where the order is written down.
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
	key := f.idempotencyKey(c.Request)
	purchase := stock.Purchase{
		RequestID: key,
		Keyed:     key != "",
		Quantity:  f.wholeOr("quantity", 1, 1, stock.MaxQuantity),
		UserID:    f.text("user_id", stock.MaxUserID),
		Durable:   f.durability(),
	}
	name := f.text("strategy", 64)
	if name == "" {
		name = s.options.DefaultStrategy
	}
	group, fence := f.flag("group"), f.flag("fence")
	if err := f.err(); err != nil {
		answer(c, err)
		return
	}
	service, err := s.service(name, group, fence)
	if err != nil {
		answer(c, err)
		return
	}
	if wait := s.limitUser(purchase.UserID); wait > 0 {
		s.options.heard().RateLimited(byUser)
		answer(c, tooOften("this user_id buys", wait))
		return
	}
	// Only now, when all of the request is here: who sends it slowly must not
	// have a place meanwhile.
	free, err := s.places.take()
	if err != nil {
		s.options.heard().Shed()
		answer(c, err)
		return
	}
	defer free()
	s.sell(c, service, goodsID, purchase)
}

// limitUser counts a purchase of somebody who says who he is.
func (s sale) limitUser(id string) (wait time.Duration) {
	if id == "" {
		return 0
	}
	return s.users.take(id, time.Now())
}

// service finds what sells: a strategy, grouped and fenced where that is asked
// for.
func (s sale) service(name string, group, fence bool) (*service.Service, error) {
	found, err := s.options.Catalogue.Service(name)
	if err != nil {
		p := problemOf(err)
		p.Strategies = s.options.Catalogue.Names()
		why := "is not known"
		if errors.Is(err, service.ErrStrategyRefused) {
			why = "is refused here"
		}
		p.Errors = []fieldError{{"strategy", fmt.Sprintf("%q %s; allowed are those of GET /strategies that are available", name, why)}}
		return nil, p
	}
	if group {
		found = found.Grouped()
	}
	if !fence {
		return found, nil
	}
	fenced, err := found.Fenced()
	if err != nil {
		return nil, invalid(fieldError{"fence", "cannot be true: " + name + " has no lock whose token the store could check; " +
			"GET /strategies tells which are fenceable"})
	}
	return fenced, nil
}

func (s sale) sell(c *gin.Context, service *service.Service, goodsID int64, purchase stock.Purchase) {
	outcome, err := service.Deduct(c.Request.Context(), goodsID, purchase)
	if err == nil {
		err = outcome.Refused
	}
	if err != nil {
		s.refuse(c, outcome.Order.RequestID, err)
		return
	}
	if outcome.Replayed {
		c.Header("Idempotency-Replayed", "true")
	}
	c.JSON(http.StatusOK, sold{
		OrderID:   outcome.Order.ID,
		GoodsID:   outcome.Order.GoodsID,
		Quantity:  outcome.Order.Quantity,
		Remaining: outcome.Order.Remaining,
		Strategy:  outcome.Order.Strategy,
		Replica:   outcome.Order.Replica,
		Token:     outcome.Order.Token,
		WaitMS:    milliseconds(outcome.Wait),
		HoldMS:    milliseconds(outcome.Hold),
		Durable:   cmp.Or(outcome.Durable, stock.InSQL),
	})
}

func (s sale) refuse(c *gin.Context, requestID string, err error) {
	p := problemOf(err)
	if isUnknown(err) {
		p.RequestID = requestID
		p.Detail += "; send the same request with Idempotency-Key: " + requestID + " to find out"
	}
	logFailure(c, s.options.Log, p, err)
	answer(c, p)
}

// strategies serves GET /strategies.
func (s sale) strategies(c *gin.Context) {
	c.JSON(http.StatusOK, gin.H{"strategies": s.options.Catalogue.Describe(c.Request.Context())})
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}
