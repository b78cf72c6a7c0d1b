package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

// Tx is an open transaction. Append the rows of the ledger first and write the stock row last:
// the contended row is then locked for one statement and the commit.
//
// A transaction sells under a limit per buyer: none, or that of CountIn. If the item has another
// one by then, nothing is written.
type Tx struct {
	store   *Store
	db      *gorm.DB
	perUser int64 // the limit
}

// conn is the connection of the transaction, for the statements whose result
// GORM does not hand out.
func (t *Tx) conn() gorm.ConnPool { return t.db.Statement.ConnPool }

// Goods reads the row without locking it.
func (t *Tx) Goods(ctx context.Context, goodsID int64) (stock.Goods, error) {
	return t.store.readGoods(ctx, t.conn(), readRow, goodsID)
}

// GoodsForUpdate reads the row and keeps every other writer from it until the
// transaction ends. ErrRowChanged: the item has another limit.
func (t *Tx) GoodsForUpdate(ctx context.Context, goodsID int64) (stock.Goods, error) {
	goods, err := t.lockGoods(ctx, goodsID)
	if err == nil && goods.PerUser != t.perUser {
		err = rowChanged(goodsID)
	}
	return goods, err
}

// lockGoods is GoodsForUpdate for transactions that sell nothing, whatever the limit is.
func (t *Tx) lockGoods(ctx context.Context, goodsID int64) (stock.Goods, error) {
	if _, err := t.store.lockFirst(ctx, t.conn(), t.store.dialect.forUpdate, goodsID); err != nil {
		return stock.Goods{}, err
	}
	return t.store.readGoods(ctx, t.conn(), t.store.dialect.readForUpdate, goodsID)
}

// SetStock writes the stock that was computed from a read, whatever the same
// strategy has sold since. ErrRowChanged: something else has changed.
func (t *Tx) SetStock(ctx context.Context, read stock.Goods, units int64) error {
	written, err := t.writeComputed(ctx, "set stock", writeStock, read, units)
	return orChanged(read, written, err)
}

// SetStockIfVersion writes the stock where the row's version is still the one
// that was read, and reports whether it was.
func (t *Tx) SetStockIfVersion(ctx context.Context, read stock.Goods, units int64) (written bool, err error) {
	me := t.store.strategy
	rows, err := t.write(ctx, "set stock of version", writeStockIfVersion, units, me, me, read.ID, read.Version)
	return rows == 1, err
}

// Subtract takes units off the stock, whatever the same strategy has left of it
// since the read. ErrRowChanged: something else has changed.
func (t *Tx) Subtract(ctx context.Context, read stock.Goods, units int64) error {
	written, err := t.writeComputed(ctx, "subtract stock", subtract, read, units)
	return orChanged(read, written, err)
}

// SubtractIfEnough takes units off the stock where that many are left, and reports
// whether there were. There are none if the item has another limit.
func (t *Tx) SubtractIfEnough(ctx context.Context, goodsID, units int64) (left int64, enough bool, err error) {
	d := t.store.dialect
	me := t.store.strategy
	left, rows, err := d.change(ctx, t.conn(), d.subtractIfEnough, units, me, me, goodsID, units, t.perUser)
	return left, rows == 1, t.store.fault(ctx, "subtract stock if enough", err)
}

func (t *Tx) write(ctx context.Context, doing, statement string, args ...any) (rows int64, err error) {
	result, err := t.conn().ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, t.store.fault(ctx, doing, err)
	}
	rows, err = result.RowsAffected()
	return rows, t.store.fault(ctx, doing, err)
}

func (s *Store) readGoods(ctx context.Context, conn gorm.ConnPool, statement string, goodsID int64) (stock.Goods, error) {
	return s.scanGoods(ctx, conn.QueryRowContext(ctx, statement, goodsID), goodsID)
}

