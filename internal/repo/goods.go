package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/stock"
)

// Goods reads the row without locking it. Its stock lacks the units in allocations: see
// stock.Goods.Allocated, and InStock. It may return ErrUnknownGoods.
func (s *Store) Goods(ctx context.Context, goodsID int64) (stock.Goods, error) {
	return s.readGoods(ctx, s.pool, readRow, goodsID)
}

// Existing returns the ids that exist.
func (s *Store) Existing(ctx context.Context, goodsIDs ...int64) (map[int64]bool, error) {
	return s.itemsOf(ctx, "find items", readExisting, goodsIDs)
}

// itemsOf runs a query for ids of items.
func (s *Store) itemsOf(ctx context.Context, doing, query string, args ...any) (map[int64]bool, error) {
	var ids []int64
	if err := s.db.WithContext(ctx).Raw(query, args...).Scan(&ids).Error; err != nil {
		return nil, s.fault(ctx, doing, err)
	}
	set := make(map[int64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set, nil
}

const (
	insertGoods = `INSERT INTO tb_goods_stock (goods_id, stock, per_user) VALUES (?, ?, ?)`

	readExisting = `SELECT goods_id FROM tb_goods_stock WHERE goods_id IN ?`

	// sumAhead leaves out the allocations that the ledger is written with.
	sumAhead = `SELECT COALESCE(SUM(units), 0) FROM tb_stock_place WHERE goods_id = ? AND NOT (` + inBuckets + `) AND NOT (` + inUnitRows + `)`
)

// CreateGoods is Create of an item for which nothing but its units is set.
func (s *Store) CreateGoods(ctx context.Context, goodsID, units int64, requestID string) error {
	return s.Create(ctx, stock.NewItem{GoodsID: goodsID, Units: units}, requestID)
}

// Create creates an item. ErrGoodsExist: the id exists.
func (s *Store) Create(ctx context.Context, item stock.NewItem, requestID string) error {
	return s.InTx(ctx, func(tx *Tx) error {
		_, err := tx.write(ctx, "create goods", insertGoods, item.GoodsID, item.Units, item.PerUser)
		if errors.Is(err, stock.ErrDuplicateRequest) {
			return fmt.Errorf("item %d: %w", item.GoodsID, stock.ErrGoodsExist)
		}
		if choice := item.Choice; err == nil && choice != (stock.Choice{}) {
			own := &goodsStrategy{
				GoodsID: item.GoodsID, Strategy: choice.Strategy, Grouped: choice.Group, Fenced: choice.Fence, MaxQuantity: choice.MaxQuantity,
			}
			err = s.fault(ctx, "create the strategy of an item", tx.db.Create(own).Error)
		}
		if err != nil {
			return err
		}
		if err := tx.appendRestock(ctx, item.GoodsID, item.Units, item.Units, requestID); err != nil || item.Sale == (stock.SaleChange{}) {
			return err
		}
		if err := tx.setSale(ctx, item.GoodsID, item.Sale); err != nil {
			return err
		}
		return tx.turnSale(ctx, item.GoodsID)
	})
}

// Restock adds units, 1 to stock.MaxStock, and returns how many the row has now. What is
// allocated or held counts for the limit of the stock: it can come back into the row.
// ErrUnknownGoods, ErrStockLimit, ErrDuplicateRequest: nothing was added.
func (s *Store) Restock(ctx context.Context, goodsID, units int64, requestID string) (left int64, err error) {
	err = s.InItem(ctx, goodsID, func(tx *Tx) error {
		// The row is locked, so that the ledger records the right remaining stock.
		// Restocks are rare enough for that.
		goods, err := tx.lockGoods(ctx, goodsID)
		if err != nil {
			return err
		}
		left = goods.InRow() + units
		if err := tx.appendRestock(ctx, goodsID, units, left, requestID); err != nil {
			return err
		}
		if _, err := tx.write(ctx, "add stock", addStock, units, units, goodsID); err != nil {
			return err
		}
		return tx.requireRoom(ctx, goodsID)
	})
	return left, err
}

// Correct sets right what can be sold of an item, and returns how much was added, or taken off where it is negative. What
// was counted is compared with what the item has in its row and in allocations, and with what is held, as of one moment.
// ErrUnknownGoods, ErrStockLimit, ErrDuplicateRequest, ErrBelowZero: nothing was changed. An *stock.AllocatedError, which
// may join the last one: it may succeed once allocations were recalled.
func (s *Store) Correct(ctx context.Context, goodsID int64, c stock.Correction, requestID string) (by int64, err error) {
	err = s.InItem(ctx, goodsID, func(tx *Tx) error {
		goods, err := tx.lockGoods(ctx, goodsID)
		if err != nil {
			return err
		}
		if err := tx.requireNew(ctx, requestID); err != nil {
			return err
		}
		if by, err = tx.corrects(ctx, goods, c); err != nil {
			return err
		}
		if err := tx.appendCorrection(ctx, goods, c, by, requestID); err != nil || by == 0 {
			return err
		}
		if _, err := tx.write(ctx, "correct stock", addStock, by, by, goodsID); err != nil {
			return err
		}
		return tx.requireRoom(ctx, goodsID)
	})
	return by, err
}

// corrects is what a correction adds to the row of an item, which is locked: no units are moved out of it meanwhile.
func (t *Tx) corrects(ctx context.Context, goods stock.Goods, c stock.Correction) (by int64, err error) {
	if by = c.By; c.Counted != nil {
		var ahead int64 // some of them may be sold, and not in the ledger yet
		if err := t.conn().QueryRowContext(ctx, sumAhead, goods.ID).Scan(&ahead); err != nil {
			return 0, t.store.fault(ctx, "read allocations", err)
		}
		if ahead > 0 {
			return 0, &stock.AllocatedError{Units: ahead, Version: goods.Version}
		}
	}
	has, err := t.store.audit(ctx, t.db, auditByTotals, goods.ID)
	if err != nil {
		return 0, err
	}
	if c.Counted != nil {
		by = *c.Counted - has.Stock - has.Held
	}
	if by >= 0 || goods.InRow()+by >= 0 {
		return by, nil
	}
	err = &stock.BelowZeroError{Stock: has.Stock, Held: has.Held, Sold: has.Sold, By: by}
	if has.Stock+by >= 0 {
		err = errors.Join(err, &stock.AllocatedError{Units: has.Stock - goods.InRow(), Version: goods.Version})
	}
	return 0, err
}

// requireRoom rejects what was added to the row of an item, which is locked, where the item has too many units with it:
// in the row, in allocations, and held. An item that was deleted has none.
func (t *Tx) requireRoom(ctx context.Context, goodsID int64) error {
	has, err := t.store.audit(ctx, t.db, auditByTotals, goodsID)
	if errors.Is(err, stock.ErrUnknownGoods) {
		return nil
	}
	if all := has.Stock + has.Held; err == nil && all > stock.MaxStock {
		err = fmt.Errorf("item %d would have %d units, of at most %d: %w", goodsID, all, int64(stock.MaxStock), stock.ErrStockLimit)
	}
	return err
}

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
	d := t.store.dialect
	goodsIDs, err := t.store.lockFirst(ctx, t.conn(), d.skipLocked, goodsIDs...)
	if err != nil || len(goodsIDs) == 0 {
		return nil, err
	}
	args := anys(slices.Sorted(slices.Values(goodsIDs)))
	statement := selectRows + d.byItem + ofItems + listOf(len(args), `?`) + `) ORDER BY g.goods_id` + d.skipLocked
	rows := make(map[int64]stock.Goods, len(args))
	err = t.store.each(ctx, t.conn(), "lock the rows of several items", func(scan scanRow) error {
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
