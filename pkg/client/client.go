// Package client is a client of stockd, or of a balancer before several replicas. It uses only the
// standard library.
//
//  1. It retries a call by itself only where nothing can have happened: no connection was made, or
//     the service was busy. The attempts have the same request id, and are bounded by Tries and
//     by ctx.
//  2. A call that was sent and not answered is ErrOutcomeUnknown with the request id under which
//     the same purchase finds out. A call that only reads is ErrUnavailable.
//  3. Orders follows the ledger page by page until ctx ends, and ends with the first failure.
//  4. The token of the admin is sent to the admin API alone. A redirect is a failure: what it
//     names gets neither a call nor a token.
package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Client is a client of one stockd. It may be copied, and used from any number of goroutines. URL
// must be set, and AdminURL and Token for calls of the admin API.
type Client struct {
	// URL is the public API, such as https://shop.example.
	URL string
	// AdminURL is the admin API, and Token its bearer token.
	AdminURL, Token string
	// BuyerToken is the signed token of the buyer (buyer.from: token).
	BuyerToken string
	// Header is sent with every purchase and every look-up of its order, such as the header
	// by which a gateway identifies the buyer.
	Header http.Header
	// HTTP sends the requests; nil is http.DefaultClient. Limit the time of a call by its
	// context, not by a Timeout here. A Transport of your own must report its connections to
	// net/http/httptrace: a failure without one counts as not sent.
	HTTP *http.Client
	// Tries is the most attempts of a call; 0 is 4, and 1 never retries.
	Tries int
}

// Goods is an item. Where the stock is not revealed to the public (http.reveal), Stock, Version and
// Fence are 0, and Available is set.
type Goods struct {
	ID    int64 `json:"goods_id"`
	Stock int64 `json:"stock"`
	// Available reports that units are left and on sale.
	Available bool `json:"available"`
	// Availability says it in a word: InStock, FewLeft, SoldOut, NotStarted or SaleEnded.
	Availability string `json:"availability"`
	// Version grows with every write of the item.
	Version int64 `json:"version"`
	// Fence is the highest fencing token that has claimed it.
	Fence uint64 `json:"fence"`
	// PerUser is the most units of one buyer; 0 means unlimited.
	PerUser int64 `json:"per_user"`
	// Strategy, Group and Fenced are how the item is sold by default; empty or nil means as
	// configured.
	Strategy string `json:"strategy"`
	Group    *bool  `json:"group"`
	Fenced   *bool  `json:"fenced"`
	// MaxQuantity is the most units of one purchase; nil means as configured.
	MaxQuantity *int64 `json:"max_quantity"`
	// StartsAt and EndsAt are when it is sold, by the clock of the database, which says Now; nil is any time.
	StartsAt *time.Time `json:"starts_at"`
	EndsAt   *time.Time `json:"ends_at"`
	Now      time.Time  `json:"now"`
	// Changes are those in the background that are in progress or failed. Only a read of the item has them.
	Changes []GoodsChange `json:"changes"`

	// Tag names what is shown; Create, Change, Restock and Correct have none.
	Tag string `json:"-"`
}

// What a buyer can have of an item. FewLeft is 1 to 10 units; NotStarted and SaleEnded are not on sale, whatever is left.
const (
	InStock    = "in-stock"
	FewLeft    = "few-left"
	SoldOut    = "sold-out"
	NotStarted = "not-started"
	SaleEnded  = "ended"
)

// GoodsChange is a change of an item in the background. Since is zero where it is not known, PerUser is the limit that is
// set, and Error is why it failed.
type GoodsChange struct {
	Kind    string    `json:"kind"`
	State   string    `json:"state"` // in-progress, failed, unfinished
	Since   time.Time `json:"since"`
	PerUser *int64    `json:"per_user"`
	Error   string    `json:"error"`
}

func (g *Goods) id() string { return itemID(g.ID) }

func itemID(goodsID int64) string {
	if goodsID == 0 {
		return ""
	}
	return strconv.FormatInt(goodsID, 10)
}

// Goods reads an item. It may return ErrUnknownGoods.
func (c Client) Goods(ctx context.Context, id int64) (Goods, error) {
	return c.Changed(ctx, Goods{ID: id}, 0)
}

