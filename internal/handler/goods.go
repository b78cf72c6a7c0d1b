package handler

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// goods serves the goods themselves: to buyers, who may look, and to the
// owner.
type goods struct{ options Options }

// read serves GET /goods/:id.
func (g goods) read(c *gin.Context) {
	id, ok := goodsID(c)
	if !ok {
		return
	}
	row, err := g.options.Inventory.Goods(c.Request.Context(), id)
	g.respondItem(c, http.StatusOK, row, err)
}

// audit serves GET /goods/:id/audit.
func (g goods) audit(c *gin.Context) {
	if !hasNoFields(c) {
		return
	}
	g.auditBy(c, g.options.Inventory.Audit)
}

// auditForOwner is the same for the owner, who may have every row of the ledger
// read by full=true: that takes a while, and is not for everyone.
func (g goods) auditForOwner(c *gin.Context) {
	f, err := readForm(c.Request, "full")
	if err != nil {
		answer(c, err)
		return
	}
	full := f.flag("full")
	if err := f.err(); err != nil {
		answer(c, err)
		return
	}
	if full {
		withinLong(g.options.AuditTimeout, func(c *gin.Context) { g.auditBy(c, g.options.Inventory.AuditInFull) })(c)
		return
	}
	within(g.options.Timeout, func(c *gin.Context) { g.auditBy(c, g.options.Inventory.Audit) })(c)
}

func (g goods) auditBy(c *gin.Context, audit func(context.Context, int64) (service.Audit, error)) {
	id, ok := goodsID(c)
	if !ok {
		return
	}
	sums, err := audit(c.Request.Context(), id)
	g.respond(c, http.StatusOK, sums, err)
}

// drift serves GET /goods/:id/drift of the owner.
func (g goods) drift(c *gin.Context) {
	id, ok := goodsID(c)
	if !ok {
		return
	}
	drift, err := g.options.Inventory.Drift(c.Request.Context(), id)
	g.respond(c, http.StatusOK, drift, err)
}

// create serves POST /goods of the owner.
func (g goods) create(c *gin.Context) {
	f, err := readAdminForm(c, "goods_id", "stock", "per_user", "strategy", "group", "fence", "max_quantity")
	if err != nil {
		answer(c, err)
		return
	}
	id := f.whole("goods_id", 1, math.MaxInt64)
	units := f.whole("stock", 0, stock.MaxStock)
	perUser := f.wholeOr("per_user", 0, 0, stock.MaxPerUser)
	choice := f.choice()(stock.Choice{})
	key := f.idempotencyKey(c.Request)
	if err := f.err(); err != nil {
		answer(c, err)
		return
	}
	row, err := g.options.Inventory.Create(c.Request.Context(), id, units, perUser, choice, key)
	g.respondItem(c, http.StatusCreated, row, g.wrongChoice(err))
}

// change serves PATCH /goods/:id of the admin API.
func (g goods) change(c *gin.Context) {
	id, ok := goodsID(c)
	if !ok {
		return
	}
	f, err := readAdminForm(c, "per_user", "strategy", "group", "fence", "max_quantity")
	if err != nil {
		answer(c, err)
		return
	}
	var change service.Change
	if f.given("per_user") {
		change.PerUser = new(f.whole("per_user", 0, stock.MaxPerUser))
	}
	if f.given("strategy", "group", "fence", "max_quantity") {
		change.Choice = f.choice()
	}
	if change.PerUser == nil && change.Choice == nil {
		f.failf("per_user", "is missing, and so are strategy, group, fence and max_quantity; at least one of them must be given")
	}
	if err := f.err(); err != nil {
		answer(c, err)
		return
	}
	if before, err := g.options.Inventory.Goods(c.Request.Context(), id); err == nil {
		noteBefore(c, g.item(before))
	}
	row, err := g.options.Inventory.Change(c.Request.Context(), id, change)
	g.respondItem(c, http.StatusOK, row, g.wrongChoice(err))
}

