package strategytest

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Errors of the contract that a strategy returns by itself; stock rejects with the others.
var (
	ErrBusy              = stock.ErrBusy
	ErrInsufficientStock = stock.ErrInsufficientStock
	ErrUnknownOutcome    = stock.ErrUnknownOutcome
)

// SQLite is a Bench on a database of its own in a file, without servers: strategies that
// need one are skipped.
func SQLite(t *testing.T, entries ...Entry) Bench {
	t.Helper()
	database := backend.SQLOptions{
		Driver: backend.SQLite, DSN: filepath.Join(t.TempDir(), "stock.db"),
		MaxOpen: 8, LockWait: 5 * time.Second, ConnectTimeout: 5 * time.Second,
	}
	return Bench{
		Entries: entries,
		Open: func(t *testing.T, replica string) *Store {
			t.Helper()
			store, err := repo.Open(t.Context(), database, repo.Options{Replica: replica})
			if err != nil {
				t.Fatal(err)
			}
			closeAfter(t, store)
			if _, err := store.MigrateUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			return store
		},
		Locks: func(t *testing.T, needs []Backend) LockDeps {
			t.Helper()
			pool, dialect, err := backend.OpenPool(database)
			if err != nil {
				t.Fatal(err)
			}
			clients := &backend.Clients{DB: pool, Dialect: dialect}
			closeAfter(t, clients)
			if err := clients.HasAll(needs); err != nil {
				t.Skip(err)
			}
			return lock.Deps{Clients: clients, TTL: lockTTL, Retry: 5 * time.Millisecond, Issue: sqllock.NewTokens(pool, dialect).Issue}
		},
	}
}

// lockTTL is how long a lock lasts without a renewal.
const lockTTL = 5 * time.Second
