package repo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/stock"
)

const (
	ofItems = ` WHERE g.goods_id IN (`

	// byItemID is an arm of a CASE that has one for each item.
	byItemID = ` WHEN ? THEN ?`

	// subtractEach has an arm for each item, and then their ids.
	subtractEach      = `UPDATE tb_goods_stock`
	subtractEachSet   = ` SET stock = stock - CASE goods_id`
	subtractEachWhere = ` ELSE 0 END, ` + bySale + ` WHERE goods_id IN (`
)

// FreeGoods reads those rows of several items that no other transaction has locked, and keeps
// every other writer from them until this one ends. It waits for none of them, where the database
// can leave out rows that are locked. Items that do not exist are left out, too.
func (t *Tx) FreeGoods(ctx context.Context, goodsIDs []int64) (map[int64]stock.Goods, error) {
	args := make([]any, len(goodsIDs))
	for i, id := range slices.Sorted(slices.Values(goodsIDs)) {
		args[i] = id
	}
	d := t.store.dialect
	statement := selectRows + d.byItem + ofItems + listOf(len(args), `?`) + `) ORDER BY g.goods_id` + d.skipLocked
	rows := make(map[int64]stock.Goods, len(args))
	err := t.store.each(ctx, t.conn(), "lock the rows of several items", func(scan scanRow) error {
		var g stock.Goods
		err := scan(columnsOf(&g)...)
		rows[g.ID] = g
		return err
	}, statement, args...)
	return rows, err
}

// Units are units of an item.
type Units struct{ GoodsID, Units int64 }

// SubtractEach takes units off rows that FreeGoods has read in this transaction: no more than are
// there, of items without a limit per buyer.
func (t *Tx) SubtractEach(ctx context.Context, taken []Units) error {
	arms, ids := make([]any, 0, 2*len(taken)), make([]any, 0, len(taken))
	for _, u := range taken {
		arms = append(arms, u.GoodsID, u.Units)
		ids = append(ids, u.GoodsID)
	}
	me := t.store.strategy
	statement := subtractEach + t.store.dialect.byItem + subtractEachSet + strings.Repeat(byItemID, len(taken)) +
		subtractEachWhere + listOf(len(ids), `?`) + `)`
	rows, err := t.write(ctx, "subtract the stock of several items", statement, slices.Concat(arms, []any{me, me}, ids)...)
	if err == nil && rows != int64(len(taken)) {
		err = fmt.Errorf("%d of %d items: %w", rows, len(taken), ErrRowChanged)
	}
	return err
}
