package sql

import (
	"context"
	"database/sql"
	"errors"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// RowLock is SELECT … FOR UPDATE on a row in a transaction.
func RowLock() lock.Entry {
	return lock.Entry{
		Name:       "sql-row-lock",
		Family:     lock.FamilySQL,
		Summary:    "SELECT … FOR UPDATE of the name's row, in a transaction that stays open: each waiter keeps a connection",
		Needs:      []backend.Name{backend.MySQL},
		Guarantees: lock.Complete(false),
		OneServer:  true,
		New: func(d lock.Deps) lock.Locker {
			b := newBase(d)
			tokens := &Tokens{b}
			return lock.NewReentrant(&sessionLock{
				base: b,
				take: takeRow,
				// On another connection: what the holder's own transaction wrote
				// would be undone with it, and the token given out once more.
				count: func(ctx context.Context, _ *sql.Conn, name string) (uint64, error) { return tokens.Issue(ctx, name) },
				free:  freeRow,
			})
		},
	}
}

const (
	lockRow = `SELECT 1 FROM distribute_lock WHERE lock_name = ? AND kind = 'row' FOR UPDATE`

	insertRow = `INSERT INTO distribute_lock (lock_name, kind) VALUES (?, 'row')`
)

// takeRow waits for the row of the name. The transaction that is opened for it
// ends one that is open already.
func takeRow(ctx context.Context, conn *sql.Conn, name string) (won bool, err error) {
	if _, err := conn.ExecContext(ctx, `START TRANSACTION`); err != nil {
		return false, err
	}
	var one int
	err = conn.QueryRowContext(ctx, lockRow, name).Scan(&one)
	switch {
	case backend.FaultOf(err) == backend.Locked: // for a slice of waiting
		return false, nil
	case errors.Is(err, sql.ErrNoRows):
		return false, makeRow(ctx, conn, name)
	default:
		return err == nil, err
	}
}

// makeRow makes the row of a new name, to be seen by all.
func makeRow(ctx context.Context, conn *sql.Conn, name string) error {
	if _, err := conn.ExecContext(ctx, `ROLLBACK`); err != nil {
		return err
	}
	_, err := conn.ExecContext(ctx, insertRow, name)
	if duplicate(err) {
		return nil
	}
	return err
}

// freeRow ends the transaction. An answer means that it was open until now: a
// connection does not outlive its loss.
func freeRow(ctx context.Context, conn *sql.Conn, _ string) (was bool, err error) {
	_, err = conn.ExecContext(ctx, `ROLLBACK`)
	return err == nil, err
}
