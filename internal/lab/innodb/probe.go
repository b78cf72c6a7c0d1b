package innodb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
)

// Probe runs the statement in each of the eight combinations, on a table each, and
// tries every place while the transaction is open, each from a connection of its own. The pool must be one of Open: every
// locked place takes a second, and all are tried at the same time. It returns the figures of the matrix.
func Probe(x *flow.Flow, db *sql.DB, s Statement) map[string]float64 {
	var mu sync.Mutex
	figures, all := make(map[string]float64), Combinations()
	x.Each(len(all), func(i int) {
		c := all[i]
		name, places := "lab_"+c.String(), c.Index.Places()
		try := func(i int) {
			locked := checker.OneIf(waits(x, db, on(name, places[i].attempt)))
			mu.Lock()
			defer mu.Unlock()
			figures[c.figure(places[i].Name)] = locked
		}
		c.Index.with(x, db, name, func() {
			holding(x, db, c.Level, on(name, s.sql()), func(*sql.Tx) { x.Each(len(places), try) })
		})
	})
	return figures
}

// holding calls a function while a transaction holds the locks of a statement.
func holding(x *flow.Flow, db *sql.DB, level sql.IsolationLevel, statement string, do func(holder *sql.Tx), args ...any) {
	tx := begin(x, db, level)
	defer tx.Rollback() // it ends the locks
	exec(x, tx, statement, args...)
	do(tx)
}

// waits reports whether a lock of another transaction is in the way of a statement,
// and rolls it back. It runs at READ COMMITTED, and so locks no gap itself.
func waits(x *flow.Flow, db *sql.DB, statement string) bool {
	tx := begin(x, db, sql.LevelReadCommitted)
	defer tx.Rollback()
	_, err := tx.ExecContext(x, statement)
	if backend.IsMySQL(err, lockWaitTimeout, noWait) {
		return true
	}
	x.Must(failed(statement, err))
	return false
}

// Scan is a statement that finds its row by reading all.
type Scan string

// The scans. The second finds the same row and writes no change.
const (
	ScanDelete Scan = deleteTen
	ScanUpdate Scan = `UPDATE ` + table + ` SET id = id WHERE id = 10`
)

// WaitsInPassing reports whether a scan at READ COMMITTED waits for the lock that
// another transaction has on a row that does not match. It waits where it locks every
// row before it reads it, although it keeps none of these locks.
func WaitsInPassing(x *flow.Flow, db *sql.DB, s Scan) (blocked bool) {
	const name = "lab_passing"
	None.with(x, db, name, func() {
		holding(x, db, sql.LevelDefault, `SELECT id FROM `+name+` WHERE name = 'j' FOR UPDATE`, func(*sql.Tx) {
			blocked = waits(x, db, on(name, string(s)))
		})
	})
	return blocked
}

// Way is how two transactions insert the same row.
type Way struct {
	Level sql.IsolationLevel
	// Look has each of them read the row before, with a lock.
	Look bool
}

// Insertions are the outcomes of transactions that inserted the same row, two by
// two.
type Insertions struct {
	Inserted, Duplicates, Deadlocks int
	// Answer is the error of the last deadlock victim.
	Answer string
}

const gapTable = "lab_shared_gap"

// InsertTwice has two transactions insert the same row at the same time, another
// row in each round. With Look, both have read it before either inserts.
func InsertTwice(x *flow.Flow, db *sql.DB, w Way, rounds int) Insertions {
	return inRounds(x, db, gapTable, rounds, func(id int, sum *Insertions) {
		withTwo(x, db, w.Level, func(both [2]*sql.Tx) { w.insert(x, both, id, sum) })
	})
}

// inRounds does something with another row of a table in each round: with one behind those that are there.
func inRounds(x *flow.Flow, db *sql.DB, table string, rounds int, do func(id int, sum *Insertions)) (sum Insertions) {
	const above = 100
	Primary.with(x, db, table, func() {
		for round := range rounds {
			do(above+round, &sum)
		}
	})
	return sum
}

// withTwo calls a function with two transactions. What it has not committed is rolled back.
func withTwo(x *flow.Flow, db *sql.DB, level sql.IsolationLevel, do func(both [2]*sql.Tx)) {
	var both [2]*sql.Tx
	for i := range both {
		both[i] = begin(x, db, level)
		defer both[i].Rollback()
	}
	do(both)
}

