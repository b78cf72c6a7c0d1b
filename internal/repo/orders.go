package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/stock"
)

// Orders are read in the order of their ids up to a watermark, below which no row can
// appear anymore. All ids that are settled are below it (see audit.go), and so is
// the run of ids after them that has no gap: an id is used once. A gap is a
// transaction that is open, or one that was rolled back, and ends the run until its id
// is settled. SQLite has one writer, and no such gaps.

// runRows bounds the rows after those that are settled that are read for one page.
const runRows = 10_000

// rareRows bounds the rows that are read for a page of kinds that there may be few of.
const rareRows = 100_000

const (
	// sells has the rows with which units are sold: see stock.Order.Sells.
	sells = `kind IN ('deduct', 'confirm')`

	byNumber = `WHERE l.order_no = ? AND l.` + sells
	byRow    = `WHERE l.id = ? AND l.order_no IS NULL AND l.kind = 'deduct'`

	pageOfItem = `WHERE l.id > ? AND l.id <= ? AND l.goods_id = ? AND l.kind IN (`
	pageOfAll  = `WHERE l.id > ? AND l.id <= ? AND l.kind IN (`

	readUpto = `SELECT upto FROM tb_ledger_settled WHERE id = 1`

	readLastID = `SELECT COALESCE(MAX(id), 0) FROM tb_stock_ledger`

	// readRun is the last id of the run: a row is in it where as many rows are between
	// it and the start as there are ids.
	readRun = `SELECT COALESCE(MAX(id), 0) FROM (
			SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS n FROM (
				SELECT id FROM tb_stock_ledger WHERE id > ? ORDER BY id LIMIT ?
			) AS later
		) AS numbered WHERE id = ? + n`
)

// Order finds an order of the ledger by its number; ok is false where there is none.
func (s *Store) Order(ctx context.Context, number string) (order stock.Order, ok bool, err error) {
	row, ok, err := s.findOrder(ctx, number)
	return row.Order, ok, err
}

func (s *Store) findOrder(ctx context.Context, number string) (row ledgerRow, ok bool, err error) {
	var rows []ledgerRow
	if id, wrong := strconv.ParseInt(number, 10, 64); wrong == nil && strconv.FormatInt(id, 10) == number {
		rows, err = s.readOrders(ctx, "find order in ledger", byRow, id)
	} else if isNumber(number) {
		rows, err = s.readOrders(ctx, "find order in ledger", byNumber, number)
	}
	if err != nil || len(rows) == 0 {
		return ledgerRow{}, false, err
	}
	return rows[0], true, nil
}

// isNumber reports whether a text is the number of an order or a reservation: a UUID, which that of a
// line of a basket goes on after.
func isNumber(text string) bool {
	const length = 36
	if len(text) < length {
		return false
	}
	id, err := uuid.Parse(text[:length])
	return err == nil && id.String() == text[:length] && strings.Trim(text[length:], "-0123456789") == ""
}

// OrdersAfter lists rows of some kinds of an item, or of all where goodsID is 0, in the order of
// the ledger: up to limit of those after a cursor, which is 0 at the beginning. next is
// the cursor of what follows. No row appears behind a cursor any more. A row is
// listed once no transaction before it is open, and late where one was rolled back. Without kinds
// they are those that sell.
func (s *Store) OrdersAfter(ctx context.Context, goodsID, after int64, limit int, kinds ...stock.Kind) (orders []stock.Order, next int64, err error) {
	last, err := s.final(ctx, after)
	if err != nil {
		return nil, 0, err
	}
	if len(kinds) == 0 {
		kinds = []stock.Kind{stock.Deduction, stock.Confirmation}
	}
	if !slices.Contains(kinds, stock.Deduction) { // they may be rare
		last = min(last, after+rareRows)
	}
	where, args := pageOfAll, []any{after, last}
	if goodsID != 0 {
		where, args = pageOfItem, append(args, goodsID)
	}
	for _, kind := range kinds {
		args = append(args, string(kind))
	}
	where += listOf(len(kinds), `?`) + `)`
	rows, err := s.readFirst(ctx, "read orders", where, "id", limit, args...)
	if err != nil {
		return nil, 0, err
	}
	if len(rows) == limit {
		last = rows[limit-1].id
	}
	return ordersOf(rows), max(after, last), nil
}

