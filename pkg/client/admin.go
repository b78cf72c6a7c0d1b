package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"time"
)

// NewItem is an item to be created.
type NewItem struct {
	GoodsID int64 `json:"goods_id"`
	Stock   int64 `json:"stock"`
	// PerUser is the most units of one buyer; 0 means unlimited, and nil as configured.
	PerUser *int64 `json:"per_user,omitempty"`
	// MaxQuantity is the most units of one purchase, 1 to 1,000,000; 0 means as configured.
	MaxQuantity int64 `json:"max_quantity,omitempty"`
	// StartsAt and EndsAt are when it is sold, by the clock of the database; nil is any time.
	StartsAt *time.Time `json:"starts_at,omitempty"`
	EndsAt   *time.Time `json:"ends_at,omitempty"`
	// Choice is how it is sold; nil means as configured.
	*Choice

	// RequestID makes it happen once; if it is empty, one is generated.
	RequestID string `json:"-"`
}

// Choice is how an item is sold by default; empty or nil means as configured.
type Choice struct {
	Strategy string `json:"strategy"`
	Group    *bool  `json:"group"`
	Fence    *bool  `json:"fence"`
}

// Create creates an item, on the admin API. It may return ErrGoodsExist. ErrRefused, ErrInvalid: the
// choice is not possible. Nothing was created then.
func (c Client) Create(ctx context.Context, item NewItem) (Goods, error) {
	return answer[Goods](ctx, c, c.asAdmin(http.MethodPost, "/goods").under(item.RequestID, item))
}

// Change is what changes of an item; nil leaves it as it is.
type Change struct {
	// PerUser is the limit per buyer; 0 removes it. Earlier purchases count.
	PerUser *int64
	// MaxQuantity is the most units of one purchase, 1 to 1,000,000; 0 means as configured.
	MaxQuantity *int64
	// StartsAt and EndsAt are when it is sold; the zero time is any time.
	StartsAt, EndsAt *time.Time
	// Choice is how it is sold: on the replica that serves the call at once, on the others within
	// about a second.
	Choice *Choice
}

// Change changes an item, on the admin API. ErrUnknownGoods, ErrRefused, ErrInvalid: nothing was
// changed.
func (c Client) Change(ctx context.Context, goodsID int64, to Change) (Goods, error) {
	body := make(map[string]any)
	if to.PerUser != nil {
		body["per_user"] = *to.PerUser
	}
	if to.MaxQuantity != nil {
		body["max_quantity"] = to.MaxQuantity
		if *to.MaxQuantity == 0 {
			body["max_quantity"] = nil
		}
	}
	for name, at := range map[string]*time.Time{"starts_at": to.StartsAt, "ends_at": to.EndsAt} {
		if at != nil {
			body[name] = at
			if at.IsZero() {
				body[name] = nil
			}
		}
	}
	if to.Choice != nil {
		body["strategy"], body["group"], body["fence"] = to.Choice.Strategy, to.Choice.Group, to.Choice.Fence
	}
	return answer[Goods](ctx, c, c.asAdmin(http.MethodPatch, goodsPath(goodsID)).with(body))
}

// Restock adds units to an item, on the admin API. Under a requestID it happens once; if it is
// empty, one is generated. ErrUnknownGoods, ErrStockLimit: nothing was added.
func (c Client) Restock(ctx context.Context, goodsID, units int64, requestID string) (Goods, error) {
	k := c.asAdmin(http.MethodPost, goodsPath(goodsID)+"/restock")
	return answer[Goods](ctx, c, k.under(requestID, map[string]int64{"quantity": units}))
}

// Correction sets the stock of an item right, on the admin API: to what was counted, or by a difference.
type Correction struct {
	// Counted is how many units there are, for sale and held: what is on the shelf once the sold units are off it. Where it
	// is nil, By says how many more there are; it is negative where there are fewer.
	Counted *int64 `json:"counted,omitempty"`
	By      int64  `json:"by,omitempty"`
	// Reason is 1 to 200 characters, which the feed shows.
	Reason string `json:"reason"`

	// RequestID makes it happen once; if it is empty, one is generated.
	RequestID string `json:"-"`
}

