package handler

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// orders serves accepted orders; its routes never sell.
type orders struct {
	options Options
	private bool // the admin API, which shows buyers
}

// orderBody is an order as GET /orders shows it. Pointers and the replica are set only where
// http.reveal is on.
type orderBody struct {
	OrderID string `json:"order_id"`
	// Kind is that of its row, only where steps or kinds are listed.
	Kind      stock.Kind       `json:"kind,omitempty"`
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
	// Reason and Counted are those of a correction.
	Reason  string `json:"reason,omitempty"`
	Counted *int64 `json:"counted,omitempty"`
	*stock.Settings
}

func (o orders) body(order stock.Order, durable stock.Durability) orderBody {
	body := orderBody{
		OrderID: order.ID, GoodsID: order.GoodsID, Quantity: order.Quantity, RequestID: stock.KeyOf(order.RequestID),
		Strategy: order.Strategy, Durable: durable, CreatedAt: timestamp(order.CreatedAt), Settings: order.Settings,
	}
	if o.options.Reveal {
		body.Replica, body.Token, body.Remaining = order.Replica, &order.Token, &order.Remaining
	}
	if c := order.Correction; c != nil {
		body.Reason, body.Counted = c.Reason, c.Counted
	}
	if o.private {
		body.UserID = order.UserID
	}
	return body
}

func (o orders) read(c *gin.Context) (any, error) {
	if err := hasNoFields(c); err != nil {
		return nil, err
	}
	userID, anyone, err := o.visibleTo(c, "")
	if err != nil {
		return nil, err
	}
	order, err := o.options.Catalogue.Order(c.Request.Context(), c.Param("id"))
	if errors.Is(err, stock.ErrUnknownOrder) {
		return o.readBasket(c, userID, anyone)
	}
	if err == nil && !anyone && order.UserID != userID {
		err = stock.ErrUnknownOrder
	}
	return o.body(order.Order, order.Durable), err
}

// readBasket finds an order of several items, as POST /orders has answered it.
func (o orders) readBasket(c *gin.Context, userID string, anyone bool) (any, error) {
	basket, err := o.options.Reservations.Basket(c.Request.Context(), c.Param("id"))
	if err == nil && !anyone && basket.Lines[0].UserID != userID {
		err = stock.ErrUnknownOrder
	}
	if err != nil {
		return nil, err
	}
	return basketBody(basket), nil
}

func (o orders) find(c *gin.Context) (any, error) {
	return o.findBy(c, readForm(c.Request, "request_id", "user_id"))
}

// findOrList serves GET /orders of the admin API: the order of a request id, or a page.
func (o orders) findOrList(c *gin.Context) (any, error) {
	f := readForm(c.Request, "request_id", "user_id", "goods_id", "after", "limit", "steps", "kinds", "reader")
	if !f.given("request_id") {
		f.without("user_id", "request_id is not given")
		return o.list(c, f)
	}
	for _, name := range []string{"goods_id", "after", "limit", "steps", "kinds", "reader"} {
		f.without(name, "request_id is given")
	}
	return o.findBy(c, f)
}

func (o orders) findBy(c *gin.Context, f *form) (any, error) {
	key, userID := f.visible("request_id", stock.MaxRequestID), f.user("user_id")
	if err := f.err(); err != nil {
		return nil, err
	}
	userID, anyone, err := o.visibleTo(c, userID)
	if err != nil {
		return nil, err
	}
	var order service.AcceptedOrder
	if anyone {
		order, err = o.options.Catalogue.OrderOfAny(c.Request.Context(), key)
	} else {
		order, err = o.options.Catalogue.OrderOf(c.Request.Context(), key, userID)
	}
	if errors.Is(err, stock.ErrUnknownOrder) {
		basket, err := o.options.Reservations.BasketOf(c.Request.Context(), key, userID)
		if err != nil {
			return nil, err
		}
		return basketBody(basket), nil
	}
	return o.body(order.Order, order.Durable), err
}

// visibleTo returns the buyer whose orders the client may see, or anyone. Verified buyers see
// their own orders only.
func (o orders) visibleTo(c *gin.Context, userID string) (buyerID string, anyone bool, err error) {
	if o.private || o.options.Buyers == nil {
		return userID, userID == "", nil
	}
	buyerID, err = o.options.ownBuyer(c.Request, userID)
	return buyerID, false, err
}

// The bounds of a page.
const (
	defaultPage = 100
	largestPage = 1000
)

// maxReader bounds the name of a reader.
const maxReader = 64

// list returns a page of the ledger. Its cursor is text: clients do not calculate with it.
func (o orders) list(c *gin.Context, f *form) (any, error) {
	asked := service.Page{GoodsID: f.wholeOr("goods_id", 0, 1, math.MaxInt64), After: f.wholeOr("after", 0, 0, math.MaxInt64), Kinds: f.kinds("kinds")}
	if f.given("kinds") {
		f.without("steps", "kinds is given")
	} else if f.flag("steps") {
		asked.Kinds = stock.Steps()
	}
	limit := f.wholeOr("limit", defaultPage, 1, largestPage)
	reader := f.text("reader", maxReader)
	if err := f.err(); err != nil {
		return nil, err
	}
	page, next, err := o.options.Feed.List(c.Request.Context(), reader, asked, int(limit))
	list := make([]orderBody, len(page))
	for i, order := range page {
		list[i] = o.body(order, stock.InSQL)
		if asked.Kinds != nil {
			list[i].Kind = order.Kind
		}
	}
	return gin.H{"orders": list, "next": strconv.FormatInt(next, 10)}, err
}

// kinds reads kinds of the ledger's rows, separated by commas; a missing field is nil.
func (f *form) kinds(name string) []stock.Kind {
	return read(f, name, func() string { return fmt.Sprintf("some of %v, with commas between them", stock.Kinds()) }, jsonText, func(text string) (kinds []stock.Kind, ok bool) {
		for word := range strings.SplitSeq(text, ",") {
			kinds = append(kinds, stock.Kind(word))
		}
		return kinds, !slices.ContainsFunc(kinds, func(k stock.Kind) bool { return !slices.Contains(stock.Kinds(), k) })
	})
}
