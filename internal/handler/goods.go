package handler

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// goods serves items: the public API reads them, the admin API changes them.
type goods struct{ options Options }

// item is an item as the admin API, and a public API that reveals its stock, show it.
type item struct {
	stock.Goods
	stock.Choice

	Available    bool     `json:"available"`
	Availability string   `json:"availability"`
	Changes      []change `json:"changes,omitempty"`
}

// change is a change of an item in the background that is in progress or failed.
type change struct {
	Kind    string    `json:"kind"`
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	PerUser *int64    `json:"per_user,omitempty"`
	Error   string    `json:"error,omitempty"`
}

func shownChange(of stock.Change) change {
	shown := change{Kind: of.Kind, State: of.State, Since: of.Since}
	if of.Kind == stock.ChangeOfLimit && of.State != stock.ChangeUnfinished {
		shown.PerUser = &of.PerUser
	}
	if of.Err != nil {
		p := problemOf(of.Err)
		shown.Error = cmp.Or(p.Detail, p.Title)
	}
	return shown
}

func (g goods) shown(row stock.Goods) item {
	return item{Goods: row, Choice: g.options.Catalogue.Choice(row.ID), Available: row.Available(), Availability: row.Availability()}
}

func (g goods) item(row stock.Goods, err error) (any, error) { return g.shown(row), err }

// concealedItem is an item as the public API shows it where the stock is not revealed.
type concealedItem struct {
	GoodsID int64 `json:"goods_id"`
	PerUser int64 `json:"per_user"`
	stock.Choice

	Available    bool   `json:"available"`
	Availability string `json:"availability"`
	stock.Sale
}

func (g goods) read(c *gin.Context, id int64) (any, error) {
	found, err := g.options.Inventory.Item(c.Request.Context(), id)
	return g.shownRead(found), err
}

func (g goods) shownRead(found service.Item) any {
	if !g.options.Reveal {
		return concealedItem{found.ID, found.PerUser, g.options.Catalogue.Choice(found.ID), found.Available(), found.Availability(), found.Sale}
	}
	read := g.shown(found.Goods)
	for _, of := range found.Changes {
		read.Changes = append(read.Changes, shownChange(of))
	}
	return read
}

func (g goods) audit(c *gin.Context, id int64) (any, error) {
	if err := hasNoFields(c); err != nil {
		return nil, err
	}
	return g.options.Inventory.Audit(c.Request.Context(), id)
}

// adminAudit serves GET /goods/:id/audit of the admin API, where full=true reads every row of
// the ledger.
func (g goods) adminAudit(c *gin.Context, id int64) (audit any, err error) {
	f := readForm(c.Request, "full")
	full := f.flag("full")
	if err := f.err(); err != nil {
		return nil, err
	}
	limit, compare := g.options.Timeout, g.options.Inventory.Audit
	if full {
		limit, compare = g.options.AuditTimeout, g.options.Inventory.AuditInFull
	}
	within(limit, func(c *gin.Context) {
		if full {
			extendWrite(c)
		}
		audit, err = compare(c.Request.Context(), id)
	})(c)
	return audit, err
}

func (g goods) drift(c *gin.Context, id int64) (any, error) {
	return g.options.Inventory.Drift(c.Request.Context(), id)
}

func (g goods) create(c *gin.Context) (any, error) {
	f := readAdminForm(c, newItemFields()...)
	item, _ := g.newItem(f)
	key := f.idempotencyKey(c.Request)
	if err := f.err(); err != nil {
		return nil, err
	}
	row, err := g.options.Inventory.Create(c.Request.Context(), item, key)
	if err == nil && row.PerUser == 0 && g.options.Buyers != nil {
		g.options.Log.WarnContext(c.Request.Context(), "item without a limit per buyer", append(about(c), "goods", item.GoodsID)...)
	}
	return g.item(row, g.wrongChoice(err))
}

