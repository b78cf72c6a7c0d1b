package repo

import (
	"context"
	"reflect"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

// An item that is not on sale has its units withheld: the row has none to sell, whatever strategy looks, and what comes
// back to the row is withheld, too. Units in allocations are recalled after that; the row then fills no allocation. The
// statements compare with the clock of the database, and no clock of a replica decides.

const (
	inStock = `g.stock + COALESCE(g.withheld, 0) + ` + allocated

	// {now} is the time of the database: see writeNow.
	closeSale = `UPDATE tb_goods_stock SET ends_at = {now}, due_at = {now} WHERE goods_id = ? AND (ends_at IS NULL OR ends_at > {now})`

	// setSale has whether a time is set, and the time, twice.
	setSale = `UPDATE tb_goods_stock SET starts_at = CASE WHEN ? THEN ? ELSE starts_at END, ends_at = CASE WHEN ? THEN ? ELSE ends_at END,
		due_at = {now} WHERE goods_id = ?`

	withhold = `UPDATE tb_goods_stock SET withheld = stock, stock = 0, ` + besideSales + `
		WHERE goods_id = ? AND withheld IS NULL AND (ends_at <= {now} OR starts_at > {now})`
	putBack = `UPDATE tb_goods_stock SET stock = stock + withheld, withheld = NULL, ` + besideSales + `
		WHERE goods_id = ? AND withheld IS NOT NULL AND (ends_at IS NULL OR ends_at > {now}) AND (starts_at IS NULL OR starts_at <= {now})`

	// expectEnd is for an item that is on sale, and settleSale for one whose units are withheld.
	expectEnd  = `UPDATE tb_goods_stock SET due_at = ends_at WHERE goods_id = ? AND withheld IS NULL`
	settleSale = `UPDATE tb_goods_stock SET due_at = CASE WHEN starts_at > {now} THEN starts_at END
		WHERE goods_id = ? AND withheld IS NOT NULL AND due_at <= {now}`

	readDue = `SELECT goods_id FROM tb_goods_stock WHERE due_at <= `
)

// saleTimes are the columns of onSale.
type saleTimes struct {
	starts, ends *moment
	now          moment
}

func (t *saleTimes) columns() []any { return []any{&t.starts, &t.ends, &t.now} }

func (t *saleTimes) of(g *stock.Goods) {
	if t.starts != nil {
		g.StartsAt, g.Now = &t.starts.Time, t.now.Time
	}
	if t.ends != nil {
		g.EndsAt, g.Now = &t.ends.Time, t.now.Time
	}
}

// onSale reads items with the times of their sales, and the time of the database.
func (s *Store) onSale(where string) string {
	return rowColumns + `, g.starts_at, g.ends_at, ` + s.dialect.now + ` FROM tb_goods_stock AS g WHERE ` + where
}

// GoodsOnSale is Goods with the times of its sale, and the time of the database.
func (s *Store) GoodsOnSale(ctx context.Context, goodsID int64) (stock.Goods, error) {
	return s.readOnSale(ctx, s.pool, goodsID, "")
}

func (s *Store) readOnSale(ctx context.Context, conn gorm.ConnPool, goodsID int64, lock string) (stock.Goods, error) {
	var times saleTimes
	goods, err := s.scanGoods(ctx, conn.QueryRowContext(ctx, s.onSale(`g.goods_id = ?`)+lock, goodsID), goodsID, times.columns()...)
	times.of(&goods)
	return goods, err
}

// InStock is the item with all its units, in the row and in allocations. It may return
// ErrUnknownGoods.
func (s *Store) InStock(ctx context.Context, goodsID int64) (stock.Goods, error) {
	goods, err := s.GoodsOnSale(ctx, goodsID)
	return inAll(goods), err
}

// inAll has all units of an item in its stock.
func inAll(g stock.Goods) stock.Goods {
	g.Stock, g.Allocated = g.InRow()+g.Allocated, 0
	return g
}

// InStockAfter is InStock of up to most items whose ids are above one, by their ids.
func (s *Store) InStockAfter(ctx context.Context, goodsID int64, most int) ([]stock.Goods, error) {
	scan := func(row scanRow) (g stock.Goods, err error) {
		var times saleTimes
		err = row(append(columnsOf(&g), times.columns()...)...)
		times.of(&g)
		return inAll(g), err
	}
	return readAll(ctx, s, s.pool, "read items", scan, s.onSale(`g.goods_id > ? ORDER BY g.goods_id LIMIT ?`), goodsID, most)
}

// CloseSale ends the sale of an item now, where it has not ended, and withholds the units of its row. It may return
// ErrUnknownGoods.
func (s *Store) CloseSale(ctx context.Context, goodsID int64) error {
	return s.turnSale(ctx, goodsID, func(tx *Tx) error {
		return tx.writeNow(ctx, "close a sale", closeSale, goodsID)
	})
}

// SetSale sets the times of the sale of an item. It may return ErrUnknownGoods.
func (s *Store) SetSale(ctx context.Context, goodsID int64, to stock.SaleChange) error {
	return s.turnSale(ctx, goodsID, func(tx *Tx) error { return tx.setSale(ctx, goodsID, to) })
}

func (t *Tx) setSale(ctx context.Context, goodsID int64, to stock.SaleChange) error {
	at := func(set *time.Time) (given bool, written any) {
		if set == nil || set.IsZero() {
			return set != nil, nil
		}
		return true, set.UTC().Format(t.store.dialect.columnTime)
	}
	starts, from := at(to.StartsAt)
	ends, until := at(to.EndsAt)
	return t.writeNow(ctx, "set the times of a sale", setSale, starts, from, ends, until, goodsID)
}

// TurnSale withholds the units of the row of an item that is not on sale by now, and puts those of one that is on sale
// back into the row.
func (s *Store) TurnSale(ctx context.Context, goodsID int64) error {
	return s.turnSale(ctx, goodsID, func(*Tx) error { return nil })
}

func (s *Store) turnSale(ctx context.Context, goodsID int64, set func(*Tx) error) error {
	return s.InItem(ctx, goodsID, func(tx *Tx) error {
		if _, err := s.lockFirst(ctx, tx.conn(), s.dialect.forUpdate, goodsID); err != nil {
			return err
		}
		before, err := s.readOnSale(ctx, tx.conn(), goodsID, s.dialect.forUpdate)
		if err != nil {
			return err
		}
		if err := set(tx); err != nil {
			return err
		}
		if err := tx.turnSale(ctx, goodsID); err != nil {
			return err
		}
		after, err := s.readOnSale(ctx, tx.conn(), goodsID, "")
		if before.Now, after.Now = (time.Time{}), (time.Time{}); err != nil || reflect.DeepEqual(before.Sale, after.Sale) {
			return err
		}
		return tx.appendSettings(ctx, goodsID, stock.SaleSet, stock.Settings{Sale: after.Sale})
	})
}

func (t *Tx) turnSale(ctx context.Context, goodsID int64) error {
	for _, statement := range []string{withhold, putBack, expectEnd} {
		if err := t.writeNow(ctx, "turn a sale", statement, goodsID); err != nil {
			return err
		}
	}
	return nil
}

func (t *Tx) writeNow(ctx context.Context, doing, statement string, args ...any) error {
	_, err := t.write(ctx, doing, strings.ReplaceAll(statement, "{now}", t.store.dialect.now), args...)
	return err
}

// SettleSale notes that no allocation of an item has units whose units are withheld.
func (s *Store) SettleSale(ctx context.Context, goodsID int64) error {
	return s.InItem(ctx, goodsID, func(tx *Tx) error {
		return tx.writeNow(ctx, "settle a sale", settleSale, goodsID)
	})
}

// SalesDue lists the items whose units are to be withheld, or put back, within a time from now.
func (s *Store) SalesDue(ctx context.Context, within time.Duration) (ids []int64, err error) {
	err = s.db.WithContext(ctx).Raw(readDue+s.dialect.until, within.Microseconds()).Scan(&ids).Error
	return ids, s.fault(ctx, "read the sales that end", err)
}
