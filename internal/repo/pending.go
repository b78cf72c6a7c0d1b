package repo

import (
	"context"

	"github.com/stockd/stockd/internal/stock"
)

// GoodsSettled reads the row when no transaction is open that has written it. A
// commit that was sent and not answered may still happen after its purchase was
// answered and its lock was released: the next holder of the lock must not read
// the stock from before. ErrUnknownGoods: there is none.
func (s *Store) GoodsSettled(ctx context.Context, goodsID int64) (stock.Goods, error) {
	return s.readGoods(ctx, s.pool, readRow+s.dialect.lockRead, goodsID)
}