// final is the watermark, as seen from a cursor: nothing appears any more between the
// cursor and it.
func (s *Store) final(ctx context.Context, after int64) (id int64, err error) {
	if s.dialect.oneWriter {
		err = s.pool.QueryRowContext(ctx, readLastID).Scan(&id)
		return id, s.fault(ctx, "read last id", err)
	}
	var upto int64
	if err := s.pool.QueryRowContext(ctx, readUpto).Scan(&upto); err != nil {
		return 0, s.fault(ctx, "read what is settled", err)
	}
	start := max(after, upto)
	if s.sharded {
		return s.runOfShards(ctx, start)
	}
	err = s.pool.QueryRowContext(ctx, readRun, start, runRows, start).Scan(&id)
	return max(start, id), s.fault(ctx, "read what follows what is settled", err)
}

const (
	lockOrder    = `SELECT id FROM tb_stock_ledger WHERE id = ? AND goods_id = ?`
	lockArchived = `SELECT id FROM tb_ledger_archive WHERE id = ? AND goods_id = ?`

	// sumReturns is followed by the returns of both tables.
	sumReturns    = `SELECT COALESCE(SUM(quantity), 0) FROM (`
	selectReturns = `SELECT quantity FROM `
	returnsOf     = ` WHERE order_no = ? AND goods_id = ? AND kind = 'return'`
	sumReturnsEnd = `) AS r`
)

// GiveBack gives units of an order back, all that are left of it where units is 0, and returns
// the ledger's row of that. stock.ErrUnknownOrder: the ledger has no such order.
// stock.ErrReturned: fewer are left. stock.ErrStockLimit: the item would have more than stock.MaxStock.
// stock.ErrDuplicateRequest: the request id is in the ledger. In each case nothing was written.
// Damaged units cannot be sold again: a correction takes them off in the same transaction.
func (s *Store) GiveBack(ctx context.Context, number string, units int64, requestID string, damaged bool) (back stock.Order, err error) {
	order, ok, err := s.findOrder(ctx, number)
	if err != nil {
		return stock.Order{}, err
	}
	if !ok {
		return stock.Order{}, fmt.Errorf("%w: %q", stock.ErrUnknownOrder, number)
	}
	err = s.whileRowsChange(ctx, order.GoodsID, true, func(tx *Tx) error {
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
		if damaged {
			return tx.takeOff(ctx, back)
		}
		return tx.requireRoom(ctx, back.GoodsID)
	})
	return back, err
}

// takeOff takes what a return has given back off again.
func (t *Tx) takeOff(ctx context.Context, back stock.Order) error {
	goods, err := t.Goods(ctx, back.GoodsID)
	if err != nil {
		return err
	}
	c := stock.Correction{By: -back.Quantity, Reason: "damaged: order " + back.ID}
	if err := t.appendCorrection(ctx, goods, c, c.By, stock.DamageKey.Of(stock.KeyOf(back.RequestID))); err != nil {
		return err
	}
	_, err = t.write(ctx, "take damaged units off", addStock, c.By, c.By, back.GoodsID)
	return err
}

// lockUnreturned is how many units of an order have not come back; no others come back until
// the transaction ends. The row is locked where it is: it leaves the ledger only for the archive,
// and not while it is locked.
func (t *Tx) lockUnreturned(ctx context.Context, order ledgerRow) (left int64, err error) {
	var id, returned int64
	err = t.conn().QueryRowContext(ctx, lockOrder+t.store.dialect.forUpdate, order.id, order.GoodsID).Scan(&id)
	if errors.Is(err, sql.ErrNoRows) {
		err = t.conn().QueryRowContext(ctx, lockArchived+t.store.dialect.forUpdate, order.id, order.GoodsID).Scan(&id)
	}
	if err != nil {
		return 0, t.store.fault(ctx, "lock order", err)
	}
	err = t.conn().QueryRowContext(ctx, sumReturns+inBoth(selectReturns, returnsOf)+sumReturnsEnd, order.ID, order.GoodsID, order.ID, order.GoodsID).Scan(&returned)
	return order.Quantity - returned, t.store.fault(ctx, "sum returns", err)
}
