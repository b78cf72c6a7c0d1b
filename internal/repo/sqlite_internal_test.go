package repo

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
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
