package handler

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/stock"
)

// user reads a buyer in the form of buyer.Canonical; a missing field is empty. A JSON number is
// the same buyer as its digits as text, because many systems number their users.
func (f *form) user(name string) string {
	v, ok := f.values[name]
	if !ok {
		return ""
	}
	notDigit := func(r rune) bool { return r < '0' || r > '9' }
	if v.kind == jsonBool || v.kind == jsonNull || v.kind == jsonNumber && strings.ContainsFunc(v.text, notDigit) {
		f.failf(name, "must be text or a whole number, not %s", quote(v))
		return ""
	}
	id, err := buyer.Canonical(v.text)
	if err != nil {
		f.failf(name, "%v, not %s", err, quote(v))
	}
	return id
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

// purchaser is buyerOf for a purchase of an item.
func (o Options) purchaser(r *http.Request, goodsID int64, userID string) (string, error) {
	verified, err := o.buyerOf(r, userID)
	switch {
	case err != nil:
		return "", err
	case verified.ID == "" && o.needsBuyer():
		return "", o.unnamed("is missing; every purchase must name its buyer")
	case verified.GoodsID != 0 && verified.GoodsID != goodsID:
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

// unauthorized is the problem of a request without a valid token.
func unauthorized() problem {
	p := newProblem(http.StatusUnauthorized, "unauthorized", "A bearer token is required")
	p.authenticate = `Bearer realm="stockd"`
	return p
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
