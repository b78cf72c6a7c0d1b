package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// conditional has the database compare: it appends the whole batch to the ledger and takes
// its units off the row. Where they are not there, all of it is rolled back, and what fits
// is offered again.
type conditional struct {
	store site
	take  takeUnits
	// short has the items that were recently too short for a purchase. They are read
	// before they are written to: once an item is sold out, a rejection costs one read
	// and no transaction.
	short *sync.Map
	// limits has the limit of one buyer of those items that had one at the last read.
	// The row is checked for another one.
	limits *sync.Map
}

// takeUnits takes units off the row in a transaction, and returns what is left.
// errDoesNotFit: there are not as many.
type takeUnits func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (left int64, err error)

func newConditional(store site, take takeUnits) conditional {
	return conditional{store: store, take: take, short: new(sync.Map), limits: new(sync.Map)}
}

// errDoesNotFit rolls back the transaction of a batch that asks for more than
// there is; it never leaves this package.
var errDoesNotFit = errors.New("the batch does not fit")

// offers bounds how often a batch is offered that did not fit as a whole. Each
// time the stock must have changed in between, so that the bound is met only
// by a batch that is overtaken again and again.
const offers = 20

func (c conditional) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	rejected := make([]error, len(batch)) // none so far
	_, read := c.short.Load(goodsID)
	for range offers {
		if read {
			var err error
			if rejected, err = c.check(ctx, goodsID, batch); err != nil {
				return nil, err
			}
		}
		picked, _ := pick(batch, rejected)
		if len(picked) == 0 {
			return answer(rejected, nil), nil
		}
		sold, err := c.attempt(ctx, goodsID, picked, len(picked) < len(batch))
		if err == nil {
			return merge(rejected, sold), nil
		}
		if !errors.Is(err, errDoesNotFit) && !errors.Is(err, repo.ErrRowChanged) {
			return nil, err
		}
		read = true
	}
	return nil, fmt.Errorf("%w: the stock of item %d changed %d times while a batch was offered", stock.ErrBusy, goodsID, offers)
}

