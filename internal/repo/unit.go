package repo

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/stockd/stockd/internal/stock"
)

// A unit row is an allocation with one unit of an item, or with none after its sale. The unit rows
// of an item are its pool. A pool has a bound, and what is beyond stays in the row of the item. A
// sold row is used again by the next fill: rows that were deleted instead would stay in the index
// until the purge, which a long read holds up, and each purchase would pass them.
//
// Taking units locks free unit rows that no other transaction keeps, waits for none, and locks
// nothing after them. Filling, gathering and recalling lock the row of the item first: of two, one
// waits there. Rows are made and deleted only under that lock. Sessions are READ COMMITTED, so that
// a row which does not match is not kept, nor a gap into which a fill would have to insert.

// InUnitRows is the strategy whose units are in unit rows.
const InUnitRows = "sql-unit"

// MaxUnitRows is the largest pool.
const MaxUnitRows = 5000

// unitPrefix begins the names of unit rows; unitEnd is the first name after all of them.
const (
	unitPrefix = "unit/"
	unitEnd    = "unit0" // '0' follows '/'
)

// unitRow is the name of a unit row. Rows are numbered from 0 without a gap, and their names
// have the order of the numbers.
func unitRow(number int64) string { return fmt.Sprintf(unitPrefix+"%04d", number) }

const (
	inUnitRows = `place >= '` + unitPrefix + `' AND place < '` + unitEnd + `'`

	readWithUnitRows = withOwn + inUnitRows + ownUnits + inUnitRows + otherUnits

	// What locks unit rows reads them by the primary key, in its order, whatever the optimizer
	// estimates: a sort locks every row before it leaves out what is beyond the LIMIT.
	selectUnitRows = `SELECT place FROM tb_stock_place `
	whereFree      = ` WHERE goods_id = ? AND place >= ? AND place < '` + unitEnd + `' AND units > 0 AND per_user = ?
		ORDER BY place LIMIT ?`
	whereAny  = ` WHERE goods_id = ? AND ` + inUnitRows + ` ORDER BY place`
	whereSold = ` WHERE goods_id = ? AND ` + inUnitRows + ` AND units = 0 ORDER BY place LIMIT ?`

	writeUnitRows = `UPDATE tb_stock_place `
	setUnits      = ` SET units = ? WHERE goods_id = ? AND place IN (`

	insertUnitRows = `INSERT INTO tb_stock_place (units, goods_id, place, per_user) VALUES `
	insertUnitRow  = `(1, ?, ?, ?)`

	readPool = `SELECT COUNT(*), COALESCE(SUM(units), 0) FROM tb_stock_place WHERE goods_id = ? AND ` + inUnitRows

	dropUnitRows = `DELETE FROM tb_stock_place WHERE goods_id = ? AND ` + inUnitRows
)

// Pool is the unit rows of an item.
type Pool struct {
	// Rows are all of them, Free those that have a unit.
	Rows, Free int64
}

// GoodsWithUnitRows reads the row, with the units of its unit rows. It may return
// ErrUnknownGoods.
func (s *Store) GoodsWithUnitRows(ctx context.Context, goodsID int64) (stock.Goods, error) {
	return s.scanGoods(ctx, s.pool.QueryRowContext(ctx, readWithUnitRows, goodsID, goodsID), goodsID)
}

// GoodsWithUnitRows is Store.GoodsWithUnitRows in a transaction.
func (t *Tx) GoodsWithUnitRows(ctx context.Context, goodsID int64) (stock.Goods, error) {
	return t.store.scanGoods(ctx, t.conn().QueryRowContext(ctx, readWithUnitRows, goodsID, goodsID), goodsID)
}

// TakeUnitRows sells units from free unit rows that no other transaction keeps, and waits for none.
// It looks at the row with the number from and at those after it. next is the number after the last
// one that it sold. Not taken: there are not as many, some are kept, or the item has another limit.
func (t *Tx) TakeUnitRows(ctx context.Context, goodsID, units, from int64) (next int64, taken bool, err error) {
	free, err := t.freeUnitRows(ctx, goodsID, from, units, t.store.dialect.skipLocked)
	if err != nil || int64(len(free)) < units {
		return 0, false, err
	}
	last, err := strconv.ParseInt(strings.TrimPrefix(free[units-1], unitPrefix), 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("read the number of unit row %q: %w", free[units-1], err)
	}
	return last + 1, true, t.SellUnitRows(ctx, goodsID, free)
}