func (w Way) insert(x *flow.Flow, both [2]*sql.Tx, id int, sum *Insertions) {
	for _, tx := range both {
		if w.Look {
			exec(x, tx, `SELECT id FROM `+gapTable+` WHERE id = ? FOR UPDATE`, id)
		}
	}
	var errs [2]error
	x.Each(2, func(i int) { errs[i] = insert(x, both[i], id) })
	x.Must(errors.Join(sum.count(errs[0]), sum.count(errs[1])))
}

func insert(ctx context.Context, tx *sql.Tx, id int) error {
	_, err := tx.ExecContext(ctx, `INSERT INTO `+gapTable+` (id, name) VALUES (?, 'x')`, id)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (s *Insertions) count(err error) error {
	switch {
	case err == nil:
		s.Inserted++
	case backend.IsMySQL(err, duplicateEntry):
		s.Duplicates++
	case backend.IsMySQL(err, deadlock):
		s.Deadlocks++
		s.Answer = err.Error()
	default:
		return err
	}
	return nil
}

// The figures of what a DELETE locks beside its row.
const (
	OthersLocked = "other_rows_locked"
	GapLocked    = "gap_locked"
)

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
func LocksOthers(x *flow.Flow, db *sql.DB, large bool) (locked int) {
	const name = "lab_crowded"
	var rows strings.Builder
	rows.WriteString(insertOthers)
	for i := range crowd {
		fmt.Fprintf(&rows, aRow, 10, 100+i)
	}
	for i := 0; large && i < more; i++ {
		fmt.Fprintf(&rows, aRow, 30, 1000+i)
	}
	withTable(x, db, name, []string{createCrowded, rows.String(), analyze}, func() {
		holding(x, db, sql.LevelRepeatableRead, on(name, deleteTen), func(*sql.Tx) {
			for _, try := range []string{tryFirst, tryLast} {
				if waits(x, db, on(name, try)) {
					locked++
				}
			}
		})
	})
	return locked
}

// LocksGap reports whether a DELETE by an index locks the gap below its row at REPEATABLE READ.
// deleted: another transaction has deleted that row before, and it is still in the index,
// marked, because a third may read it.
func LocksGap(x *flow.Flow, db *sql.DB, by Index, deleted bool) (blocked bool) {
	const name = "lab_marked"
	probe := func(*sql.Tx) {
		if deleted {
			exec(x, db, on(name, deleteTen))
		}
		holding(x, db, sql.LevelRepeatableRead, on(name, deleteTen), func(*sql.Tx) {
			blocked = waits(x, db, on(name, `INSERT INTO `+table+` (id, name) VALUES (7, 'v')`))
		})
	}
	by.with(x, db, name, func() {
		// Its snapshot keeps the purge away.
		holding(x, db, sql.LevelRepeatableRead, on(name, `SELECT COUNT(*) FROM `+table), probe)
	})
	return blocked
}

// The figures of SellTwice: what is left of ten units after two sales of one.
const (
	LeftReadCommitted  = "left_at_read_committed"
	LeftRepeatableRead = "left_at_repeatable_read"
)

const (
	unlocked    = "lab_unlocked"
	createStock = `CREATE TABLE ` + unlocked + ` (id INT PRIMARY KEY, stock INT NOT NULL) ENGINE=InnoDB`
	insertStock = `INSERT INTO ` + unlocked + ` VALUES (1, 10)`
	readStock   = `SELECT stock FROM ` + unlocked + ` WHERE id = 1`
	writeStock  = `UPDATE ` + unlocked + ` SET stock = ? WHERE id = 1`
)

// SellTwice has two transactions at a level, both of them open, read ten units, subtract one and
// write what is left: the second does so after the first has written. commitFirst: the first
// has committed by then, and not only unlocked.
func SellTwice(x *flow.Flow, db *sql.DB, level sql.IsolationLevel, commitFirst bool) (left int) {
	withTable(x, db, unlocked, []string{createStock, insertStock}, func() {
		withTwo(x, db, level, func(both [2]*sql.Tx) { sellTwice(x, both, commitFirst) })
		x.Must(db.QueryRowContext(x, readStock).Scan(&left))
	})
	return left
}

func sellTwice(x *flow.Flow, both [2]*sql.Tx, commitFirst bool) {
	var stock [2]int
	read := func(i int) { x.Must(both[i].QueryRowContext(x, readStock).Scan(&stock[i])) }
	write := func(i int) { exec(x, both[i], writeStock, stock[i]-1) }
	read(0)
	write(0)
	if commitFirst {
		x.Must(both[0].Commit())
	}
	read(1)
	if !commitFirst {
		x.Must(both[0].Commit())
	}
	write(1)
	x.Must(both[1].Commit())
}
