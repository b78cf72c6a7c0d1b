package service

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/stock"
)

// Import is a line of an import, and what came of it.
type Import struct {
	Item stock.NewItem
	// Otherwise is what an item that exists is to have.
	Otherwise Change

	// Done is Created, Changed or Same where Err is nil. A line that has an Err before is not imported.
	Done  string
	Goods stock.Goods
	Err   error
}

// What an import has done.
const (
	Created = "created"
	Changed = "changed"
	Same    = "same"
)

// importers import lines at the same time, and leave connections to buyers.
const importers = 4

// Import creates items, or gives those that exist a limit, a choice and times. The units of an item that exists stay as they
// are: some are sold. Importing again changes nothing. Each line has its own error, as of Create and Change. All choices
// hold on this replica once it returns; an error is that this is not known.
func (i *Inventory) Import(ctx context.Context, lines []Import) error {
	var all errgroup.Group
	all.SetLimit(importers)
	for n := range lines {
		if line := &lines[n]; line.Err == nil {
			all.Go(func() error {
				line.Goods, line.Done, line.Err = i.put(ctx, line.Item, line.Otherwise)
				return nil
			})
		}
	}
	_ = all.Wait() // each line has its own error
	if !slices.ContainsFunc(lines, func(l Import) bool { return l.Err == nil && l.Done != Same }) {
		return nil
	}
	return i.look(ctx, "the items were imported")
}

// put does not look at the switches: the look reads the choices of all items.
func (i *Inventory) put(ctx context.Context, item stock.NewItem, otherwise Change) (goods stock.Goods, done string, err error) {
	goods, err = i.store.InStock(ctx, item.GoodsID)
	if errors.Is(err, stock.ErrUnknownGoods) {
		if err = i.create(ctx, item, ""); err == nil {
			goods, err = i.changed(ctx, item.GoodsID, "the item was created", nil)
			return goods, Created, err
		}
		if errors.Is(err, stock.ErrGoodsExist) { // it was created meanwhile
			goods, err = i.store.InStock(ctx, item.GoodsID)
		}
	}
	if err != nil {
		return goods, "", err
	}
	before, change := i.catalogue.Choice(item.GoodsID), Change{}
	if otherwise.PerUser != nil && *otherwise.PerUser != goods.PerUser {
		change.PerUser = otherwise.PerUser
	}
	if otherwise.Choice != nil && !reflect.DeepEqual(otherwise.Choice(before), before) {
		change.Choice = otherwise.Choice
	}
	if !otherwise.Sale.Keeps(goods.Sale) {
		change.Sale = otherwise.Sale
	}
	if change.PerUser == nil && !change.isOfSale() {
		return goods, Same, nil
	}
	if err := i.set(ctx, item.GoodsID, change); err != nil {
		return goods, "", err
	}
	goods, err = i.limited(ctx, item.GoodsID, change)
	return goods, Changed, err
}

// Items lists up to most items by their ids, after one, which is 0 at the beginning.
func (i *Inventory) Items(ctx context.Context, after int64, most int) ([]stock.Goods, error) {
	return i.store.InStockAfter(ctx, after, most)
}