func (g goods) change(c *gin.Context, id int64) (any, error) {
	f := readAdminForm(c, changeFields()...)
	change := service.Change{Sale: f.sale()}
	if f.given("per_user") {
		change.PerUser = new(f.whole("per_user", 0, stock.MaxPerUser))
	}
	if f.given("strategy", "group", "fence", "max_quantity") {
		change.Choice = f.choice()
	}
	if !f.given(changeFields()...) {
		f.failf("per_user", "is missing, and so are %s; at least one of them must be given", strings.Join(changeFields()[1:], ", "))
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	if before, err := g.item(g.options.Inventory.Goods(c.Request.Context(), id)); err == nil {
		noteBefore(c, before)
	}
	row, err := g.options.Inventory.Change(c.Request.Context(), id, change)
	return g.item(row, g.wrongChoice(err))
}

func (g goods) restock(c *gin.Context, id int64) (any, error) {
	f := readAdminForm(c, "quantity")
	units := f.whole("quantity", 1, stock.MaxStock)
	key := f.idempotencyKey(c.Request)
	if err := f.err(); err != nil {
		return nil, err
	}
	return g.item(g.options.Inventory.Restock(c.Request.Context(), id, units, key))
}

// correctedItem is an item after a correction.
type correctedItem struct {
	item

	Corrected int64 `json:"corrected"`
}

func (g goods) correct(c *gin.Context, id int64) (any, error) {
	f := readAdminForm(c, "counted", "by", "reason")
	var to stock.Correction
	if f.given("counted") {
		f.without("by", "counted is given")
		to.Counted = new(f.whole("counted", 0, stock.MaxStock))
	} else if to.By = f.whole("by", -stock.MaxStock, stock.MaxStock); to.By == 0 && f.err() == nil {
		f.failf("by", "must not be 0")
	}
	f.require("reason", fmt.Sprintf("1 to %d printable characters", stock.MaxReason))
	to.Reason = f.text("reason", stock.MaxReason)
	key := f.idempotencyKey(c.Request)
	if err := f.err(); err != nil {
		return nil, err
	}
	row, by, err := g.options.Inventory.Correct(c.Request.Context(), id, to, key)
	return correctedItem{g.shown(row), by}, err
}

func (g goods) close(c *gin.Context, id int64) (any, error) {
	if err := hasNoFields(c); err != nil {
		return nil, err
	}
	return g.options.Inventory.CloseSale(c.Request.Context(), id)
}

func (g goods) recall(c *gin.Context, id int64) (any, error) {
	if err := hasNoFields(c); err != nil {
		return nil, err
	}
	return g.options.Inventory.Recall(c.Request.Context(), id)
}

// readyz serves GET /readyz. A replica is ready while the database takes its writes and it is not about
// to stop. Other backends are listed only: the strategies that need none of them go on.
func (g goods) readyz(c *gin.Context) (any, error) {
	if g.options.stopping() {
		return nil, newProblem(http.StatusServiceUnavailable, "stopping", "This replica is about to stop").
			detail("send no more requests to this replica")
	}
	backends, err := g.options.Catalogue.Backends(c.Request.Context())
	return gin.H{"status": "ready", "backends": backends}, err
}

// wrongChoice names the field of an invalid choice, or of times that cannot be.
func (g goods) wrongChoice(err error) error {
	switch {
	case errors.Is(err, service.ErrUnknownStrategy):
		return invalid(fieldError{"strategy", "must be one of " + strings.Join(g.options.Catalogue.Names(), ", ") + ": " + err.Error()})
	case errors.Is(err, service.ErrNotFenceable):
		return invalid(fieldError{"fence", "cannot be true: " + err.Error()})
	case errors.Is(err, stock.ErrSaleTimes):
		return invalid(fieldError{"ends_at", err.Error()})
	case errors.Is(err, service.ErrStrategyRejected):
		p := problemOf(err)
		p.Strategies = g.options.Catalogue.Names()
		return p
	default:
		return err
	}
}
