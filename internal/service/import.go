package service

import (
	"context"
	"errors"
	"reflect"

	"github.com/stockd/stockd/internal/stock"
)

// NewItem is an item to be created.
type NewItem struct {
	GoodsID, Units, PerUser int64
	Choice                  stock.Choice
	Sale                    stock.SaleChange
}

// What Put has done.
const (
	PutCreated = "created"
	PutChanged = "changed"
	PutSame    = "same"
)

// Put creates an item, or gives one that exists a limit and a choice. The units of an item that exists stay as they are:
// some are sold. Putting it again changes nothing. Its errors are those of Create and Change.
func (i *Inventory) Put(ctx context.Context, item NewItem, otherwise Change) (goods stock.Goods, done string, err error) {
	goods, err = i.store.InStock(ctx, item.GoodsID)
	if errors.Is(err, stock.ErrUnknownGoods) {
		goods, err = i.Create(ctx, item, "")
		if !errors.Is(err, stock.ErrGoodsExist) {
			return goods, PutCreated, err
		}
		goods, err = i.store.InStock(ctx, item.GoodsID) // it was created meanwhile
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
	if !otherwise.Sale.Of(goods.Sale) {
		change.Sale = otherwise.Sale
	}
	if change.PerUser == nil && change.Choice == nil && change.Sale == (stock.SaleChange{}) {
		return goods, PutSame, nil
	}
	goods, err = i.Change(ctx, item.GoodsID, change)
	return goods, PutChanged, err
}

// Items lists up to most items by their ids, after one, which is 0 at the beginning.
func (i *Inventory) Items(ctx context.Context, after int64, most int) ([]stock.Goods, error) {
	return i.store.InStockAfter(ctx, after, most)
}
