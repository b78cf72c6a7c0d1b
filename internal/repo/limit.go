package repo

import (
	"context"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

const (
	setLimit = `UPDATE tb_goods_stock SET per_user = ?, ` + besideSales + ` WHERE goods_id = ?`

	// An epoch ends with its limit: what was promised in it is offered again.
	setLimitOfPlaces = `UPDATE tb_stock_place SET per_user = ?, epoch = epoch + 1 WHERE goods_id = ?`

	forgetUsers = `DELETE FROM tb_stock_user WHERE goods_id = ?`

	// recountUsers has the dialect's user in it twice. What they have was allowed.
	recountUsers    = `INSERT INTO tb_stock_user (goods_id, user_id, units, allowed) SELECT goods_id, `
	recountUsersSum = `, SUM(quantity), SUM(quantity) FROM tb_stock_ledger
		WHERE goods_id = ? AND kind = 'deduct' AND user_id IS NOT NULL GROUP BY goods_id, `

	allowUsers = `UPDATE tb_stock_user SET allowed = units WHERE goods_id = ? AND units > ? AND units > allowed`
)

// RecountWithin bounds the transaction of a limit, which may read the whole ledger of
// an item.
const RecountWithin = 10 * time.Minute

// SetLimit sets how many units of a goods one buyer may have, 0 to stock.MaxPerUser;
// 0 is any number. From its return on nothing is sold under another limit, but for
// what has been promised already.
//
// The first limit counts what every buyer has bought before: for as long as the rows
// of the ledger are read, nobody buys of the goods. stock.ErrUnknownGoods: there is
// no such goods. stock.ErrUnknownOutcome: it may be set; setting it again does what is
// left to do.
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
			return nil // they have been counted all the while
		}
		return tx.recount(ctx, goodsID)
	})
	if err != nil || perUser == 0 {
		return err
	}
	// Whoever has more than a limit that is lower now was allowed to. Not in the same
	// transaction: it would have the row first, and then wait for buyers, who wait
	// for the row.
	err = s.inTx(ctx, RecountWithin, func(tx *Tx) error {
		_, err := tx.write(ctx, "allow what buyers have", allowUsers, goodsID, perUser)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: the limit was set: %w", stock.ErrUnknownOutcome, err)
	}
	return nil
}

// recount counts what each buyer has in the ledger. The row and the places of the
// goods are ours: who has written to the ledger before has committed, and who has
// not written to a row yet finds another limit there.
func (t *Tx) recount(ctx context.Context, goodsID int64) error {
	if _, err := t.write(ctx, "forget buyers", forgetUsers, goodsID); err != nil {
		return err
	}
	user := t.store.dialect.userBytes
	_, err := t.write(ctx, "count buyers anew", recountUsers+user+recountUsersSum+user, goodsID)
	return err
}

// auditUsers compares what the ledger says of each buyer with what is counted. It is
// one statement, so that both are read as of one moment; the dialect's user is in it
// twice.
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

// AuditUsers compares the counts of a goods' buyers with its ledger. It reads every
// row of both. A goods without a limit has no counts, and nothing to find.
func (s *Store) AuditUsers(ctx context.Context, goodsID int64) (found stock.Buyers, err error) {
	statement := auditUsersOfLedger + s.dialect.userBytes + auditUsersOfCounts
	err = s.pool.QueryRowContext(ctx, statement, goodsID, goodsID, goodsID).Scan(&found.Miscounted, &found.BeyondLimit)
	return found, s.fault(ctx, "audit buyers", err)
}
