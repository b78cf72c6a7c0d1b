package repo

import (
	"context"
	"fmt"

	"github.com/stockd/stockd/internal/stock"
)

// A fence keeps a holder out that lost its lock and does not know it. The token
// of the lease is claimed before the stock is read, and required at the write:
// whoever claims later shuts out all who claimed before, also those who have
// read already. Tokens are compared within one strategy; another strategy's
// claim shuts out as well, whatever its number.

const (
	claimFence = `UPDATE tb_goods_stock SET fence = ?, fence_by = ?
		WHERE goods_id = ? AND (fence <= ? OR fence_by <> ?)`

	writeStockIfFence = `UPDATE tb_goods_stock SET stock = ?, version = version + 1
		WHERE goods_id = ? AND fence = ? AND fence_by = ? AND per_user = ?`

	readFence = `SELECT COALESCE(MAX(fence), 0) FROM tb_goods_stock WHERE goods_id = ? AND fence_by = ?`
)

// ClaimFence makes the token the one that writes of this strategy must have.
// stock.ErrFenced: a later holder has claimed the goods. stock.ErrUnknownGoods:
// there is no such goods.
func (s *Store) ClaimFence(ctx context.Context, goodsID int64, token uint64) error {
	result, err := s.pool.ExecContext(ctx, claimFence, token, s.strategy, goodsID, token, s.strategy)
	if err != nil {
		return s.fault(ctx, "claim fence", err)
	}
	rows, err := result.RowsAffected()
	if err != nil || rows == 1 {
		return s.fault(ctx, "claim fence", err)
	}
	goods, err := s.Goods(ctx, goodsID)
	if err != nil {
		return err
	}
	return fmt.Errorf("%w: token %d of goods %d came after token %d", stock.ErrFenced, token, goodsID, goods.Fence)
}

// Fence is the highest token of this strategy that has claimed the goods, or 0.
func (s *Store) Fence(ctx context.Context, goodsID int64) (token uint64, err error) {
	err = s.pool.QueryRowContext(ctx, readFence, goodsID, s.strategy).Scan(&token)
	return token, s.fault(ctx, "read fence", err)
}

// SetStockIfFence writes the stock where the token is still the one that has
// claimed the goods, and is stock.ErrFenced otherwise. ErrLimitChanged: the goods
// has another limit.
func (t *Tx) SetStockIfFence(ctx context.Context, goodsID, units int64, token uint64) error {
	rows, err := t.write(ctx, "set stock of fence", writeStockIfFence, units, goodsID, token, t.store.strategy, t.perUser)
	if err != nil || rows > 0 {
		return err
	}
	goods, err := t.Goods(ctx, goodsID)
	switch {
	case err != nil:
		return err
	case goods.PerUser != t.perUser:
		return limitChanged(goodsID)
	default:
		return fmt.Errorf("%w: goods %d was claimed after token %d", stock.ErrFenced, goodsID, token)
	}
}