// LockUnitRows waits for the transactions that keep free unit rows, and keeps every row that is
// free then from other writers. The row of the item must be locked.
func (t *Tx) LockUnitRows(ctx context.Context, goodsID int64) (free []string, err error) {
	return t.freeUnitRows(ctx, goodsID, 0, MaxUnitRows, t.store.dialect.forUpdate)
}

func (t *Tx) freeUnitRows(ctx context.Context, goodsID, from, most int64, locking string) ([]string, error) {
	return t.lockUnitRows(ctx, whereFree+locking, goodsID, unitRow(from), t.perUser, most)
}

// lockUnitRows runs a statement that selects unit rows and ends in a lock.
func (t *Tx) lockUnitRows(ctx context.Context, where string, args ...any) ([]string, error) {
	return readAll(ctx, t.store, t.conn(), "lock unit rows", scanOne[string], selectUnitRows+t.store.dialect.byID+where, args...)
}

// SellUnitRows takes the units off unit rows that are locked.
func (t *Tx) SellUnitRows(ctx context.Context, goodsID int64, rows []string) error {
	return t.setUnitRows(ctx, "sell unit rows", goodsID, 0, rows)
}

func (t *Tx) setUnitRows(ctx context.Context, doing string, goodsID, units int64, rows []string) error {
	if len(rows) == 0 {
		return nil
	}
	args := append([]any{units, goodsID}, anys(rows)...)
	_, err := t.write(ctx, doing, writeUnitRows+t.store.dialect.byID+setUnits+listOf(len(rows), `?`)+`)`, args...)
	return err
}

// Pool reads the unit rows of an item without locking any.
func (t *Tx) Pool(ctx context.Context, goodsID int64) (p Pool, err error) {
	err = t.conn().QueryRowContext(ctx, readPool, goodsID).Scan(&p.Rows, &p.Free)
	return p, t.store.fault(ctx, "read unit rows", err)
}

// FillPool moves units of an item from its row into its pool, the share of the strategy at most
// (stock.Goods.Share) and as many as the pool has less than most. It leaves a pool alone that is
// more than half full: another transaction has filled it. free is what the pool has then, with rows
// that other transactions keep. It may return ErrUnknownGoods.
func (s *Store) FillPool(ctx context.Context, goodsID, most int64) (free, filled int64, err error) {
	err = s.InItem(ctx, goodsID, func(tx *Tx) error {
		filled = 0
		goods, err := tx.lockGoods(ctx, goodsID)
		if err != nil {
			return err
		}
		tx.perUser = goods.PerUser // stable: the row is locked
		p, err := tx.Pool(ctx, goodsID)
		free = p.Free
		if units := min(goods.Share(s.strategy), most-free); err == nil && units > 0 && free <= most/2 {
			if filled, err = tx.fillUnitRows(ctx, goodsID, p, units, most); err == nil && filled > 0 {
				err = tx.Subtract(ctx, goods, filled)
			}
			free += filled
		}
		return err
	})
	return free, filled, err
}

// fillUnitRows puts units into sold unit rows that no other transaction keeps, and into new ones
// as far as the pool has fewer than most.
func (t *Tx) fillUnitRows(ctx context.Context, goodsID int64, p Pool, units, most int64) (filled int64, err error) {
	sold, err := t.lockUnitRows(ctx, whereSold+t.store.dialect.skipLocked, goodsID, units)
	if err != nil {
		return 0, err
	}
	if err := t.setUnitRows(ctx, "fill unit rows", goodsID, 1, sold); err != nil {
		return 0, err
	}
	filled = int64(len(sold))
	added := max(0, min(units-filled, most-p.Rows))
	if added == 0 {
		return filled, nil
	}
	args := make([]any, 0, 3*added)
	for number := range added {
		args = append(args, goodsID, unitRow(p.Rows+number), t.perUser)
	}
	_, err = t.write(ctx, "add unit rows", insertUnitRows+listOf(int(added), insertUnitRow), args...)
	return filled + added, err
}

// RecallUnitRows moves all units of an item from its unit rows back into its row, and deletes
// them. It may return ErrUnknownGoods.
func (s *Store) RecallUnitRows(ctx context.Context, goodsID int64) (returned int64, err error) {
	return s.recall(ctx, goodsID, func(tx *Tx) (int64, error) {
		if _, err := tx.lockUnitRows(ctx, whereAny+s.dialect.forUpdate, goodsID); err != nil {
			return 0, err
		}
		p, err := tx.Pool(ctx, goodsID)
		if err != nil || p.Rows == 0 {
			return 0, err
		}
		_, err = tx.write(ctx, "delete unit rows", dropUnitRows, goodsID)
		return p.Free, err
	})
}
