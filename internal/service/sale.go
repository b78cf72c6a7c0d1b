package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

// ClosedSale is an item whose sale was closed, with the audit after its last purchase.
type ClosedSale struct {
	GoodsID int64     `json:"goods_id"`
	EndsAt  time.Time `json:"ends_at"`
	Audit   Audit     `json:"audit"`
}

// closeWithin bounds the close of a sale, which goes on when its request has ended.
const closeWithin = time.Minute

// CloseSale ends the sale of an item now, where it has not ended. After it returns, no purchase and no hold succeeds at any
// replica, all units are in the row, and the ledger has every order that was accepted. What is held can still be paid or
// given back. Closing again changes nothing. stock.ErrBackendUnavailable: the sale is closed, and a backend that has units
// does not answer. stock.ErrUnknownOutcome: this goes on. In both cases, closing again completes it.
func (i *Inventory) CloseSale(ctx context.Context, goodsID int64) (closed ClosedSale, err error) {
	err = i.begin(ctx, closeWithin, "close a sale", func(ctx context.Context) error {
		if err := i.store.CloseSale(ctx, goodsID); err != nil {
			return err
		}
		return i.catalogue.settleSale(ctx, goodsID)
	})
	if err != nil {
		return closed, err
	}
	goods, err := i.changed(ctx, goodsID, "the sale was closed", nil)
	if err == nil && goods.EndsAt == nil {
		err = fmt.Errorf("%w: the sale of item %d was opened again", stock.ErrBusy, goodsID)
	}
	if err != nil {
		return closed, err
	}
	audit, err := i.Audit(ctx, goodsID)
	return ClosedSale{goodsID, *goods.EndsAt, audit}, err
}

// setSale sets the times of a sale. Where the item is not on sale by now, its units are withheld and recalled as by a close.
func (i *Inventory) setSale(ctx context.Context, goodsID int64, to stock.SaleChange) error {
	return i.begin(ctx, closeWithin, "set the times of a sale", func(ctx context.Context) error {
		if err := i.store.SetSale(ctx, goodsID, to); err != nil {
			return err
		}
		return i.catalogue.settleSale(ctx, goodsID)
	})
}

// settleEach is the pause between two recalls of units that orders in Redis still have.
const settleEach = 10 * time.Millisecond

// settleSale withholds the units of an item that is not on sale, and recalls what allocations have until nothing is
// pending. It may be called by any number of replicas, and again after any failure.
func (c *Catalogue) settleSale(ctx context.Context, goodsID int64) error {
	for {
		goods, err := c.store.GoodsOnSale(ctx, goodsID)
		switch {
		case err != nil:
			return err
		case goods.Rejects() == nil: // it is on sale
			return nil
		case goods.Withheld != nil && goods.Allocated == 0:
			return c.store.SettleSale(ctx, goodsID)
		case goods.Withheld == nil:
			err = c.store.TurnSale(ctx, goodsID)
		default:
			_, err = c.recalls.recall(ctx, goodsID, "")
		}
		if err != nil {
			return err
		}
		if err := pause.For(ctx, settleEach); err != nil {
			return fmt.Errorf("settle the sale of item %d: %w", goodsID, err)
		}
	}
}

// KeepSales begins and ends the sales whose time has come until ctx ends. Any number of replicas may do so at once, and each may be
// killed anywhere.
func (c *Catalogue) KeepSales(ctx context.Context) {
	rounds := background.Rounds{Doing: "turn sales", Failed: "sales not begun or ended", Every: expireEvery, Within: expireWithin, Once: true, Log: c.log}
	rounds.Repeat(ctx, c.endSales)
}

// endSales is one round of KeepSales. The rows of all items are first: a backend that does not answer for one of them
// keeps no other on sale.
func (c *Catalogue) endSales(ctx context.Context) error {
	ids, err := c.store.SalesDue(ctx, 0)
	for _, id := range ids {
		err = errors.Join(err, c.store.TurnSale(ctx, id))
	}
	for _, id := range ids {
		err = errors.Join(err, c.settleSale(ctx, id))
	}
	return err
}
