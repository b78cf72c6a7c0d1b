package repo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

// Audit compares the ledger of an item with its row, both as of one moment. Of
// the ledger it reads the running totals, and the rows that came after them; where the database is sharded, all rows.
func (s *Store) Audit(ctx context.Context, goodsID int64) (stock.Audit, error) {
	if s.sharded {
		return s.audit(ctx, s.db, auditInFull, goodsID)
	}
	return s.audit(ctx, s.db, auditByTotals, goodsID)
}

// AuditInFull is the same from the rows of the ledger alone, however many there
// are, with those of its archive: it verifies the running totals. For an item with a limit per buyer it also
// checks every buyer.
func (s *Store) AuditInFull(ctx context.Context, goodsID int64) (stock.Audit, error) {
	audit, err := s.audit(ctx, s.db, auditInFull, goodsID)
	if err != nil {
		return audit, err
	}
	goods, err := s.Goods(ctx, goodsID)
	if err != nil || goods.PerUser == 0 {
		return audit, err
	}
	buyers, err := s.AuditUsers(ctx, goodsID)
	return audit.With(buyers), err
}

// audit runs a statement that takes nothing but the item, as often as it needs it.
func (s *Store) audit(ctx context.Context, db *gorm.DB, statement string, goodsID int64) (stock.Audit, error) {
	var sums struct {
		stock.Sums

		Stock int64
		Found bool
	}
	items := slices.Repeat([]any{goodsID}, strings.Count(statement, "?"))
	if err := db.WithContext(ctx).Raw(statement, items...).Scan(&sums).Error; err != nil {
		return stock.Audit{}, s.fault(ctx, "audit", err)
	}
	if !sums.Found {
		return stock.Audit{}, fmt.Errorf("item %d: %w", goodsID, stock.ErrUnknownGoods)
	}
	return stock.AuditOf(goodsID, sums.Stock, sums.Sums), nil
}

// Each audit is one statement, so that row, allocations, totals and ledger are read as
// of one moment.
const (
	// sums are the columns of stock.Sums.
	sumOfRows = `COALESCE(SUM(CASE WHEN l.kind = 'restock' THEN l.quantity ELSE 0 END), 0) AS restocked,
		COALESCE(SUM(CASE WHEN l.kind = 'correct' THEN l.quantity ELSE 0 END), 0) AS corrected,
		COALESCE(SUM(CASE WHEN l.` + sells + ` THEN l.quantity ELSE 0 END), 0) AS sold,
		COALESCE(SUM(CASE WHEN l.` + sells + ` THEN 1 ELSE 0 END), 0) AS orders,
		COALESCE(SUM(CASE WHEN l.kind = 'hold' THEN l.quantity
			WHEN l.kind IN ('confirm', 'release', 'expire') THEN -l.quantity ELSE 0 END), 0) AS held,
		COALESCE(SUM(CASE WHEN l.kind = 'return' THEN l.quantity ELSE 0 END), 0) AS returned `

	sumRows = `SELECT ` + sumOfRows

	// Each table is summed by its own key.
	auditInFull = `SELECT ` + inStock + ` AS stock, TRUE AS found, n.restocked, n.corrected, n.sold, n.orders, n.held, n.returned
		FROM (SELECT SUM(b.restocked) AS restocked, SUM(b.corrected) AS corrected, SUM(b.sold) AS sold, SUM(b.orders) AS orders, SUM(b.held) AS held,
				SUM(b.returned) AS returned
			FROM (` + sumRows + ` FROM tb_stock_ledger AS l WHERE l.goods_id = ?
				UNION ALL ` + sumRows + ` FROM tb_ledger_archive AS l WHERE l.goods_id = ?) AS b) AS n, tb_goods_stock AS g
		WHERE g.goods_id = ?`

	// The one row of tb_ledger_settled is joined by its key: only so does the database
	// know its value early enough to begin behind it.
	auditByTotals = `SELECT ` + inStock + ` AS stock, TRUE AS found,
		n.restocked + COALESCE(t.restocked, 0) AS restocked,
		n.corrected + COALESCE(t.corrected, 0) AS corrected,
		n.sold + COALESCE(t.sold, 0) AS sold,
		n.orders + COALESCE(t.orders, 0) AS orders,
		n.held + COALESCE(t.held, 0) AS held,
		n.returned + COALESCE(t.returned, 0) AS returned
		FROM (` + sumRows + ` FROM tb_ledger_settled AS s, tb_stock_ledger AS l
			WHERE s.id = 1 AND l.goods_id = ? AND l.id > s.upto) AS n,
		tb_goods_stock AS g LEFT JOIN tb_ledger_total AS t ON t.goods_id = g.goods_id
		WHERE g.goods_id = ?`
)

