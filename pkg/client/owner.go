package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
)

// Create puts a goods on sale, as its owner. Under a requestID it happens once; one
// is made where it is empty. ErrGoodsExist: there is such a goods.
func (c Client) Create(ctx context.Context, goodsID, units int64, requestID string) (goods Goods, err error) {
	return c.CreateLimited(ctx, goodsID, units, 0, requestID)
}

// CreateLimited is Create of a goods of which one buyer may have perUser units, from
// the first sale on; 0 for any number.
func (c Client) CreateLimited(ctx context.Context, goodsID, units, perUser int64, requestID string) (goods Goods, err error) {
	return c.create(ctx, newGoods{GoodsID: goodsID, Stock: units, PerUser: perUser}, requestID)
}

// CreateChosen is CreateLimited of an item that is sold as a choice says, from the first
// sale on. ErrRefused, ErrInvalid: the choice cannot be, and nothing was created.
func (c Client) CreateChosen(ctx context.Context, goodsID, units, perUser int64, choice Choice, requestID string) (goods Goods, err error) {
	return c.create(ctx, newGoods{goodsID, units, perUser, &choice}, requestID)
}

type newGoods struct {
	GoodsID int64 `json:"goods_id"`
	Stock   int64 `json:"stock"`
	PerUser int64 `json:"per_user"`
	*Choice
}

func (c Client) create(ctx context.Context, body newGoods, requestID string) (goods Goods, err error) {
	err = c.do(ctx, call{
		method: http.MethodPost, url: c.AdminURL + "/goods", token: c.Token, requestID: cmp.Or(requestID, rand.Text()),
		body: body, into: &goods,
	})
	return goods, err
}

// Limit sets how many units of a goods one buyer may have, as its owner; 0 lifts the
// limit. What a buyer has already counts. ErrUnknownGoods: nothing was set.
func (c Client) Limit(ctx context.Context, goodsID, perUser int64) (goods Goods, err error) {
	err = c.do(ctx, call{
		method: http.MethodPatch, url: c.AdminURL + goodsPath(goodsID), token: c.Token,
		body: map[string]int64{"per_user": perUser}, into: &goods,
	})
	return goods, err
}

// Choice is how an item is sold where a purchase does not say: what is empty or nil is as
// the stockd is configured.
type Choice struct {
	Strategy string `json:"strategy"`
	Group    *bool  `json:"group"`
	Fence    *bool  `json:"fence"`
	// MaxQuantity is the most units of one purchase, 1 to 1,000,000. Where it is nil, Choose
	// leaves it as it is; LimitPurchase clears it.
	MaxQuantity *int64 `json:"max_quantity,omitempty"`
}

// LimitPurchase sets the most units of one purchase of an item, 1 to 1,000,000, as the
// admin; 0 is as the stockd is configured. ErrUnknownGoods, ErrInvalid: nothing was set.
func (c Client) LimitPurchase(ctx context.Context, goodsID, units int64) (goods Goods, err error) {
	var most *int64
	if units != 0 {
		most = &units
	}
	err = c.do(ctx, call{
		method: http.MethodPatch, url: c.AdminURL + goodsPath(goodsID), token: c.Token,
		body: map[string]*int64{"max_quantity": most}, into: &goods,
	})
	return goods, err
}

// Choose sets how an item is sold, as the admin: through the stockd that is asked at
// once, through the others within about a second. ErrUnknownGoods, ErrRefused,
// ErrInvalid: nothing was set.
func (c Client) Choose(ctx context.Context, goodsID int64, choice Choice) (goods Goods, err error) {
	err = c.do(ctx, call{
		method: http.MethodPatch, url: c.AdminURL + goodsPath(goodsID), token: c.Token, body: choice, into: &goods,
	})
	return goods, err
}

// Restock adds units to a goods, as its owner. Under a requestID it happens once; one
// is made where it is empty. ErrUnknownGoods, ErrStockLimit: nothing was added.
func (c Client) Restock(ctx context.Context, goodsID, units int64, requestID string) (goods Goods, err error) {
	err = c.do(ctx, call{
		method: http.MethodPost, url: c.AdminURL + goodsPath(goodsID) + "/restock", token: c.Token,
		requestID: cmp.Or(requestID, rand.Text()), body: map[string]int64{"quantity": units}, into: &goods,
	})
	return goods, err
}

// AuditInFull is Audit by every row of the ledger, which takes a while, as the
// owner.
func (c Client) AuditInFull(ctx context.Context, goodsID int64) (audit Audit, err error) {
	err = c.do(ctx, call{
		method: http.MethodGet, url: c.AdminURL + goodsPath(goodsID) + "/audit?full=true", token: c.Token, into: &audit,
	})
	return audit, err
}

// SwitchOff switches a strategy off on all replicas, as the owner: on the one that is
// asked at once, on the others within about a second. Who asks for it is told the
// reason, 1 to 200 characters. ErrDefaultStrategy, ErrUnknownStrategy: it is as it was.
func (c Client) SwitchOff(ctx context.Context, strategy, reason string) error {
	return c.turn(ctx, strategy, map[string]any{"enabled": false, "reason": reason})
}

// SwitchOn takes SwitchOff back. ErrRefused: the configuration forbids the strategy.
func (c Client) SwitchOn(ctx context.Context, strategy string) error {
	return c.turn(ctx, strategy, map[string]any{"enabled": true})
}

func (c Client) turn(ctx context.Context, strategy string, to any) error {
	return c.do(ctx, call{method: http.MethodPut, url: c.AdminURL + strategyPath(strategy), token: c.Token, body: to})
}
