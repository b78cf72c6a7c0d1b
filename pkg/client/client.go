// Package client speaks to a stockd, or to a balancer before several. It needs
// nothing but the standard library.
//
// A call is sent again by itself only where that is safe, which is where nothing
// can have happened: no connection was made, or the answer was that the service is
// busy. Every purchase has a request id, under which it happens once however often
// it is sent. After ErrOutcomeUnknown nobody knows whether it happened; to find out,
// send the same purchase with the RequestID that the error names.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

// Client speaks to one stockd. It may be used from any number of goroutines, and
// copied. URL must be set, and what Owner needs where it is asked for.
type Client struct {
	// URL is the buyers' listener, such as https://shop.example.
	URL string
	// AdminURL is the owner's listener, and Token what it wants to see.
	AdminURL, Token string
	// BuyerToken says who buys where the stockd wants a signed token (buyer.from: token).
	BuyerToken string
	// Header is sent with every purchase and every look-up of its order, such as what a
	// gateway knows the buyer by.
	Header http.Header
	// HTTP sends the requests; nil is http.DefaultClient. Let the context of a call
	// bound its time, and not a Timeout here.
	HTTP *http.Client
	// Tries bounds how often a call is sent, the first time included; 0 is 4, and 1
	// sends nothing again.
	Tries int
}

// Goods is what is in stock of an item. Where the stockd conceals it from the public
// (http.reveal), Stock, Version and Fence are 0, and Available is what there is.
type Goods struct {
	ID    int64 `json:"goods_id"`
	Stock int64 `json:"stock"`
	// Available tells that units are left.
	Available bool `json:"available"`
	// Version grows with every write of the goods.
	Version int64 `json:"version"`
	// Fence is the highest fencing token that has claimed it.
	Fence uint64 `json:"fence"`
	// PerUser is how many units one buyer may have; 0 for any number.
	PerUser int64 `json:"per_user"`
	// Strategy, Group and Fenced are how the item is sold where a purchase does not say:
	// what is empty or nil is as the stockd is configured.
	Strategy string `json:"strategy"`
	Group    *bool  `json:"group"`
	Fenced   *bool  `json:"fenced"`
	// MaxQuantity is the most units of one purchase; nil: as the stockd is configured.
	MaxQuantity *int64 `json:"max_quantity"`
}

// Goods reads a goods. ErrUnknownGoods: there is none.
func (c Client) Goods(ctx context.Context, id int64) (goods Goods, err error) {
	err = c.do(ctx, call{method: http.MethodGet, url: c.URL + goodsPath(id), into: &goods})
	return goods, err
}

// Audit compares what is in stock of a goods with the ledger of its sales.
type Audit struct {
	GoodsID int64 `json:"goods_id"`
	// Stock is what is left, Initial the sum of all restocks, Sold that of all orders.
	Stock   int64 `json:"stock"`
	Initial int64 `json:"initial"`
	Sold    int64 `json:"sold"`
	Orders  int64 `json:"orders"`
	// Oversold counts units promised that do not exist; Lost is above zero where
	// updates of the stock were lost, and below where stock is gone that nobody bought.
	Oversold int64 `json:"oversold"`
	Lost     int64 `json:"lost"`
	// Clean tells that all of it agrees.
	Clean bool `json:"clean"`
	// Pending counts units promised that the ledger does not have yet; nil where
	// nobody knows.
	Pending *int64 `json:"pending"`
	// Buyers is what an audit in full found about those who bought a goods with a
	// limit; nil where they were not looked at.
	Buyers *Buyers `json:"buyers"`
}

// Buyers counts those with whom something is wrong.
type Buyers struct {
	// Miscounted are those whose count differs from the ledger.
	Miscounted int64 `json:"miscounted"`
	// BeyondLimit are those who have more than the limit, and more than they had
	// when it was set.
	BeyondLimit int64 `json:"beyond_limit"`
}

// Audit asks for the audit of an item. ErrUnknownGoods: there is none. ErrConcealed: the
// stockd does not audit for the public, and AuditInFull does.
func (c Client) Audit(ctx context.Context, goodsID int64) (audit Audit, err error) {
	err = c.do(ctx, call{method: http.MethodGet, url: c.URL + goodsPath(goodsID) + "/audit", into: &audit})
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == "not-found" {
		err = fmt.Errorf("%w: %w", ErrConcealed, err)
	}
	return audit, err
}

// Strategy is a way in which the stockd sells.
type Strategy struct {
	Name    string `json:"name"`
	Family  string `json:"family"`
	Summary string `json:"summary"`
	// Needs are the backends without which it cannot work.
	Needs  []string `json:"needs"`
	Claims Claims   `json:"claims"`
	// Damage is what it does where it claims no exclusion, or all the same.
	Damage string `json:"damage"`
	// Enabled tells that the owner wants it used, Available that it is and that every
	// backend it needs answers; Note is why not.
	Enabled bool `json:"enabled"`
	// RequiresFence tells that it is refused without Purchase.Fence.
	RequiresFence bool `json:"requires_fence"`

	Available bool   `json:"available"`
	Note      string `json:"note"`
	// Hidden tells that what it is there to show cannot be seen on this database.
	Hidden bool `json:"hidden"`
}

// Claims are what a strategy promises.
type Claims struct {
	ExclusiveInProcess      bool `json:"exclusive_in_process"`
	ExclusiveAcrossReplicas bool `json:"exclusive_across_replicas"`
	SurvivesCrash           bool `json:"survives_crashed_holder"`
	Renews                  bool `json:"renews"`
	Reentrant               bool `json:"reentrant"`
	Fair                    bool `json:"fair"`
	Fences                  bool `json:"fencing_token"`
	ReleasesOnlyItsOwn      bool `json:"releases_only_its_own"`
	SignalsLoss             bool `json:"signals_loss"`
	Fenceable               bool `json:"fenceable"`
}

// Strategies lists what the stockd can sell through.
func (c Client) Strategies(ctx context.Context) ([]Strategy, error) {
	var list struct {
		Strategies []Strategy `json:"strategies"`
	}
	err := c.do(ctx, call{method: http.MethodGet, url: c.URL + "/strategies", into: &list})
	return list.Strategies, err
}

func goodsPath(id int64) string { return "/goods/" + strconv.FormatInt(id, 10) }

func strategyPath(name string) string { return "/strategies/" + url.PathEscape(name) }
