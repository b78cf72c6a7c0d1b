package innodb

import (
	"context"
	"database/sql"
	"fmt"
)

// Scan is a statement that finds its row by looking at all.
type Scan string

// The scans. The second looks for the same row and writes nothing.
const (
	ScanDelete Scan = `DELETE FROM %s WHERE id = 10`
	ScanUpdate Scan = `UPDATE %s SET id = id WHERE id = 10`
)

// WaitsInPassing tells whether a scan at READ COMMITTED waits for the lock that
// another transaction has on a row that does not match. Where it locks every row
// in order to look at it, it does, although it keeps none of these locks.
func WaitsInPassing(ctx context.Context, db *sql.DB, s Scan) (waits bool, err error) {
	const table = "lab_passing"
	if err := None.create(ctx, db, table); err != nil {
		return false, err
	}
	defer drop(ctx, db, table) //nolint:errcheck // the next probe makes it anew
	holder, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer holder.Rollback() // it ends the lock
	if _, err := holder.ExecContext(ctx, `SELECT id FROM `+table+` WHERE name = 'j' FOR UPDATE`); err != nil {
		return false, fmt.Errorf("lock a row: %w", err)
	}
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	_, err = tx.ExecContext(ctx, fmt.Sprintf(string(s), table))
	if is(err, lockWaitTimeout) {
		return true, nil
	}
	return false, err
}
