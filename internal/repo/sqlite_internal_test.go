package repo

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

// With synchronous NORMAL the file survives a power cut, and the last sales that
// were answered do not.
func TestEveryConnectionToSQLiteSyncsEachCommit(t *testing.T) {
	const connections = 3
	s, err := Open(t.Context(), backend.SQLOptions{
		Driver: SQLite, DSN: filepath.Join(t.TempDir(), "s.db"), MaxOpen: connections, LockWait: time.Second, ConnectTimeout: time.Second,
	}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() //nolint:errcheck // the test is over
	for range connections {
		conn, err := s.pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // it was only read
		const full = 2
		var synchronous int
		var journal string
		if err := conn.QueryRowContext(t.Context(), `PRAGMA synchronous`).Scan(&synchronous); err != nil || synchronous != full {
			t.Errorf("synchronous is %d, %v; want %d", synchronous, err, full)
		}
		if err := conn.QueryRowContext(t.Context(), `PRAGMA journal_mode`).Scan(&journal); err != nil || journal != "wal" {
			t.Errorf("the journal mode is %s, %v; want wal", journal, err)
		}
	}
}

// SQLite compares times as text. A reservation that was extended is over in the very moment of its expiry, as another.
func TestAnExtendedReservationIsOverInTheMomentOfItsExpiry(t *testing.T) {
	s := opened(t, backend.SQLOptions{MaxOpen: 1}, Options{})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.CreateGoods(t.Context(), 1, 10, "item"); err != nil {
		t.Fatal(err)
	}
	clock := func(second string) { // that stands still
		s.dialect.now = `'2030-01-01 00:00:` + second + `'`
		s.dialect.until = `strftime('%Y-%m-%d %H:%M:%f', ` + s.dialect.now + `, (? / 1e6) || ' seconds')`
	}
	const number = "018bcfe5-6800-7000-8000-000000000001"
	extend := func(ctx context.Context) error {
		_, err := s.Extend(ctx, number, 2*time.Second, time.Hour)
		return err
	}
	clock("00.500")
	err := s.InTx(t.Context(), func(tx *Tx) error {
		_, err := tx.Append(t.Context(), Sale{GoodsID: 1, Batch: []stock.Purchase{{RequestID: "held", Quantity: 1, TTL: time.Second, Number: number}}})
		return err
	})
	if err := errors.Join(err, extend(t.Context())); err != nil {
		t.Fatal(err)
	}
	clock("02.500")
	if r, err := s.Reservation(t.Context(), number); err != nil || r.State != stock.Expired {
		t.Errorf("it is seen as %s (%v)", r.State, err)
	}
	_, _, released := s.Release(t.Context(), number)
	for step, err := range map[string]error{"released": released, "extended": extend(t.Context())} {
		if !errors.Is(err, stock.ErrExpired) {
			t.Errorf("%s: %v, want %v", step, err, stock.ErrExpired)
		}
	}
	if ended, _, err := s.Expire(t.Context(), 1); err != nil || ended != 1 {
		t.Errorf("a sweeper has ended %d (%v)", ended, err)
	}
}
