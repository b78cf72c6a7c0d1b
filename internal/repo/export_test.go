package repo

import (
	"context"
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