// AuditAll audits all items at once, as of one moment, and adds up what is
// wrong. It reads the row of each item, and the ledger's rows that came after the
// running totals.
func (s *Store) AuditAll(ctx context.Context) (stock.Audits, error) {
	var sums stock.Audits
	statement := auditAll
	if s.sharded {
		statement = strings.ReplaceAll(auditAll, afterTotals, ``)
	}
	if err := s.db.WithContext(ctx).Raw(statement).Scan(&sums).Error; err != nil {
		return stock.Audits{}, s.fault(ctx, "audit all items", err)
	}
	return sums, nil
}

// afterTotals has the rows that are not in the totals.
const afterTotals = `, tb_ledger_settled AS s WHERE s.id = 1 AND l.id > s.upto`

const auditAll = `SELECT COUNT(*) AS goods,
	COALESCE(SUM(CASE WHEN a.should < 0 THEN -a.should ELSE 0 END), 0) AS oversold,
	COALESCE(SUM(CASE WHEN a.stock > a.should THEN a.stock - a.should ELSE 0 END), 0) AS lost,
	COALESCE(SUM(CASE WHEN a.stock < a.should THEN a.should - a.stock ELSE 0 END), 0) AS vanished
	FROM (SELECT ` + inStock + ` AS stock,
			COALESCE(n.restocked + n.corrected + n.returned - n.sold - n.held, 0)
				+ COALESCE(t.restocked + t.corrected + t.returned - t.sold - t.held, 0) AS should
		FROM tb_goods_stock AS g
		LEFT JOIN tb_ledger_total AS t ON t.goods_id = g.goods_id
		LEFT JOIN (SELECT l.goods_id, ` + sumOfRows + `
			FROM tb_stock_ledger AS l` + afterTotals + ` GROUP BY l.goods_id) AS n
			ON n.goods_id = g.goods_id) AS a`

// Running totals may only include ids below which no row can be written anymore. Ids of the ledger
// are assigned at the insert, and rows are committed in any order: a visible row does not mean that
// all earlier ones are visible. Two rules ensure it together.
//
// The rows are read in the order of their ids, and with a lock: a row that was
// inserted and is not committed makes this read wait for its transaction, for as
// long as that lasts, even if its replica is paused. No lock can
// show a row whose id was assigned and which is not inserted yet; that is a
// moment inside one statement of the server, and lasts as long as the server is
// paused there. But a commit is sent before the deadline of its transaction or not
// at all, and not before the insert was answered: a row that is inserted later than
// Options.TxTimeout after its id was assigned is never committed. Therefore an id is
// only included when it was first seen longer ago than that.
//
// The procedure of sql-procedure commits by itself. It compares the clock of the server
// after its inserts, and commits none of them later than that time after it was called.
//
// This holds for one server that assigns ascending ids, as MariaDB
// and MySQL do, and not for several that are written at once.

// settleMargin is how much longer than the longest transaction that is: the clocks
// of the database and of the replicas need not run alike.
const settleMargin = 5 * time.Second

func (s *Store) settleAfter() time.Duration { return s.pool.TxTimeout + settleMargin }

// settleRows bounds the rows of one step: no transaction waits for the lock of a row that is in the
// ledger, but each lock costs memory until the commit.
const settleRows = 50_000

