package innodb

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// The figures of what a DELETE locks beside its row.
const (
	OthersLocked = "other_rows_locked"
	GapLocked    = "gap_locked"
)

// deleteTen is the statement of both probes below.
const deleteTen = `DELETE FROM ` + table + ` WHERE id = 10`

// The table of LocksOthers: most rows have the number that is deleted, or few have.
const (
	createCrowded = `CREATE TABLE ` + table + ` (id INT NOT NULL, name INT NOT NULL, PRIMARY KEY (name), KEY by_id (id)) ENGINE=InnoDB`
	insertOthers  = `INSERT INTO ` + table + ` (id, name) VALUES (5, 0), (20, 1)`
	analyze       = `ANALYZE TABLE ` + table
	tryFirst      = `SELECT id FROM ` + table + ` WHERE name = 0 FOR UPDATE NOWAIT`
	tryLast       = `SELECT id FROM ` + table + ` WHERE name = 1 FOR UPDATE NOWAIT`
	aRow          = `, (%d, %d)`
	// crowd are the rows that the DELETE wants, and more are rows of another number.
	crowd, more = 40, 1000
)

// LocksOthers counts the two rows that a DELETE by an index locks at REPEATABLE READ although
// they do not match. In a small table, of which most rows match, reading all is cheaper than
// the index; in a large one it is not.
func LocksOthers(ctx context.Context, db *sql.DB, large bool) (locked int, err error) {
	const name = "lab_crowded"
	var rows strings.Builder
	rows.WriteString(insertOthers)
	for i := range crowd {
		fmt.Fprintf(&rows, aRow, 10, 100+i)
	}
	for i := 0; large && i < more; i++ {
		fmt.Fprintf(&rows, aRow, 30, 1000+i)
	}
	err = withTable(ctx, db, name, []string{createCrowded, rows.String(), analyze}, func() error {
		return holding(ctx, db, sql.LevelRepeatableRead, on(name, deleteTen), func(*sql.Tx) error {
			for _, try := range []string{tryFirst, tryLast} {
				blocked, err := waits(ctx, db, on(name, try))
				if err != nil {
					return err
				}
				locked += int(oneIf(blocked))
			}
			return nil
		})
	})
	return locked, err
}

// LocksGap reports whether a DELETE by an index locks the gap below its row at REPEATABLE READ.
// deleted: another transaction has deleted that row before, and it is still in the index,
// marked, because a third may read it.
func LocksGap(ctx context.Context, db *sql.DB, by Index, deleted bool) (blocked bool, err error) {
	const name = "lab_marked"
	probe := func(*sql.Tx) error {
		if deleted {
			if _, err := db.ExecContext(ctx, on(name, deleteTen)); err != nil {
				return err
			}
		}
		return holding(ctx, db, sql.LevelRepeatableRead, on(name, deleteTen), func(*sql.Tx) (err error) {
			blocked, err = waits(ctx, db, on(name, `INSERT INTO `+table+` (id, name) VALUES (7, 'v')`))
			return err
		})
	}
	err = by.with(ctx, db, name, func() error {
		// Its snapshot keeps the purge away.
		return holding(ctx, db, sql.LevelRepeatableRead, on(name, `SELECT COUNT(*) FROM `+table), probe)
	})
	return blocked, err
}
