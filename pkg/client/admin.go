package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
)

// Create creates an item, on the admin API. Under a requestID it happens once; if it is empty, one
// is generated. It may return ErrGoodsExist.
func (c Client) Create(ctx context.Context, goodsID, units int64, requestID string) (goods Goods, err error) {
	return c.CreateLimited(ctx, goodsID, units, 0, requestID)
}

// CreateLimited is Create with a limit of perUser units per buyer; 0 means unlimited.
func (c Client) CreateLimited(ctx context.Context, goodsID, units, perUser int64, requestID string) (goods Goods, err error) {
	return c.create(ctx, newGoods{GoodsID: goodsID, Stock: units, PerUser: perUser}, requestID)
}

// CreateChosen is CreateLimited of an item with a choice. ErrRefused, ErrInvalid: the choice is not
// possible, and nothing was created.
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

// Limit sets the limit per buyer of an item, on the admin API; 0 removes it. Earlier purchases
// count. It may return ErrUnknownGoods.
func (c Client) Limit(ctx context.Context, goodsID, perUser int64) (goods Goods, err error) {
	err = c.do(ctx, call{
		method: http.MethodPatch, url: c.AdminURL + goodsPath(goodsID), token: c.Token,
		body: map[string]int64{"per_user": perUser}, into: &goods,
	})
	return goods, err
}

// Choice is how an item is sold by default; empty or nil means as configured.
type Choice struct {
	Strategy string `json:"strategy"`
	Group    *bool  `json:"group"`
	Fence    *bool  `json:"fence"`
	// MaxQuantity is the most units of one purchase, 1 to 1,000,000. Where it is nil, Choose
	// leaves it as it is; LimitPurchase clears it.
	MaxQuantity *int64 `json:"max_quantity,omitempty"`
}

// LimitPurchase sets the most units of one purchase of an item, 1 to 1,000,000, on the admin API;
// 0 means as configured. ErrUnknownGoods, ErrInvalid: nothing was set.
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

// Choose sets how an item is sold, on the admin API: on the replica that serves the call at once,
// on the others within about a second. ErrUnknownGoods, ErrRefused,
// ErrInvalid: nothing was set.
func (c Client) Choose(ctx context.Context, goodsID int64, choice Choice) (goods Goods, err error) {
	err = c.do(ctx, call{
		method: http.MethodPatch, url: c.AdminURL + goodsPath(goodsID), token: c.Token, body: choice, into: &goods,
	})
	return goods, err
}

// Restock adds units to an item, on the admin API. Under a requestID it happens once; if it is
// empty, one is generated. ErrUnknownGoods, ErrStockLimit: nothing was added.
func (c Client) Restock(ctx context.Context, goodsID, units int64, requestID string) (goods Goods, err error) {
	err = c.do(ctx, call{
		method: http.MethodPost, url: c.AdminURL + goodsPath(goodsID) + "/restock", token: c.Token,
		requestID: cmp.Or(requestID, rand.Text()), body: map[string]int64{"quantity": units}, into: &goods,
	})
	return goods, err
}

// AuditInFull is Audit over every row of the ledger, which takes longer, on the admin API.
func (c Client) AuditInFull(ctx context.Context, goodsID int64) (audit Audit, err error) {
	err = c.do(ctx, call{
		method: http.MethodGet, url: c.AdminURL + goodsPath(goodsID) + "/audit?full=true", token: c.Token, into: &audit,
	})
	return audit, err
}

// SwitchOff switches a strategy off on all replicas, on the admin API: on the replica that serves
// the call at once, on the others within about a second. Rejected purchases get the reason, 1 to
// 200 characters. ErrDefaultStrategy, ErrUnknownStrategy: nothing was changed.
func (c Client) SwitchOff(ctx context.Context, strategy, reason string) error {
	return c.turn(ctx, strategy, map[string]any{"enabled": false, "reason": reason})
}

// SwitchOn reverts SwitchOff. ErrRefused: the configuration forbids the strategy.
func (c Client) SwitchOn(ctx context.Context, strategy string) error {
	return c.turn(ctx, strategy, map[string]any{"enabled": true})
}

// turned is the answer to a switch.
type turned struct {
	Name string `json:"name"`
}

func (t *turned) id() string { return t.Name }

func (c Client) turn(ctx context.Context, strategy string, to any) error {
	return c.do(ctx, call{method: http.MethodPut, url: c.AdminURL + strategyPath(strategy), token: c.Token, body: to, into: new(turned)})
}
