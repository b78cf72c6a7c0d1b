package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Age has what was seen of the ledger look old enough to be settled.
func (s *Store) Age(ctx context.Context) error {
	long := `seen_at - INTERVAL 1 MINUTE`
	if s.dialect.oneWriter {
		long = `seen_at` // it counts at once
	}
	_, err := s.pool.ExecContext(ctx, `UPDATE tb_ledger_settled SET seen_at = `+long)
	return err
}

// AgeBy has what was seen of the ledger look older by so much, on a server.
func (s *Store) AgeBy(ctx context.Context, d time.Duration) error {
	_, err := s.pool.ExecContext(ctx, `UPDATE tb_ledger_settled SET seen_at = seen_at - INTERVAL ? MICROSECOND`, d.Microseconds())
	return err
}

// StopClock has the sessions of a server, from now on one, be at a second since 1970 for ever.
func (s *Store) StopClock(ctx context.Context, at int64) error {
	s.pool.SetMaxOpenConns(1)
	_, err := s.pool.ExecContext(ctx, fmt.Sprintf(`SET timestamp = %d`, at))
	return err
}

// LooksForAllocation are the statements that look for one allocation among those of all items.
func LooksForAllocation() map[string]string {
	return map[string]string{"ItemsIn": readItemsIn, "HasAllocations": hasPlaces}
}

// SpoilTotals adds a sale to the totals that never was.
func (s *Store) SpoilTotals(ctx context.Context) error {
	_, err := s.pool.ExecContext(ctx, `UPDATE tb_ledger_total SET sold = sold + 1, orders = orders + 1`)
	return err
}

// ExpireIn has a reservation expire so much from now on, or before.
func (s *Store) ExpireIn(ctx context.Context, number string, d time.Duration) error {
	_, err := s.pool.ExecContext(ctx, `UPDATE tb_reservation SET expires_at = `+s.dialect.until+` WHERE number = ?`, d.Microseconds(), number)
	return err
}

// LockReservation keeps every other writer from a reservation until the transaction ends.
func (t *Tx) LockReservation(ctx context.Context, number string) error {
	_, err := t.lockReservation(ctx, number)
	return err
}

// AgeTotals has what is in the running totals look as if it had been there for MinAge.
func (s *Store) AgeTotals(ctx context.Context) error {
	_, err := s.pool.ExecContext(ctx, `UPDATE tb_ledger_settled SET aged = upto, aging = upto`)
	return err
}

// AgingSince has what comes of age next look as if it had been in the totals for so long.
func (s *Store) AgingSince(ctx context.Context, d time.Duration) error {
	_, err := s.pool.ExecContext(ctx, `UPDATE tb_ledger_settled SET aging_at = `+s.dialect.until, -d.Microseconds())
	return err
}

// ArchivingAtOnce is the store without a least age of what is archived.
func (s *Store) ArchivingAtOnce() *Store {
	young := *s
	young.minAge = 0
	return &young
}

// AcceptedAt has all rows of the ledger look as if they were accepted at a time, or that under a
// request id.
func (s *Store) AcceptedAt(ctx context.Context, at time.Time, requestID string) error {
	_, err := s.pool.ExecContext(ctx, `UPDATE tb_stock_ledger SET created_at = ? WHERE ? IN ('', request_id)`, at.UTC(), requestID)
	return err
}

// Rows are the ids of the ledger and of its archive.
func (s *Store) Rows(ctx context.Context) (live, archived []int64, err error) {
	for table, ids := range map[string]*[]int64{"tb_stock_ledger": &live, "tb_ledger_archive": &archived} {
		if err := s.db.WithContext(ctx).Raw(`SELECT id FROM ` + table + ` ORDER BY id`).Scan(ids).Error; err != nil {
			return nil, nil, err
		}
	}
	return live, archived, nil
}

// ArchivedReservations are the numbers of those in the archive, and how many are not there.
func (s *Store) ArchivedReservations(ctx context.Context) (archived []string, live int64, err error) {
	err = s.db.WithContext(ctx).Raw(`SELECT number FROM tb_reservation_archive ORDER BY number`).Scan(&archived).Error
	return archived, live, errors.Join(err, s.db.WithContext(ctx).Raw(`SELECT COUNT(*) FROM tb_reservation`).Scan(&live).Error)
}

// InsertRow writes a row of the ledger with an id of its own.
func (s *Store) InsertRow(ctx context.Context, id int64, requestID string) error {
	_, err := s.pool.ExecContext(ctx, `INSERT INTO tb_stock_ledger (id, `+ledgerColumns+`) VALUES (?, `+ledgerValues+`)`,
		id, 1, "deduct", 1, requestID, nil, "", "", 0, nil, time.Now().UTC().Add(-48*time.Hour))
	return err
}

// Exec runs a statement that no store has.
func (s *Store) Exec(ctx context.Context, statement string) error {
	_, err := s.pool.ExecContext(ctx, statement)
	return err
}

// RowsOf are all rows that belong to an item, of every table, as text.
func (s *Store) RowsOf(ctx context.Context, goodsID int64) (rows []string, err error) {
	for _, table := range []string{
		"tb_goods_stock", "tb_stock_ledger", "tb_stock_place", "tb_stock_user", "tb_goods_strategy", "tb_reservation", "tb_reservation_archive", "tb_ledger_total",
	} {
		var of []map[string]any
		if err := s.db.WithContext(ctx).Table(table).Where("goods_id = ?", goodsID).Find(&of).Error; err != nil {
			return nil, err
		}
		for _, row := range of {
			rows = append(rows, fmt.Sprint(table, row))
		}
	}
	slices.Sort(rows)
	return rows, nil
}

// StockMany makes items 1 to so many, of one unit each, as nothing else does: SQLite has them at once.
func (s *Store) StockMany(ctx context.Context, items int) error {
	const each = `WITH RECURSIVE item(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM item WHERE id < ?) `
	for _, statement := range []string{
		`INSERT INTO tb_goods_stock (goods_id, stock) ` + each + `SELECT id, 1 FROM item`,
		`INSERT INTO tb_stock_ledger (goods_id, kind, quantity, request_id, strategy, replica, created_at) ` +
			each + `SELECT id, 'restock', 1, 'many-' || id, '', '', '' FROM item`,
	} {
		if _, err := s.pool.ExecContext(ctx, statement, items); err != nil {
			return err
		}
	}
	return nil
}

// SkipIDs has the ids of the ledger go on after one.
func (s *Store) SkipIDs(ctx context.Context, last int64) error {
	_, err := s.pool.ExecContext(ctx, `UPDATE sqlite_sequence SET seq = ? WHERE name = 'tb_stock_ledger'`, last)
	return err
}

// DeleteItem deletes the row of an item, as an operator may.
func (s *Store) DeleteItem(ctx context.Context, goodsID int64) error {
	_, err := s.pool.ExecContext(ctx, `DELETE FROM tb_goods_stock WHERE goods_id = ?`, goodsID)
	return err
}
