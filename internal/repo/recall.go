package repo

import (
	"context"

	"github.com/stockd/stockd/internal/stock"
)

const (
	returnToRow = `UPDATE tb_goods_stock SET stock = stock + ?, ` + byRecall + ` WHERE goods_id = ?`

	readAllocators = `SELECT DISTINCT CASE WHEN ` + inBuckets + ` THEN '` + Bucketed + `' ELSE place END
		FROM tb_stock_place WHERE goods_id = ? AND units > 0`

	readItemsIn = `SELECT goods_id FROM tb_stock_place WHERE place = ? AND units > 0`

	takeFromPlace = `UPDATE tb_stock_place SET units = units - ? WHERE goods_id = ? AND place = ?`

	// readReach has the columns of readRow, and then those of a place.
	readReach = `SELECT g.goods_id, g.stock, ` + allocated + ` - COALESCE(p.units, 0), ` + goodsColumns + `,
		COALESCE(p.units, 0), COALESCE(p.epoch, 0), COALESCE(p.closed, FALSE)
		FROM tb_goods_stock AS g LEFT JOIN tb_stock_place AS p ON p.goods_id = g.goods_id AND p.place = ?
		WHERE g.goods_id = ?`
)

// ReturnUnits moves the units of a closed place back into the row of its item, but for
// those of pending orders, and returns how many. pending must not grow in the epoch in
// which it was counted; where another one has begun, no unit is moved.
// stock.ErrUnknownOutcome: calling it again moves no unit twice.
func (s *Store) ReturnUnits(ctx context.Context, goodsID int64, allocation string, epoch, pending int64) (after Allocation, units int64, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		if _, err := tx.lockGoods(ctx, goodsID); err != nil {
			return err
		}
		var err error
		after, _, err = s.readAllocation(ctx, tx.conn(), readAllocation+s.dialect.forUpdate, goodsID, allocation)
		units = max(0, after.Units-pending)
		if err != nil || !after.Closed || after.Epoch != epoch || units == 0 {
			units = 0
			return err
		}
		if _, err := tx.write(ctx, "take from place", takeFromPlace, units, goodsID, allocation); err != nil {
			return err
		}
		after.Units -= units
		_, err = tx.write(ctx, "return units to the row", returnToRow, units, goodsID)
		return err
	})
	return after, units, err
}

// Reach reads the row of an item and one of its allocations as of one moment. Allocated counts
// the units of its other allocations.
func (s *Store) Reach(ctx context.Context, goodsID int64, allocation string) (goods stock.Goods, in Allocation, err error) {
	in.GoodsID = goodsID
	goods, err = s.scanGoods(ctx, s.pool.QueryRowContext(ctx, readReach, allocation, goodsID), goodsID, &in.Units, &in.Epoch, &in.Closed)
	in.PerUser = goods.PerUser
	return goods, in, err
}

// RecallBuckets moves all units of an item from its buckets back into its row, and takes
// the buckets away. It may return ErrUnknownGoods.
func (s *Store) RecallBuckets(ctx context.Context, goodsID int64) (returned int64, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		if _, err := tx.lockGoods(ctx, goodsID); err != nil {
			return err
		}
		buckets, err := tx.lockBuckets(ctx, goodsID)
		returned = buckets.Sum()
		if err != nil {
			return err
		}
		if err := tx.dropBuckets(ctx, goodsID, beyond(buckets, 0)); err != nil || returned == 0 {
			return err
		}
		_, err = tx.write(ctx, "return units to the row", returnToRow, returned, goodsID)
		return err
	})
	return returned, err
}

// Allocators lists the strategies that hold units of an item outside of its row.
func (s *Store) Allocators(ctx context.Context, goodsID int64) (names []string, err error) {
	err = s.db.WithContext(ctx).Raw(readAllocators, goodsID).Scan(&names).Error
	return names, s.fault(ctx, "read allocators", err)
}

// ItemsIn lists the items that have units in an allocation.
func (s *Store) ItemsIn(ctx context.Context, allocation string) (map[int64]bool, error) {
	var ids []int64
	if err := s.db.WithContext(ctx).Raw(readItemsIn, allocation).Scan(&ids).Error; err != nil {
		return nil, s.fault(ctx, "read the items of a place", err)
	}
	items := make(map[int64]bool, len(ids))
	for _, id := range ids {
		items[id] = true
	}
	return items, nil
}