// scanGoods scans the columns of readRow, and into more what a statement has after them.
func (s *Store) scanGoods(ctx context.Context, row *sql.Row, goodsID int64, more ...any) (stock.Goods, error) {
	var g stock.Goods
	err := row.Scan(append(columnsOf(&g), more...)...)
	if errors.Is(err, sql.ErrNoRows) {
		return stock.Goods{}, fmt.Errorf("item %d: %w", goodsID, stock.ErrUnknownGoods)
	}
	return g, s.fault(ctx, "read stock", err)
}

// columnsOf is where the columns of readRow go.
func columnsOf(g *stock.Goods) []any {
	return []any{&g.ID, &g.Stock, &g.Allocated, &g.Version, &g.Fence, &g.PerUser, &g.Writer, &g.WriterEpoch, &g.Withheld}
}

// A strategy that reads the stock, decides and writes it back overwrites whatever
// came between. What its own purchases do to each other is what the strategy is
// there to show, or to prevent; every other change must be noticed: a restock, a
// limit, units moved to or from allocations, a sale by another strategy.
//
// Therefore the row has an epoch of one writer. A change beside the sales begins a
// new epoch, which has no writer yet. The first strategy to sell in an epoch becomes
// its writer; a sale by another one begins the next epoch. A write that was computed
// from a read is accepted where nothing at all was written since, or in the same epoch
// while no other strategy is its writer.

const (
	// bySale takes the strategy twice.
	bySale = `version = version + 1, writer_epoch = writer_epoch + (writer NOT IN ('', ?)), writer = ?`

	besideSales = `version = version + 1, writer_epoch = writer_epoch + 1, writer = ''`

	// byRecall leaves a writer that is no strategy: each one that keeps an allocation then
	// takes a share of the units and not all, also the one that had them. What recalled
	// them sells first from the rest. See stock.Goods.Share.
	byRecall = `version = version + 1, writer_epoch = writer_epoch + 1, writer = 'recall'`

	// unchanged takes the version and the epoch that were read, and the strategy.
	unchanged = `(version = ? OR writer_epoch = ? AND writer IN ('', ?))`
)

// ErrRowChanged reports that the row is not what the transaction was computed from:
// the item was restocked, got another limit, its units were moved, another strategy
// has sold it, or the database rolled the transaction back as a deadlock victim.
// Nothing is written; the purchase must be decided anew.
var ErrRowChanged = fmt.Errorf("%w: the stock was changed beside the sale", stock.ErrBusy)

func rowChanged(goodsID int64) error { return fmt.Errorf("item %d: %w", goodsID, ErrRowChanged) }

func orChanged(read stock.Goods, written bool, err error) error {
	if err == nil && !written {
		err = rowChanged(read.ID)
	}
	return err
}

// writeComputed runs a statement that begins with bySale and ends in unchanged,
// where the item has the limit that the transaction sells under, and reports whether
// the row was as it was read. more are the arguments of what follows.
func (t *Tx) writeComputed(ctx context.Context, doing, statement string, read stock.Goods, units int64, more ...any) (written bool, err error) {
	if read.PerUser != t.perUser {
		return false, rowChanged(read.ID)
	}
	me := t.store.strategy
	args := append([]any{units, me, me, read.ID, read.Version, read.WriterEpoch, me}, more...)
	rows, err := t.write(ctx, doing, statement, args...)
	return rows == 1, err
}

// GoodsSettled reads the row when no transaction is open that has written it. A
// commit that was sent and not answered may still happen after its purchase was
// answered and its lock was released: the next holder of the lock must not read
// the stock from before. ErrUnknownGoods: there is none.
func (s *Store) GoodsSettled(ctx context.Context, goodsID int64) (stock.Goods, error) {
	if _, err := s.lockFirst(ctx, s.pool, s.dialect.lockRead, goodsID); err != nil {
		return stock.Goods{}, err
	}
	return s.readGoods(ctx, s.pool, readRow+s.dialect.lockRead, goodsID)
}
