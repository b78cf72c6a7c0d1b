package handler

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/stockd/stockd/internal/buyer"
	"github.com/stockd/stockd/internal/stock"
)

// user reads who buys, in the one form of buyer.Canonical; what is not there is empty. A
// number of JSON is the same buyer as its digits as text: many systems count their users.
func (f *form) user(name string) string {
	v, given := f.values[name]
	if !given {
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

// needsBuyer tells that no purchase is anonymous. A rate of users is none where a client
// may leave its name out.
func (o Options) needsBuyer() bool { return o.BuyerRequired || o.Limits.User.PerSecond > 0 }

// buyerOf finds out who sent a request. The user_id that it names is believed only where
// nothing else tells; a verified buyer may repeat its own.
func (o Options) buyerOf(r *http.Request, userID string) (buyer.Buyer, error) {
	if o.Buyers == nil {
		return buyer.Buyer{ID: userID}, nil
	}
	who, err := o.Buyers.From(r)
	if wrong, ok := errors.AsType[*buyer.HeaderError](err); ok {
		return buyer.Buyer{}, invalid(fieldError{wrong.Header, wrong.Reason})
	}
	if err != nil {
		p := unauthorized().detail("%v", err)
		p.authenticate = `Bearer error="invalid_token"`
		return buyer.Buyer{}, p
	}
	if userID != "" && userID != who.ID {
		return buyer.Buyer{}, invalid(fieldError{"user_id", "must be left out, or be that of the verified buyer"})
	}
	return who, nil
}

// purchaser is buyerOf for a purchase of an item.
func (o Options) purchaser(r *http.Request, goodsID int64, userID string) (string, error) {
	who, err := o.buyerOf(r, userID)
	switch {
	case err != nil:
		return "", err
	case who.ID == "" && o.needsBuyer():
		return "", o.unnamed("is missing; every purchase names its buyer here")
	case who.GoodsID != 0 && who.GoodsID != goodsID:
		return "", newProblem(http.StatusForbidden, "token-bound", "The token is for another item").
			detail("the token is for goods_id %d alone", who.GoodsID)
	}
	return who.ID, nil
}

// unnamed rejects a request that does not tell who buys.
func (o Options) unnamed(why string) problem {
	if o.Buyers == nil {
		return invalid(fieldError{"user_id", why})
	}
	return unauthorized().detail("the buyer %s", why)
}

// unauthorized is the problem of a request without a token that is good.
func unauthorized() problem {
	p := newProblem(http.StatusUnauthorized, "unauthorized", "A bearer token is required")
	p.authenticate = `Bearer realm="stockd"`
	return p
}

// problemOf is the problem of a purchase that was not sold. How much a buyer has is for
// that buyer: where anybody may name it, only what is revealed tells.
func (s sale) problemOf(err error) problem {
	if errors.Is(err, stock.ErrUserUnknown) {
		return s.options.unnamed("is missing; of this item one buyer may have only so many")
	}
	p := problemOf(err)
	if p.Has != nil && s.options.Buyers == nil && !s.options.Reveal {
		p.Has, p.Detail = nil, fmt.Sprintf("%v: one buyer may have %d", stock.ErrUserLimit, p.PerUser)
	}
	return p
}