// restock serves POST /goods/:id/restock of the owner.
func (g goods) restock(c *gin.Context) {
	id, ok := goodsID(c)
	if !ok {
		return
	}
	f, err := readAdminForm(c, "quantity")
	if err != nil {
		answer(c, err)
		return
	}
	units := f.whole("quantity", 1, stock.MaxStock)
	key := f.idempotencyKey(c.Request)
	if err := f.err(); err != nil {
		answer(c, err)
		return
	}
	row, err := g.options.Inventory.Restock(c.Request.Context(), id, units, key)
	g.respondItem(c, http.StatusOK, row, err)
}

// recall serves POST /goods/:id/recall of the owner.
func (g goods) recall(c *gin.Context) {
	id, ok := goodsID(c)
	if !ok {
		return
	}
	if !hasNoFields(c) {
		return
	}
	recalled, err := g.options.Inventory.Recall(c.Request.Context(), id)
	g.respond(c, http.StatusOK, recalled, err)
}

// readyz serves GET /readyz: ready is who can reach the database and is not about
// to stop. The other backends are listed; the strategies that need none of them
// go on without.
func (g goods) readyz(c *gin.Context) {
	if g.options.Stopping != nil && g.options.Stopping() {
		answer(c, newProblem(http.StatusServiceUnavailable, "stopping", "This replica is about to stop").
			detail("no more requests should be sent here"))
		return
	}
	backends, err := g.options.Catalogue.Backends(c.Request.Context())
	g.respond(c, http.StatusOK, gin.H{"status": "ready", "backends": backends}, err)
}

func (g goods) respond(c *gin.Context, status int, body any, err error) {
	respond(c, g.options.Log, status, body, err)
}

// respond answers with a body, or with the problem that an error is.
func respond(c *gin.Context, log *slog.Logger, status int, body any, err error) {
	if err != nil {
		p := problemOf(err)
		logFailure(c, log, p, err)
		answer(c, p)
		return
	}
	noteAfter(c, body)
	c.JSON(status, body)
}

// item is what is answered of an item.
type item struct {
	stock.Goods
	stock.Choice

	Available bool `json:"available"`
}

func (g goods) item(row stock.Goods) item {
	return item{row, g.options.Catalogue.Choice(row.ID), row.Stock > 0}
}

func (g goods) respondItem(c *gin.Context, status int, row stock.Goods, err error) {
	g.respond(c, status, g.item(row), err)
}

// concealedItem is what a buyer learns of an item where the stock is not revealed.
type concealedItem struct {
	GoodsID int64 `json:"goods_id"`
	PerUser int64 `json:"per_user"`
	stock.Choice

	Available bool `json:"available"`
}

// readConcealed serves GET /goods/:id where the stock is not revealed.
func (g goods) readConcealed(c *gin.Context) {
	id, ok := goodsID(c)
	if !ok {
		return
	}
	row, err := g.options.Inventory.Goods(c.Request.Context(), id)
	g.respond(c, http.StatusOK, concealedItem{row.ID, row.PerUser, g.options.Catalogue.Choice(id), row.Stock > 0}, err)
}

// hasNoFields reads a request that takes no fields; where it has some it has answered
// already.
func hasNoFields(c *gin.Context) bool {
	f, err := readAdminForm(c)
	if err == nil {
		err = f.err()
	}
	if err != nil {
		answer(c, err)
	}
	return err == nil
}

// goodsID reads the path; where it is wrong it has answered already.
func goodsID(c *gin.Context) (id int64, ok bool) {
	text := c.Param("id")
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id < 1 {
		answer(c, invalid(fieldError{"goods_id", "must be a whole number from 1 to " +
			strconv.FormatInt(math.MaxInt64, 10) + ", not " + quote(value{text: text})}))
		return 0, false
	}
	return id, true
}

func isUnknown(err error) bool { return errors.Is(err, stock.ErrUnknownOutcome) }

// logFailure logs what the owner should know: not a refusal, but a backend
// that fails or a mistake of ours.
func logFailure(c *gin.Context, log *slog.Logger, p problem, err error) {
	if p.Status >= http.StatusInternalServerError && !errors.Is(err, stock.ErrBusy) {
		log.ErrorContext(c.Request.Context(), "request failed", append(about(c), "problem", p.Type, "backend", p.Backend, "error", err)...)
	}
}
