package repo

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/stockd/stockd/internal/stock"
)

// A fence rejects a holder that has lost its lock without noticing. The token
// of the lease is claimed before the stock is read, and the claim is required at
// the write: a later claim rejects every earlier one, also of holders that have read
// already. Tokens are compared within one strategy; another strategy's claim rejects
// as well, whatever its number.
//
// A token is not unique where its counter was lost: a Redis or a database that was
// promoted before it had the last increment gives the same number again. So each
// claim has a name of its own, and of two holders with one token the last to claim
// may write.

const (
	claimFence = `UPDATE tb_goods_stock SET fence = ?, fence_by = ?, claim = ?
		WHERE goods_id = ? AND (fence <= ? OR fence_by <> ?)`

	// The token is compared, too: a replica that knows no claims leaves the last one.
	writeStockIfClaimed = writeStock + ` AND claim = ? AND fence = ? AND fence_by = ?`

	isClaimed = `SELECT COUNT(*) FROM tb_goods_stock WHERE goods_id = ? AND claim = ? AND fence = ? AND fence_by = ?`

	readFence = `SELECT COALESCE(MAX(fence), 0) FROM tb_goods_stock WHERE goods_id = ? AND fence_by = ?`
)

// Claim is the right to write an item under a fencing token, until the next claim.
type Claim struct {
	Token uint64
	name  string
}

// ClaimFence makes the token the one that writes of this strategy must have.
// stock.ErrFenced: a holder with a later token has claimed the item.
// stock.ErrUnknownGoods: there is no such item.
func (s *Store) ClaimFence(ctx context.Context, goodsID int64, token uint64) (Claim, error) {
	claim := Claim{Token: token, name: rand.Text()}
	result, err := s.pool.ExecContext(ctx, claimFence, token, s.strategy, claim.name, goodsID, token, s.strategy)
	if err != nil {
		return claim, s.fault(ctx, "claim fence", err)
	}
	rows, err := result.RowsAffected()
	if err != nil || rows == 1 {
		return claim, s.fault(ctx, "claim fence", err)
	}
	goods, err := s.Goods(ctx, goodsID)
	if err != nil {
		return claim, err
	}
	return claim, fmt.Errorf("%w: token %d of item %d came after token %d", stock.ErrFenced, token, goodsID, goods.Fence)
}

// Fence is the highest token of this strategy that has claimed the item, or 0.
func (s *Store) Fence(ctx context.Context, goodsID int64) (token uint64, err error) {
	err = s.pool.QueryRowContext(ctx, readFence, goodsID, s.strategy).Scan(&token)
	return token, s.fault(ctx, "read fence", err)
}

// SetStockIfClaimed is SetStock for a holder whose claim is still the last one, and
// stock.ErrFenced for every other.
func (t *Tx) SetStockIfClaimed(ctx context.Context, read stock.Goods, units int64, claim Claim) error {
	written, err := t.writeComputed(ctx, "set stock of claim", writeStockIfClaimed, read, units, claim.name, claim.Token, t.store.strategy)
	if err != nil || written {
		return err
	}
	var claimed bool
	err = t.conn().QueryRowContext(ctx, isClaimed, read.ID, claim.name, claim.Token, t.store.strategy).Scan(&claimed)
	if err != nil {
		return t.store.fault(ctx, "read claim", err)
	}
	if claimed {
		return rowChanged(read.ID)
	}
	return fmt.Errorf("%w: item %d was claimed after token %d", stock.ErrFenced, read.ID, claim.Token)
}