// check reads what of a batch fits, and remembers the limit to sell under.
func (c conditional) check(ctx context.Context, goodsID int64, batch []stock.Purchase) (rejected []error, err error) {
	goods, err := c.store.Goods(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	limit, err := c.store.Has(ctx, goodsID, goods.PerUser, batch)
	if err != nil {
		return nil, err
	}
	rejected = goods.Allot(batch, limit)
	c.remember(goods, rejected)
	return rejected, nil
}

func (c conditional) remember(goods stock.Goods, rejected []error) {
	if goods.PerUser > 0 {
		c.limits.Store(goods.ID, goods.PerUser)
	} else {
		c.limits.Delete(goods.ID)
	}
	if slices.ContainsFunc(rejected, isShort) {
		c.short.Store(goods.ID, true)
	} else {
		c.short.Delete(goods.ID)
	}
}

func isShort(rejected error) bool {
	return errors.Is(rejected, stock.ErrInsufficientStock) || errors.Is(rejected, stock.ErrAllocated)
}

// limit is what one buyer may have, as far as this replica knows.
func (c conditional) limit(goodsID int64) int64 {
	perUser, _ := c.limits.Load(goodsID)
	units, _ := perUser.(int64) // 0 where there is none
	return units
}

// attempt sells a batch, or what of it is within the limits of its buyers. Where it
// is a part of a larger one, all of it or nothing: what it would leave may be for
// another part.
func (c conditional) attempt(ctx context.Context, goodsID int64, batch []stock.Purchase, part bool) ([]stock.Outcome, error) {
	return c.store.transact(ctx, goodsID, c.store.InTx, func(tx *repo.Tx) ([]stock.Outcome, error) {
		limit, err := tx.CountIn(ctx, goodsID, c.limit(goodsID), batch)
		if err != nil {
			return nil, err
		}
		rejected := stock.Allot(stock.Units(batch), batch, limit)
		picked, rest := pick(batch, rejected)
		switch {
		case part && len(rest) > 0:
			return nil, errDoesNotFit
		case len(picked) == 0:
			return answer(rejected, nil), tx.ConfirmLimit(ctx, goodsID)
		}
		if err := tx.CountOut(ctx, goodsID, rest); err != nil {
			return nil, err
		}
		orders, err := c.record(ctx, tx, goodsID, picked)
		if err != nil {
			return nil, err
		}
		c.store.between(ctx, goodsID)
		return answer(rejected, orders), nil
	})
}

// record takes the row last, so that it is locked for one statement and the commit. It is first where purchases may be
// retried: the ledger must have what they left, and a second statement for that would lock the row for as long, and
// cost more.
func (c conditional) record(ctx context.Context, tx *repo.Tx, goodsID int64, picked []stock.Purchase) ([]stock.Order, error) {
	sale := repo.Sale{GoodsID: goodsID, Batch: picked}
	if slices.ContainsFunc(picked, func(p stock.Purchase) bool { return p.Keyed }) {
		left, err := c.take(ctx, tx, goodsID, stock.Units(picked))
		if err != nil {
			return nil, err
		}
		sale.Left = &left
		return tx.Append(ctx, sale)
	}
	orders, err := tx.Append(ctx, sale)
	if err != nil {
		return nil, err
	}
	left, err := c.take(ctx, tx, goodsID, stock.Units(picked))
	if err != nil {
		return nil, err
	}
	repo.Leave(orders, left)
	return orders, nil
}

// DeductItems locks the rows of all items that no other transaction has locked, and then takes
// three statements for the whole: read, append, subtract.
func (c conditional) DeductItems(ctx context.Context, items []ItemBatch) (outcomes [][]stock.Outcome, err error) {
	err = c.store.InItem(ctx, repo.SeveralItems, func(tx *repo.Tx) error {
		outcomes, err = c.sellItems(ctx, tx, items)
		return err
	})
	if err != nil && !errors.Is(err, errNothingSold) {
		return nil, err
	}
	return outcomes, nil
}

func (c conditional) sellItems(ctx context.Context, tx *repo.Tx, items []ItemBatch) ([][]stock.Outcome, error) {
	ids := make([]int64, len(items))
	for i, item := range items {
		ids[i] = item.GoodsID
	}
	rows, err := tx.FreeGoods(ctx, ids)
	if err != nil {
		return nil, err
	}
	rejected := make([][]error, len(items)) // nil: to be sold alone
	var sales []repo.Sale
	var taken []repo.Units
	for i, item := range items {
		row, free := rows[item.GoodsID]
		if !free || row.PerUser > 0 {
			continue
		}
		rejected[i] = row.Allot(item.Purchases, stock.Limit{})
		if picked, _ := pick(item.Purchases, rejected[i]); len(picked) > 0 {
			units := stock.Units(picked)
			sales = append(sales, repo.Sale{GoodsID: item.GoodsID, Batch: picked, Left: new(row.Stock - units)})
			taken = append(taken, repo.Units{GoodsID: item.GoodsID, Units: units})
		}
	}
	if len(sales) == 0 {
		return answerItems(rejected, nil), errNothingSold
	}
	orders, err := tx.Append(ctx, sales...)
	if err != nil {
		return nil, err
	}
	if err := tx.SubtractEach(ctx, taken); err != nil {
		return nil, err
	}
	for _, u := range taken {
		c.store.between(ctx, u.GoodsID)
	}
	return answerItems(rejected, orders), nil
}

// answerItems is answer for batches of several items, whose orders follow each other.
func answerItems(rejected [][]error, orders []stock.Order) [][]stock.Outcome {
	outcomes := make([][]stock.Outcome, len(rejected))
	for i, of := range rejected {
		if of == nil {
			continue
		}
		sold := 0
		for _, reason := range of {
			if reason == nil {
				sold++
			}
		}
		outcomes[i] = answer(of, orders[:sold])
		orders = orders[sold:]
	}
	return outcomes
}
