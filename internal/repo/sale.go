package repo

import (
	"context"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// An item that is not on sale has its units withheld: the row has none to sell, whatever strategy looks, and what comes
// back to the row is withheld, too. Units in allocations are recalled after that; the row then fills no allocation. The
// statements compare with the clock of the database, and no clock of a replica decides.

const (
	inStock = `g.stock + COALESCE(g.withheld, 0) + ` + allocated

	// closeSale has the time three times.
	closeSale = `UPDATE tb_goods_stock SET ends_at = %[1]s, due_at = %[1]s WHERE goods_id = ? AND (ends_at IS NULL OR ends_at > %[1]s)`

	// withhold is followed by the time.
	withhold = `UPDATE tb_goods_stock SET withheld = stock, stock = 0, ` + besideSales + ` WHERE goods_id = ? AND withheld IS NULL AND ends_at <= `

	settleSale = `UPDATE tb_goods_stock SET due_at = NULL WHERE goods_id = ? AND withheld IS NOT NULL AND due_at <= `

	readDue = `SELECT goods_id FROM tb_goods_stock WHERE due_at <= `
)

// GoodsOnSale is Goods with the times of its sale, and the time of the database.
func (s *Store) GoodsOnSale(ctx context.Context, goodsID int64) (stock.Goods, error) {
	var starts, ends *moment
	var now moment
	statement := rowColumns + `, g.starts_at, g.ends_at, ` + s.dialect.now + ` FROM tb_goods_stock AS g WHERE g.goods_id = ?`
	goods, err := s.scanGoods(ctx, s.pool.QueryRowContext(ctx, statement, goodsID), goodsID, &starts, &ends, &now)
	if starts != nil {
		goods.StartsAt, goods.Now = &starts.Time, now.Time
	}
	if ends != nil {
		goods.EndsAt, goods.Now = &ends.Time, now.Time
	}
	return goods, err
}

// InStock is the item with all its units, in the row and in allocations. It may return
// ErrUnknownGoods.
func (s *Store) InStock(ctx context.Context, goodsID int64) (stock.Goods, error) {
	goods, err := s.GoodsOnSale(ctx, goodsID)
	goods.Stock, goods.Allocated = goods.InRow()+goods.Allocated, 0
	return goods, err
}

// CloseSale ends the sale of an item now, where it has not ended, and withholds the units of its row. It may return
// ErrUnknownGoods.
func (s *Store) CloseSale(ctx context.Context, goodsID int64) error {
	return s.endSale(ctx, goodsID, func(tx *Tx) error {
		_, err := tx.write(ctx, "close a sale", fmt.Sprintf(closeSale, s.dialect.now), goodsID)
		return err
	})
}

// Withhold withholds the units of the row of an item whose sale has ended.
func (s *Store) Withhold(ctx context.Context, goodsID int64) error {
	return s.endSale(ctx, goodsID, func(*Tx) error { return nil })
}

func (s *Store) endSale(ctx context.Context, goodsID int64, set func(*Tx) error) error {
	return s.InItem(ctx, goodsID, func(tx *Tx) error {
		if _, err := tx.lockGoods(ctx, goodsID); err != nil {
			return err
		}
		if err := set(tx); err != nil {
			return err
		}
		_, err := tx.write(ctx, "withhold units", withhold+s.dialect.now, goodsID)
		return err
	})
}

// SettleSale notes that no allocation of an item has units whose units are withheld.
func (s *Store) SettleSale(ctx context.Context, goodsID int64) error {
	return s.InItem(ctx, goodsID, func(tx *Tx) error {
		_, err := tx.write(ctx, "settle a sale", settleSale+s.dialect.now, goodsID)
		return err
	})
}

// SalesDue lists the items whose units are to be withheld within a time from now.
func (s *Store) SalesDue(ctx context.Context, within time.Duration) (ids []int64, err error) {
	err = s.db.WithContext(ctx).Raw(readDue+s.dialect.until, within.Microseconds()).Scan(&ids).Error
	return ids, s.fault(ctx, "read the sales that end", err)
}
