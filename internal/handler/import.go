package handler

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/gin-gonic/gin"
	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

const (
	// mostImported bounds the items of one import; the body bounds them, too.
	mostImported = 500
	// importers put items at the same time, and leave connections to buyers.
	importers = 4
)

// importedLine is what came of a line of an import.
type importedLine struct {
	// Line counts from 1, Result is created, changed, same, or failed with a Problem.
	Line    int    `json:"line"`
	GoodsID int64  `json:"goods_id,omitempty"`
	Result  string `json:"result"`
	// Item is what is in the shop now.
	Item    *item    `json:"item,omitempty"`
	Problem *problem `json:"problem,omitempty"`
}

// importItems serves POST /goods/import. A line that fails does not concern the others.
func (g goods) importItems(c *gin.Context) (any, error) {
	f, err := readAdminForm(c, "lines")
	if err != nil {
		return nil, err
	}
	allowed := fmt.Sprintf("a list of 1 to %d items, each an object with the fields of POST /goods", mostImported)
	f.require("lines", allowed)
	lines := read(f, "lines", words(allowed), jsonList, func(text string) (lines []json.RawMessage, ok bool) {
		err := json.Unmarshal([]byte(text), &lines)
		return lines, err == nil && len(lines) > 0 && len(lines) <= mostImported
	})
	if err := f.err(); err != nil {
		return nil, err
	}
	list, seen := make([]importedLine, len(lines)), make(map[int64]int)
	var all errgroup.Group
	all.SetLimit(importers)
	for i, line := range lines {
		item, otherwise, err := g.readLine(line)
		if first := seen[item.GoodsID]; err == nil && first > 0 {
			err = invalid(fieldError{"goods_id", fmt.Sprintf("is in line %d already", first)})
		}
		seen[item.GoodsID] = i + 1
		all.Go(func() error {
			list[i] = g.put(c.Request.Context(), item, otherwise, err)
			list[i].Line = i + 1
			return nil
		})
	}
	_ = all.Wait() // each line has its own error
	failed := func(l importedLine) bool { return l.Problem != nil && l.Problem.Status >= statusClientGone }
	if i := slices.IndexFunc(list, failed); i >= 0 && !slices.ContainsFunc(list, func(l importedLine) bool { return l.Problem == nil }) {
		return nil, *list[i].Problem
	}
	return gin.H{"lines": list}, nil
}

func (g goods) readLine(line []byte) (service.NewItem, service.Change, error) {
	f := &form{values: make(map[string]value)}
	if err := f.readJSON(line, newItemFields()); err != nil {
		return service.NewItem{}, service.Change{}, err
	}
	item, otherwise := g.newItem(f)
	return item, otherwise, f.err()
}

// put puts an item whose line could be read, and says what came of it.
func (g goods) put(ctx context.Context, item service.NewItem, otherwise service.Change, wrong error) importedLine {
	line := importedLine{GoodsID: item.GoodsID, Result: "failed"}
	if wrong == nil {
		var row stock.Goods
		row, line.Result, wrong = g.options.Inventory.Put(ctx, item, otherwise)
		shown := g.shown(row)
		line.Item = &shown
	}
	if wrong != nil {
		p := problemOf(g.wrongChoice(wrong))
		line.Result, line.Item, line.Problem = "failed", nil, &p
	}
	return line
}

func newItemFields() []string {
	return []string{"goods_id", "stock", "per_user", "strategy", "group", "fence", "max_quantity", "starts_at", "ends_at"}
}

// newItem reads an item that is to be created, and what an item that exists is to have of it.
func (g goods) newItem(f *form) (item service.NewItem, otherwise service.Change) {
	item = service.NewItem{
		GoodsID: f.whole("goods_id", 1, math.MaxInt64),
		Units:   f.whole("stock", 0, stock.MaxStock),
		PerUser: f.wholeOr("per_user", g.options.PerUser, 0, stock.MaxPerUser),
	}
	change := f.choice()
	item.Choice, item.Sale = change(stock.Choice{}), f.sale()
	otherwise.Sale = item.Sale
	if f.given("per_user") {
		otherwise.PerUser = &item.PerUser
	}
	if f.given("strategy", "group", "fence", "max_quantity") {
		otherwise.Choice = change
	}
	return item, otherwise
}

// list serves GET /goods: a page of items by their ids.
func (g goods) list(c *gin.Context) (any, error) {
	f, err := readForm(c.Request, "after", "limit")
	if err != nil {
		return nil, err
	}
	after, limit := f.wholeOr("after", 0, 0, math.MaxInt64), f.wholeOr("limit", defaultPage, 1, largestPage)
	if err := f.err(); err != nil {
		return nil, err
	}
	page, err := g.options.Inventory.Items(c.Request.Context(), after, int(limit))
	list := make([]item, len(page))
	for i, row := range page {
		list[i], after = g.shown(row), row.ID
	}
	return gin.H{"goods": list, "next": after}, err
}
