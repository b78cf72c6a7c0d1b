package handler

import (
	"math"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service/room"
	"github.com/stockd/stockd/internal/stock"
)

// line serves the waiting rooms of items.
type line struct{ options Options }

// lineBody is a line, for those who run the sale.
type lineBody struct {
	GoodsID    int64 `json:"goods_id"`
	Waiting    int64 `json:"waiting"`
	Admitted   int64 `json:"admitted"`
	Admissions int64 `json:"admissions"`
	Left       int64 `json:"left"`
	Wait       int64 `json:"wait,omitempty"`
}

// show serves GET /goods/:id/queue.
func (l line) show(c *gin.Context, id int64) (any, error) {
	of, err := l.options.Room.Line(c.Request.Context(), id)
	return lineBody{id, of.Waiting, of.Admitted, of.Admissions, of.Left, int64(of.Wait / time.Second)}, err
}

// placeBody is a place in the line.
type placeBody struct {
	Ticket  string     `json:"ticket"`
	GoodsID int64      `json:"goods_id"`
	State   room.State `json:"state"`
	Place   int64      `json:"place,omitempty"`
	// Wait and AskAfter are in seconds.
	Wait          int64  `json:"wait,omitempty"`
	AskAfter      int64  `json:"ask_after,omitempty"`
	AdmittedUntil string `json:"admitted_until,omitempty"`
}

func (l line) join(c *gin.Context) (any, error) {
	f := readForm(c.Request, "goods_id", "user_id")
	goodsID, userID := f.whole("goods_id", 1, math.MaxInt64), f.user("user_id")
	if err := f.err(); err != nil {
		return nil, err
	}
	userID, err := l.options.purchaser(c.Request, userID, stock.Line{GoodsID: goodsID})
	if err != nil {
		return nil, err
	}
	if userID == "" {
		return nil, l.options.unnamed("is missing; a place in the line is that of a buyer")
	}
	p, err := l.options.Room.Join(c.Request.Context(), goodsID, userID)
	return l.answer(c, p, err)
}

func (l line) look(c *gin.Context) (any, error) {
	if err := hasNoFields(c); err != nil {
		return nil, err
	}
	p, err := l.options.Room.Look(c.Request.Context(), c.Param("ticket"))
	return l.answer(c, p, err)
}

func (l line) answer(c *gin.Context, p room.Place, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	body := placeBody{
		Ticket: p.Ticket, GoodsID: p.GoodsID, State: p.State, Place: p.Place,
		Wait: int64(p.Wait / time.Second), AskAfter: int64(p.AskAfter / time.Second),
	}
	if p.AskAfter > 0 {
		c.Header("Retry-After", strconv.FormatInt(body.AskAfter, 10))
	}
	if p.State == room.Admitted {
		body.AdmittedUntil = timestamp(p.AdmittedUntil)
	}
	return body, nil
}