// Changed reads an item that was read before as soon as it is shown otherwise, or returns what was read before where it is
// the same for as long as wait, which is up to 20 s. It may return ErrUnknownGoods, and ErrBusy where too many wait.
func (c Client) Changed(ctx context.Context, goods Goods, wait time.Duration) (Goods, error) {
	k := call{method: http.MethodGet, url: c.URL + goodsPath(goods.ID)}
	if goods.Tag != "" {
		k.url, k.more = k.url+"?wait="+wait.String(), http.Header{"If-None-Match": {goods.Tag}}
	}
	var read Goods
	k.into, k.tag = &read, &read.Tag
	err := c.do(ctx, k)
	if err == nil && read.ID == 0 {
		return goods, nil
	}
	return read, err
}

// Audit compares the stock of an item with the ledger of its sales.
type Audit struct {
	GoodsID int64 `json:"goods_id"`
	// Stock is what is left, Initial the sum of all restocks, Corrected that of all corrections, Sold that of all orders.
	Stock     int64 `json:"stock"`
	Initial   int64 `json:"initial"`
	Corrected int64 `json:"corrected"`
	Sold      int64 `json:"sold"`
	Orders    int64 `json:"orders"`
	// Held is what open reservations have taken, and Returned what has come back of Sold.
	Held     int64 `json:"held"`
	Returned int64 `json:"returned"`
	// Oversold counts units sold or held beyond the stock. Lost is positive where updates of the
	// stock were lost, and negative where stock is missing without a purchase.
	Oversold int64 `json:"oversold"`
	Lost     int64 `json:"lost"`
	// Clean reports that stock and ledger are consistent.
	Clean bool `json:"clean"`
	// Pending counts units of accepted orders that are not in the ledger yet; nil means
	// unknown.
	Pending *int64 `json:"pending"`
	// Buyers is the result of a full audit for the buyers of an item with a limit; else nil.
	Buyers *Buyers `json:"buyers"`
}

func (a *Audit) id() string { return itemID(a.GoodsID) }

// Buyers counts inconsistent buyers.
type Buyers struct {
	// Miscounted have a count that differs from the ledger.
	Miscounted int64 `json:"miscounted"`
	// BeyondLimit have more than the limit, and more than they had when it was set.
	BeyondLimit int64 `json:"beyond_limit"`
}

// Audit reads the audit of an item. It may return ErrUnknownGoods. ErrConcealed: the public API has
// no audit; use AuditInFull.
func (c Client) Audit(ctx context.Context, goodsID int64) (Audit, error) {
	audit, err := answer[Audit](ctx, c, call{method: http.MethodGet, url: c.URL + goodsPath(goodsID) + "/audit"})
	if p, ok := errors.AsType[*Problem](err); ok && p.Code == "not-found" {
		err = fmt.Errorf("%w: %w", ErrConcealed, err)
	}
	return audit, err
}

// Strategy is a way to sell.
type Strategy struct {
	Name    string `json:"name"`
	Family  string `json:"family"`
	Summary string `json:"summary"`
	// Needs are the backends that it requires.
	Needs  []string `json:"needs"`
	Claims Claims   `json:"claims"`
	// Damage is what may go wrong where it does not guarantee exclusion.
	Damage string `json:"damage"`
	// Enabled reports that the configuration and the admin allow it, Available that also every
	// backend it needs answers; Note is why not.
	Enabled bool `json:"enabled"`
	// RequiresFence reports that it is rejected without Purchase.Fence.
	RequiresFence bool `json:"requires_fence"`
	// SeveralItems: with group=true it writes purchases of several items in one transaction.
	SeveralItems bool `json:"several_items"`

	Available bool   `json:"available"`
	Note      string `json:"note"`
	// Hidden reports that this database cannot show its anomaly.
	Hidden bool `json:"hidden"`
}

func (s *Strategy) id() string { return s.Name }

// Claims are the guarantees of a strategy.
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

// Strategies lists the strategies.
func (c Client) Strategies(ctx context.Context) ([]Strategy, error) {
	list, err := answer[strategies](ctx, c, call{method: http.MethodGet, url: c.URL + "/strategies"})
	return list.Strategies, err
}

type strategies struct {
	Strategies []Strategy `json:"strategies"`
}

// id is of a list, which may be empty.
func (s *strategies) id() string {
	if s.Strategies == nil {
		return ""
	}
	return "strategies"
}

func goodsPath(id int64) string { return "/goods/" + strconv.FormatInt(id, 10) }

func strategyPath(name string) string { return "/strategies/" + url.PathEscape(name) }
