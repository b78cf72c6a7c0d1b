package service

import (
	"context"
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Inventory looks after the goods: what an owner of a shop does, and not a
// buyer.
type Inventory struct {
	store     *repo.Store
	catalogue *Catalogue
}

// NewInventory looks after the goods of a store. The strategies of the catalogue
// hear of every restock.
func NewInventory(store *repo.Store, catalogue *Catalogue) *Inventory {
	return &Inventory{store: store, catalogue: catalogue}
}

// Goods is what is in stock of a goods. stock.ErrUnknownGoods: there is none.
func (i *Inventory) Goods(ctx context.Context, goodsID int64) (stock.Goods, error) {
	return i.store.InStock(ctx, goodsID)
}

// Audit compares the row of a goods with its ledger.
func (i *Inventory) Audit(ctx context.Context, goodsID int64) (stock.Audit, error) {
	return i.store.Audit(ctx, goodsID)
}

// Create makes a goods with its first units. A key that created it before is
// answered as the first time. stock.ErrGoodsExist: it was created otherwise.
func (i *Inventory) Create(ctx context.Context, goodsID, units int64, key string) (stock.Goods, error) {
	requestID, err := requestID(key)
	if err != nil {
		return stock.Goods{}, err
	}
	err = i.store.CreateGoods(ctx, goodsID, units, requestID)
	if errors.Is(err, stock.ErrGoodsExist) || errors.Is(err, stock.ErrDuplicateRequest) {
		err = i.excuse(ctx, err, goodsID, units, key)
	}
	if err != nil {
		return stock.Goods{}, err
	}
	return i.store.InStock(ctx, goodsID)
}

// Restock adds units. A key that was restocked under before adds nothing.
// stock.ErrUnknownOutcome may also mean that the units were added, and that a
// strategy that keeps a copy of the stock was not to be told: sending the same
// key again tells it.
func (i *Inventory) Restock(ctx context.Context, goodsID, units int64, key string) (stock.Goods, error) {
	requestID, err := requestID(key)
	if err != nil {
		return stock.Goods{}, err
	}
	_, err = i.store.Restock(ctx, goodsID, units, requestID)
	if errors.Is(err, stock.ErrDuplicateRequest) {
		err = i.excuse(ctx, err, goodsID, units, key)
	}
	if err != nil {
		return stock.Goods{}, err
	}
	if err := i.catalogue.Restocked(ctx, goodsID, units); err != nil {
		return stock.Goods{}, fmt.Errorf("%w: the units were added: %w", stock.ErrUnknownOutcome, err)
	}
	return i.store.InStock(ctx, goodsID)
}

// excuse forgives a failure that is only the echo of an earlier success: the
// ledger has the same restock under the same key.
func (i *Inventory) excuse(ctx context.Context, failure error, goodsID, units int64, key string) error {
	if key == "" {
		return failure
	}
	orders, err := i.store.Orders(ctx, key)
	if err != nil {
		return err
	}
	first, found := orders[key]
	switch {
	case !found:
		return failure
	case first.Kind == stock.Restock && first.GoodsID == goodsID && first.Quantity == units:
		return nil
	default:
		return reused(first)
	}
}
