package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/stockd/stockd/internal/stock"
)

const (
	lockOrder    = `SELECT id FROM tb_stock_ledger WHERE id = ?`
	lockArchived = `SELECT id FROM tb_ledger_archive WHERE id = ?`

	// sumReturns is followed by the returns of both tables.
	sumReturns    = `SELECT COALESCE(SUM(quantity), 0) FROM (`
	selectReturns = `SELECT quantity FROM `
	returnsOf     = ` WHERE order_no = ? AND kind = 'return'`
	sumReturnsEnd = `) AS r`
)

// Return gives units of an order back, all that are left of it where units is 0, and returns
// the ledger's row of that. stock.ErrUnknownOrder: the ledger has no such order.
// stock.ErrReturned: fewer are left. stock.ErrStockLimit: the item would have more than stock.MaxStock.
// stock.ErrDuplicateRequest: the request id is in the ledger. In each case nothing was written.
func (s *Store) Return(ctx context.Context, number string, units int64, requestID string) (back stock.Order, err error) {
	order, ok, err := s.findOrder(ctx, number)
	if err != nil {
		return stock.Order{}, err
	}
	if !ok {
		return stock.Order{}, fmt.Errorf("%w: %q", stock.ErrUnknownOrder, number)
	}
	err = s.whileRowsChange(ctx, func(tx *Tx) error {
		left, err := tx.lockUnreturned(ctx, order)
		if err != nil {
			return err
		}
		if err := tx.requireNew(ctx, requestID); err != nil {
			return err
		}
		back = order.Order
		back.Kind, back.RequestID, back.Replica, back.Token, back.CreatedAt = stock.Return, requestID, s.replica, 0, acceptedNow()
		if back.Quantity = units; units == 0 {
			back.Quantity = left
		}
		if left == 0 || back.Quantity > left {
			return fmt.Errorf("%w: %d of %d are left", stock.ErrReturned, left, order.Quantity)
		}
		if err := tx.giveBack(ctx, []stock.Order{back}, true); err != nil {
			return err
		}
		return tx.requireRoomFor(ctx, back)
	})
	return back, err
}

// requireRoomFor rejects units that have been added to the row, which is locked, and are too many. Those of an item that
// was deleted were not added.
func (t *Tx) requireRoomFor(ctx context.Context, back stock.Order) error {
	goods, err := t.Goods(ctx, back.GoodsID)
	if errors.Is(err, stock.ErrUnknownGoods) {
		return nil
	}
	if err != nil {
		return err
	}
	goods.Stock -= back.Quantity
	return requireRoom(goods, back.Quantity)
}

// lockUnreturned is how many units of an order have not come back; no others come back until
// the transaction ends. The row is locked where it is: it leaves the ledger only for the archive,
// and not while it is locked.
func (t *Tx) lockUnreturned(ctx context.Context, order ledgerRow) (left int64, err error) {
	var id, returned int64
	err = t.conn().QueryRowContext(ctx, lockOrder+t.store.dialect.forUpdate, order.id).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.conn().QueryRowContext(ctx, lockArchived+t.store.dialect.forUpdate, order.id).Scan(&id)
	}
	if err != nil {
		return 0, t.store.fault(ctx, "lock order", err)
	}
	err = t.conn().QueryRowContext(ctx, sumReturns+inBoth(selectReturns, returnsOf)+sumReturnsEnd, order.ID, order.ID).Scan(&returned)
	return order.Quantity - returned, t.store.fault(ctx, "sum returns", err)
}
