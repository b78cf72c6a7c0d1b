package handler

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// orders serves orders that were accepted; none of its routes sells.
type orders struct {
	options Options
	private bool // for the admin API, which shows who bought
}

// orderBody is an order as GET /orders shows it. What is a pointer, and the replica, is
// revealed or left out.
type orderBody struct {
	OrderID   string           `json:"order_id"`
	GoodsID   int64            `json:"goods_id"`
	Quantity  int64            `json:"quantity"`
	RequestID string           `json:"request_id"`
	UserID    string           `json:"user_id,omitempty"`
	Strategy  string           `json:"strategy"`
	Replica   string           `json:"replica,omitempty"`
	Token     *uint64          `json:"token,omitempty"`
	Remaining *int64           `json:"remaining,omitempty"`
	Durable   stock.Durability `json:"durable"`
	CreatedAt string           `json:"created_at"`
}

func (o orders) body(order stock.Order, durable stock.Durability) orderBody {
	body := orderBody{
		OrderID: order.ID, GoodsID: order.GoodsID, Quantity: order.Quantity, RequestID: stock.KeyOf(order.RequestID),
		Strategy: order.Strategy, Durable: durable, CreatedAt: timestamp(order.CreatedAt),
	}
	if o.options.Reveal {
		body.Replica, body.Token, body.Remaining = order.Replica, &order.Token, &order.Remaining
	}
	if o.private {
		body.UserID = order.UserID
	}
	return body
}

// timestamp is a time as JSON has it: RFC 3339 in UTC, with microseconds.
func timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

// read serves GET /orders/:id.
func (o orders) read(c *gin.Context) {
	if !hasNoFields(c) {
		return
	}
	whose, anyone, err := o.owned(c, "")
	if err != nil {
		answer(c, err)
		return
	}
	order, err := o.options.Catalogue.Order(c.Request.Context(), c.Param("id"))
	if err == nil && !anyone && order.UserID != whose {
		err = stock.ErrUnknownOrder
	}
	o.respond(c, order, err)
}

// find serves GET /orders?request_id=.
func (o orders) find(c *gin.Context) {
	f, err := readForm(c.Request, "request_id", "user_id")
	if err != nil {
		answer(c, err)
		return
	}
	o.findBy(c, f)
}

// findOrList serves GET /orders of the admin API: the order of a request id, or a page.
func (o orders) findOrList(c *gin.Context) {
	f, err := readForm(c.Request, "request_id", "user_id", "goods_id", "after", "limit")
	if err != nil {
		answer(c, err)
		return
	}
	if _, given := f.values["request_id"]; !given {
		f.without("user_id", "request_id is not given")
		o.list(c, f)
		return
	}
	for _, name := range []string{"goods_id", "after", "limit"} {
		f.without(name, "request_id is given")
	}
	o.findBy(c, f)
}

func (o orders) findBy(c *gin.Context, f *form) {
	key := f.visible("request_id", stock.MaxRequestID)
	userID := f.user("user_id")
	if err := f.err(); err != nil {
		answer(c, err)
		return
	}
	whose, anyone, err := o.owned(c, userID)
	if err != nil {
		answer(c, err)
		return
	}
	var order service.AcceptedOrder
	if anyone {
		order, err = o.options.Catalogue.OrderOfAny(c.Request.Context(), key)
	} else {
		order, err = o.options.Catalogue.OrderOf(c.Request.Context(), key, whose)
	}
	o.respond(c, order, err)
}

// owned is the buyer whose orders are looked at, unless they are anyone's. Where buyers are
// verified, a client looks at its own alone.
func (o orders) owned(c *gin.Context, userID string) (whose string, anyone bool, err error) {
	if o.private || o.options.Buyers == nil {
		return userID, userID == "", nil
	}
	who, err := o.options.buyerOf(c.Request, userID)
	if err == nil && who.ID == "" && o.options.needsBuyer() {
		err = o.options.unnamed("is missing; a client finds its own orders here")
	}
	return who.ID, false, err
}

func (o orders) respond(c *gin.Context, order service.AcceptedOrder, err error) {
	respond(c, o.options.Log, http.StatusOK, o.body(order.Order, order.Durable), err)
}

// The bounds of a page.
const (
	defaultPage = 100
	largestPage = 1000
)

// list is a page of the ledger. A cursor is text: no client needs to count with it.
func (o orders) list(c *gin.Context, f *form) {
	goodsID := f.wholeOr("goods_id", 0, 1, math.MaxInt64)
	after := f.wholeOr("after", 0, 0, math.MaxInt64)
	limit := f.wholeOr("limit", defaultPage, 1, largestPage)
	if err := f.err(); err != nil {
		answer(c, err)
		return
	}
	page, next, err := o.options.Inventory.Orders(c.Request.Context(), goodsID, after, int(limit))
	list := make([]orderBody, len(page))
	for i, order := range page {
		list[i] = o.body(order, stock.InSQL)
	}
	respond(c, o.options.Log, http.StatusOK, gin.H{"orders": list, "next": strconv.FormatInt(next, 10)}, err)
}
