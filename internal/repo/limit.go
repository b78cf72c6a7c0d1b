package repo

import (
	"context"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

const (
	setLimit = `UPDATE tb_goods_stock SET per_user = ?, ` + besideSales + ` WHERE goods_id = ?`

	// An epoch ends with its limit: orders of it that are pending are compared again.
	setLimitOfPlaces = `UPDATE tb_stock_place SET per_user = ?, epoch = epoch + 1 WHERE goods_id = ?`

	forgetUsers = `DELETE FROM tb_stock_user WHERE goods_id = ?`

	// recountUsers contains the dialect's user twice. What the buyers have was allowed.
	recountUsers    = `INSERT INTO tb_stock_user (goods_id, user_id, units, allowed) SELECT goods_id, `
	recountUsersSum = `, SUM(quantity), SUM(quantity) FROM tb_stock_ledger
		WHERE goods_id = ? AND kind = 'deduct' AND user_id IS NOT NULL GROUP BY goods_id, `

	allowUsers = `UPDATE tb_stock_user SET allowed = units WHERE goods_id = ? AND units > ? AND units > allowed`
)

// RecountWithin limits the transaction that sets a limit, which may read the whole ledger of an
// item.
const RecountWithin = 10 * time.Minute

// SetLimit sets the limit per buyer of an item, 0 to stock.MaxPerUser; 0 means unlimited. After
// it returns nothing is sold under another limit, except orders that are already pending.
//
// The first limit counts what every buyer has bought before: purchases of the item wait while the
// ledger is read. It may return stock.ErrUnknownGoods. stock.ErrUnknownOutcome: the limit may be
// set; setting it again completes it.
func (s *Store) SetLimit(ctx context.Context, goodsID, perUser int64) error {
	// It writes no row of the ledger, so that the running totals need not wait for it.
	err := s.inTx(ctx, RecountWithin, func(tx *Tx) error {
		goods, err := tx.lockGoods(ctx, goodsID)
		if err != nil || goods.PerUser == perUser {
			return err
		}
		if _, err := tx.write(ctx, "set limit", setLimit, perUser, goodsID); err != nil {
			return err
		}
		if _, err := tx.write(ctx, "set limit of places", setLimitOfPlaces, perUser, goodsID); err != nil {
			return err
		}
		if goods.PerUser > 0 {
			return nil // buyers were counted all the while
		}
		return tx.recount(ctx, goodsID)
	})
	if err != nil || perUser == 0 {
		return err
	}
	// A buyer with more than the new, lower limit was allowed to have it. This is another
	// transaction: in the same one it would hold the row and wait for buyers, whose
	// transactions wait for the row.
	err = s.inTx(ctx, RecountWithin, func(tx *Tx) error {
		_, err := tx.write(ctx, "allow what buyers have", allowUsers, goodsID, perUser)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: the limit was set: %w", stock.ErrUnknownOutcome, err)
	}
	return nil
}

// recount counts the units of each buyer in the ledger. It holds the locks of the row and the
// allocations: earlier writers have committed, and later ones find another limit.
func (t *Tx) recount(ctx context.Context, goodsID int64) error {
	if _, err := t.write(ctx, "forget buyers", forgetUsers, goodsID); err != nil {
		return err
	}
	user := t.store.dialect.userBytes
	_, err := t.write(ctx, "count buyers anew", recountUsers+user+recountUsersSum+user, goodsID)
	return err
}

// auditUsers compares the units of each buyer in the ledger with its count, in one statement, so
// that both are read as of one moment. It contains the dialect's user twice.
const (
	auditUsersOfLedger = `SELECT
			COUNT(CASE WHEN u.bought <> u.counted THEN 1 END) AS miscounted,
			COUNT(CASE WHEN u.bought > g.per_user AND u.bought > u.allowed THEN 1 END) AS beyond_limit
		FROM tb_goods_stock AS g, (
			SELECT user_id, SUM(bought) AS bought, SUM(counted) AS counted, SUM(allowed) AS allowed FROM (
				SELECT `
	auditUsersOfCounts = ` AS user_id, quantity AS bought, 0 AS counted, 0 AS allowed
					FROM tb_stock_ledger WHERE goods_id = ? AND kind = 'deduct' AND user_id IS NOT NULL
				UNION ALL
				SELECT user_id, 0, units, allowed FROM tb_stock_user WHERE goods_id = ?
			) AS b GROUP BY user_id
		) AS u WHERE g.goods_id = ? AND g.per_user > 0`
)

// AuditUsers compares the counts of an item's buyers with its ledger. It reads every row of both.
// An item without a limit has no counts.
func (s *Store) AuditUsers(ctx context.Context, goodsID int64) (found stock.Buyers, err error) {
	statement := auditUsersOfLedger + s.dialect.userBytes + auditUsersOfCounts
	err = s.pool.QueryRowContext(ctx, statement, goodsID, goodsID, goodsID).Scan(&found.Miscounted, &found.BeyondLimit)
	return found, s.fault(ctx, "audit buyers", err)
}