// Corrected is an item after a correction, and how many units that has added.
type Corrected struct {
	Goods

	By int64 `json:"corrected"`
}

// Correct corrects the stock of an item, on the admin API. ErrUnknownGoods, ErrStockLimit, ErrInvalid: nothing was changed.
// So with ErrBelowZero, whose *Problem has the units that can be sold, are held and are sold.
func (c Client) Correct(ctx context.Context, goodsID int64, to Correction) (Corrected, error) {
	return answer[Corrected](ctx, c, c.asAdmin(http.MethodPost, goodsPath(goodsID)+"/correct").under(to.RequestID, to))
}

// ClosedSale is an item whose sale is closed, with the audit after its last purchase.
type ClosedSale struct {
	GoodsID int64     `json:"goods_id"`
	EndsAt  time.Time `json:"ends_at"`
	Audit   Audit     `json:"audit"`
}

// CloseSale ends the sale of an item, on the admin API. After it nothing of the item is sold or held, at any replica; what is
// held can be confirmed or released. Closing again is safe, and completes a close that failed with ErrUnavailable or
// ErrOutcomeUnknown.
func (c Client) CloseSale(ctx context.Context, goodsID int64) (ClosedSale, error) {
	return answer[ClosedSale](ctx, c, c.asAdmin(http.MethodPost, goodsPath(goodsID)+"/close"))
}

// AuditInFull is Audit over every row of the ledger, which takes longer, on the admin API.
func (c Client) AuditInFull(ctx context.Context, goodsID int64) (Audit, error) {
	return answer[Audit](ctx, c, c.asAdmin(http.MethodGet, goodsPath(goodsID)+"/audit?full=true"))
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

func (c Client) turn(ctx context.Context, strategy string, to any) error {
	_, err := answer[Strategy](ctx, c, c.asAdmin(http.MethodPut, strategyPath(strategy)).with(to))
	return err
}

// Imported is what came of a line of an import.
type Imported struct {
	// Line counts from 1. Result is "created", "changed", "same", or "failed" with a Problem.
	Line    int      `json:"line"`
	GoodsID int64    `json:"goods_id"`
	Result  string   `json:"result"`
	Item    Goods    `json:"item"`
	Problem *Problem `json:"problem"`
}

// Import puts up to 500 items, in a body of up to 16 KiB, on the admin API; each is a NewItem, or what marshals to its
// fields. One that does not exist is created; one that exists gets the limit and the strategy that are given, and keeps its
// units. Importing again changes nothing, so that an import whose outcome is unknown is sent again. An item that fails does
// not concern the others.
func (c Client) Import(ctx context.Context, items ...any) ([]Imported, error) {
	done, err := answer[struct {
		Lines []Imported `json:"lines"`
	}](ctx, c, c.asAdmin(http.MethodPost, "/goods/import").with(map[string]any{"lines": items}))
	for _, line := range done.Lines {
		if line.Problem != nil {
			line.Problem.Code = strings.TrimPrefix(line.Problem.Code, problemPrefix)
		}
	}
	return done.Lines, err
}

// Items lists all items by their ids, after one, on the admin API. An error is the last that it yields.
func (c Client) Items(ctx context.Context, after int64) iter.Seq2[Goods, error] {
	return func(yield func(Goods, error) bool) {
		for {
			page, err := answer[struct {
				Goods []Goods `json:"goods"`
			}](ctx, c, c.asAdmin(http.MethodGet, fmt.Sprintf("/goods?limit=1000&after=%d", after)))
			if err != nil {
				yield(Goods{}, err)
			}
			for _, goods := range page.Goods {
				if after = goods.ID; !yield(goods, nil) {
					return
				}
			}
			if len(page.Goods) == 0 {
				return
			}
		}
	}
}
