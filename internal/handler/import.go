package handler

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// maxImported bounds the items of one import; the body bounds them, too.
const maxImported = 500

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
	f := readAdminForm(c, "lines")
	allowed := fmt.Sprintf("a list of 1 to %d items, each an object with the fields of POST /goods", maxImported)
	f.require("lines", allowed)
	lines := read(f, "lines", words(allowed), jsonList, func(text string) (lines []json.RawMessage, ok bool) {
		err := json.Unmarshal([]byte(text), &lines)
		return lines, err == nil && len(lines) > 0 && len(lines) <= maxImported
	})
	if err := f.err(); err != nil {
		return nil, err
	}
	imports, seen := make([]service.Import, len(lines)), make(map[int64]int)
	for i, line := range lines {
		imports[i] = g.readLine(line)
		id := imports[i].Item.GoodsID
		if first := seen[id]; imports[i].Err == nil && first > 0 {
			imports[i].Err = invalid(fieldError{"goods_id", fmt.Sprintf("is in line %d already", first)})
		}
		seen[id] = i + 1
	}
	if err := g.options.Inventory.Import(c.Request.Context(), imports); err != nil {
		return nil, err
	}
	list := make([]importedLine, len(imports))
	for i, line := range imports {
		list[i] = g.imported(i+1, line)
	}
	failed := func(l importedLine) bool { return l.Problem != nil && l.Problem.Status >= statusClientGone }
	if i := slices.IndexFunc(list, failed); i >= 0 && !slices.ContainsFunc(list, func(l importedLine) bool { return l.Problem == nil }) {
		return nil, *list[i].Problem
	}
	return gin.H{"lines": list}, nil
}

func (g goods) readLine(text []byte) (line service.Import) {
	f := formOf(text, newItemFields()...)
	if f.unread == nil {
		line.Item, line.Otherwise = g.newItem(f)
	}
	line.Err = f.err()
	return line
}

func (g goods) imported(number int, line service.Import) importedLine {
	if line.Err != nil {
		p := problemOf(g.wrongChoice(line.Err))
		return importedLine{Line: number, GoodsID: line.Item.GoodsID, Result: "failed", Problem: &p}
	}
	shown := g.shown(line.Goods)
	return importedLine{Line: number, GoodsID: line.Item.GoodsID, Result: line.Done, Item: &shown}
}

func newItemFields() []string { return append([]string{"goods_id", "stock"}, changeFields()...) }

func changeFields() []string {
	return []string{"per_user", "strategy", "group", "fence", "max_quantity", "starts_at", "ends_at"}
}

// newItem reads an item that is to be created, and what an item that exists is to have of it.
func (g goods) newItem(f *form) (item stock.NewItem, otherwise service.Change) {
	item = stock.NewItem{
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

func (g goods) list(c *gin.Context) (any, error) {
	f := readForm(c.Request, "after", "limit")
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
