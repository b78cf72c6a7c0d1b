package repo

import (
	"context"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

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

func (s *Store) settleAfter() time.Duration { return s.timeout + settleMargin }

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

	addTotals    = `INSERT INTO tb_ledger_total (goods_id, restocked, sold, orders, held, returned) VALUES `
	addTotalsRow = `(?, ?, ?, ?, ?, ?)`
)

// Settle adds rows of the ledger that are old enough to the running totals, up to a bound, and
// reports whether there are more. Any number of replicas may call it. stock.ErrBusy: another
// replica settles, or a transaction that has written such a row is still open.
func (s *Store) Settle(ctx context.Context) (more bool, err error) {
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
		args := make([]any, 0, 6*n)
		for _, one := range totals[:n] {
			args = append(args, one.GoodsID, one.Restocked, one.Sold, one.Orders, one.Held, one.Returned)
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
