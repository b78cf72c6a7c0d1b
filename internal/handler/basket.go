package handler

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// soldBasket is the answer to an order of several items.
type soldBasket struct {
	OrderID   string     `json:"order_id"`
	Lines     []soldLine `json:"lines"`
	CreatedAt string     `json:"created_at"`
}

// soldLine is a line of it, which is an order by itself in the ledger.
type soldLine struct {
	OrderID  string `json:"order_id"`
	GoodsID  int64  `json:"goods_id"`
	Quantity int64  `json:"quantity"`
	Strategy string `json:"strategy"`
}

// order serves POST /orders: several items, all or nothing.
func (s sale) order(c *gin.Context) {
	f := readForm(c.Request, "strategy", "group", "fence", "lines", "user_id")
	basket := service.Basket{Lines: f.lines("lines"), Asked: f.asked()}
	key, userID := f.idempotencyKey(c.Request), f.user("user_id")
	err := f.err()
	if err == nil {
		basket.UserID, err = s.options.purchaser(c.Request, userID, basket.Lines...)
	}
	if err != nil {
		answer(c, err)
		return
	}
	basket.RequestID = stock.BuyerKey(cmp.Or(key, service.NewKey()), basket.UserID)
	ctx, cancel := s.shop.Within(c.Request.Context())
	defer cancel()
	sold, err := s.shop.BuyBasket(ctx, &basket)
	if err != nil {
		s.reject(c, basket.RequestID, err)
		if basket.HasHeld() {
			c.Set(shedKey, false) // it has held lines, and given them back: that is not free
		}
		return
	}
	replayed(c, sold.Replayed)
	c.JSON(http.StatusCreated, basketBody(sold))
}

func basketBody(b service.SoldBasket) soldBasket {
	body := soldBasket{OrderID: b.Number, Lines: make([]soldLine, len(b.Lines)), CreatedAt: timestamp(b.Lines[0].HeldAt)}
	for i, r := range b.Lines {
		body.Lines[i] = soldLine{OrderID: r.Number, GoodsID: r.GoodsID, Quantity: r.Quantity, Strategy: r.Strategy}
	}
	return body
}

// lines reads the lines of a basket: in JSON a list of objects, elsewhere goods_id:quantity,
// separated by commas. An item that is there twice is one line.
func (f *form) lines(name string) (lines []stock.Line) {
	allowed := fmt.Sprintf("1 to %d items, each with a goods_id and a quantity from 1 to %d", stock.MaxLines, int64(stock.MaxQuantity))
	f.require(name, allowed)
	return read(f, name, words(allowed), jsonList|jsonText, func(text string) ([]stock.Line, bool) {
		parse := linesOfText
		if f.values[name].kind == jsonList {
			parse = linesOfJSON
		}
		given, err := parse(text)
		if err != nil {
			return nil, false
		}
		for _, line := range given {
			at := slices.IndexFunc(lines, func(l stock.Line) bool { return l.GoodsID == line.GoodsID })
			if at < 0 {
				at, lines = len(lines), append(lines, stock.Line{GoodsID: line.GoodsID})
			}
			if line.GoodsID < 1 || line.Quantity < 1 || line.Quantity > stock.MaxQuantity-lines[at].Quantity {
				return nil, false
			}
			lines[at].Quantity += line.Quantity
			if len(lines) > stock.MaxLines {
				return nil, false
			}
		}
		return lines, len(lines) > 0
	})
}

func linesOfText(text string) (lines []stock.Line, err error) {
	for item := range strings.SplitSeq(text, ",") {
		id, quantity, ok := strings.Cut(item, ":")
		if !ok {
			quantity = "1"
		}
		line := stock.Line{}
		var wrong error
		line.GoodsID, err = strconv.ParseInt(id, 10, 64)
		line.Quantity, wrong = strconv.ParseInt(quantity, 10, 64)
		if err = errors.Join(err, wrong); err != nil {
			return nil, err
		}
		lines = append(lines, line)
	}
	return lines, nil
}

// linesOfJSON reads each line as the object around them is read: its names are known, and once there.
func linesOfJSON(text string) ([]stock.Line, error) {
	var objects []json.RawMessage
	if err := json.Unmarshal([]byte(text), &objects); err != nil {
		return nil, err
	}
	lines := make([]stock.Line, len(objects))
	for i, object := range objects {
		f := formOf(object, "goods_id", "quantity")
		lines[i] = stock.Line{GoodsID: f.whole("goods_id", 1, math.MaxInt64), Quantity: f.wholeOr("quantity", 1, 1, stock.MaxQuantity)}
		if err := f.err(); err != nil {
			return nil, err
		}
	}
	return lines, nil
}