const (
	// seeMore finds the highest id also after a move into the archive: the newest row stays.
	seeMore = `UPDATE tb_ledger_settled
		SET seen = (SELECT COALESCE(MAX(id), 0) FROM tb_stock_ledger), seen_at = `

	setUpto = `UPDATE tb_ledger_settled SET upto = ? WHERE id = 1`

	// sumSettled is followed by the dialect's lock.
	sumSettled   = `SELECT l.goods_id, ` + sumOfRows + ` FROM tb_stock_ledger AS l `
	whereSettled = ` WHERE l.id > ? AND l.id <= ? GROUP BY l.goods_id ORDER BY l.goods_id`

	unsettled = `SELECT COALESCE((SELECT MAX(id) FROM tb_stock_ledger), 0) - upto FROM tb_ledger_settled WHERE id = 1`

	addTotals    = `INSERT INTO tb_ledger_total (goods_id, restocked, corrected, sold, orders, held, returned) VALUES `
	addTotalsRow = `(?, ?, ?, ?, ?, ?, ?)`
)

// Settle adds rows of the ledger that are old enough to the running totals, up to a bound, and
// reports whether there are more. Any number of replicas may call it. stock.ErrBusy: another
// replica settles, or a transaction that has written such a row is still open.
func (s *Store) Settle(ctx context.Context) (more bool, err error) {
	if s.sharded {
		return s.settleShards(ctx)
	}
	err = s.InTx(ctx, func(tx *Tx) error {
		more = false
		var at struct {
			Upto, Seen int64
			Old        bool
		}
		err := tx.db.WithContext(ctx).Raw(s.dialect.readSettled, s.settleAfter().Microseconds()).Scan(&at).Error
		switch {
		case err != nil:
			return s.fault(ctx, "read what is settled", err)
		case at.Upto >= at.Seen:
			if err := tx.ageSettled(ctx); err != nil {
				return err
			}
			_, err := tx.write(ctx, "see what can be settled", seeMore+s.dialect.now+` WHERE id = 1`)
			return err
		case !at.Old:
			return nil
		}
		upto := min(at.Seen, at.Upto+settleRows)
		if err := tx.settle(ctx, at.Upto, upto); err != nil {
			return err
		}
		more = upto < at.Seen
		_, err = tx.write(ctx, "settle", setUpto, upto)
		return err
	})
	return more, err
}

// total is the sum of rows of an item.
type total struct {
	GoodsID int64
	stock.Sums
}

// settle adds the rows after one id, up to another, to the totals.
func (t *Tx) settle(ctx context.Context, after, upto int64) error {
	d := t.store.dialect
	var totals []total
	statement := sumSettled + d.byID + whereSettled + d.lockRead
	if err := t.db.WithContext(ctx).Raw(statement, after, upto).Scan(&totals).Error; err != nil {
		return t.store.fault(ctx, "sum ledger", err)
	}
	const most = 1000 // in one statement
	for len(totals) > 0 {
		n := min(len(totals), most)
		args := make([]any, 0, 7*n)
		for _, one := range totals[:n] {
			args = append(args, one.GoodsID, one.Restocked, one.Corrected, one.Sold, one.Orders, one.Held, one.Returned)
		}
		_, err := t.write(ctx, "add to totals", addTotals+addTotalsRow+strings.Repeat(`, `+addTotalsRow, n-1)+d.onTotal, args...)
		if err != nil {
			return err
		}
		totals = totals[n:]
	}
	return nil
}

// SettleAll settles until there is nothing left that is old enough.
func (s *Store) SettleAll(ctx context.Context) error {
	for more := true; more; {
		var err error
		if more, err = s.Settle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Unsettled is how many ids of the ledger are not in the running totals.
func (s *Store) Unsettled(ctx context.Context) (ids int64, err error) {
	err = s.pool.QueryRowContext(ctx, unsettled).Scan(&ids)
	return ids, s.fault(ctx, "read what is settled", err)
}
