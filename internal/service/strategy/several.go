package strategy

import (
	"context"
	"errors"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// severalItems is the item whose turn it is at the connections where a transaction has several.
const severalItems = 0

// DeductItems locks the rows of all items that no other transaction has locked, and then takes
// three statements for the whole: read, append, subtract.
func (c conditional) DeductItems(ctx context.Context, items []ItemBatch) (outcomes [][]stock.Outcome, err error) {
	end, err := c.store.Turn(ctx, severalItems)
	if err != nil {
		return nil, err
	}
	defer end()
	err = c.store.InTx(ctx, func(tx *repo.Tx) error {
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
