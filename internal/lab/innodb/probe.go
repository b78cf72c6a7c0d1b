package innodb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/backend"
)

// Locked has the places that were found locked, of all that were tried.
type Locked map[string]bool

// Probe runs the statement in each of the eight combinations, on a table each, and
// tries every place while the transaction is open. The pool must be one of Open: every
// locked place takes a second, and all are tried at the same time.
func Probe(ctx context.Context, db *sql.DB, s Statement) (map[Combination]Locked, error) {
	var mu sync.Mutex
	matrix := make(map[Combination]Locked)
	group, groupCtx := errgroup.WithContext(ctx)
	for _, c := range Combinations() {
		group.Go(func() error {
			name, locked := "lab_"+c.String(), make(Locked)
			mu.Lock()
			matrix[c] = locked
			mu.Unlock()
			return c.Index.with(groupCtx, db, name, func() error {
				return holding(groupCtx, db, c.Level, on(name, s.sql()), func(*sql.Tx) error { return try(groupCtx, db, name, c.Index, locked) })
			})
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("probe what is locked: %w", err)
	}
	return matrix, nil
}

// try tries all places at once, each from a connection of its own.
func try(ctx context.Context, db *sql.DB, name string, i Index, locked Locked) error {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range i.Places() {
		group.Go(func() error {
			blocked, err := waits(ctx, db, on(name, p.attempt))
			if err != nil {
				return fmt.Errorf("try %s of %s: %w", p.Name, name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			locked[p.Name] = blocked
			return nil
		})
	}
	return group.Wait()
}

// holding calls a function while a transaction holds the locks of a statement.
func holding(ctx context.Context, db *sql.DB, level sql.IsolationLevel, statement string, do func(holder *sql.Tx) error, args ...any) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
	if err != nil {
		return err
	}
	defer tx.Rollback() // it ends the locks
	if _, err := tx.ExecContext(ctx, statement, args...); err != nil {
		return err
	}
	return do(tx)
}

// waits reports whether a lock of another transaction is in the way of a statement,
// and rolls it back. It runs at READ COMMITTED, and so locks no gap itself.
func waits(ctx context.Context, db *sql.DB, statement string) (bool, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	_, err = tx.ExecContext(ctx, statement)
	if backend.IsMySQL(err, lockWaitTimeout, noWait) {
		return true, nil
	}
	return false, err
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
func WaitsInPassing(ctx context.Context, db *sql.DB, s Scan) (blocked bool, err error) {
	const name = "lab_passing"
	err = None.with(ctx, db, name, func() error {
		return holding(ctx, db, sql.LevelDefault, `SELECT id FROM `+name+` WHERE name = 'j' FOR UPDATE`, func(*sql.Tx) (err error) {
			blocked, err = waits(ctx, db, on(name, string(s)))
			return err
		})
	})
	return blocked, err
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
func InsertTwice(ctx context.Context, db *sql.DB, w Way, rounds int) (sum Insertions, err error) {
	return inRounds(ctx, db, gapTable, rounds, func(id int, sum *Insertions) error {
		return withTwo(ctx, db, w.Level, func(both [2]*sql.Tx) error { return w.insert(ctx, both, id, sum) })
	})
}

// inRounds does something with another row of a table in each round: with one behind those that are there.
func inRounds(ctx context.Context, db *sql.DB, table string, rounds int, do func(id int, sum *Insertions) error) (sum Insertions, err error) {
	const above = 100
	err = Primary.with(ctx, db, table, func() error {
		for round := range rounds {
			if err := do(above+round, &sum); err != nil {
				return fmt.Errorf("round %d in %s: %w", round+1, table, err)
			}
		}
		return nil
	})
	return sum, err
}

// withTwo calls a function with two transactions. What it has not committed is rolled back.
func withTwo(ctx context.Context, db *sql.DB, level sql.IsolationLevel, do func(both [2]*sql.Tx) error) (err error) {
	var both [2]*sql.Tx
	for i := range both {
		if both[i], err = db.BeginTx(ctx, &sql.TxOptions{Isolation: level}); err != nil {
			return err
		}
		defer both[i].Rollback()
	}
	return do(both)
}

func (w Way) insert(ctx context.Context, both [2]*sql.Tx, id int, sum *Insertions) error {
	for _, tx := range both {
		if !w.Look {
			break
		}
		if _, err := tx.ExecContext(ctx, `SELECT id FROM `+gapTable+` WHERE id = ? FOR UPDATE`, id); err != nil {
			return err
		}
	}
	var errs [2]error
	var inserters sync.WaitGroup
	for i, tx := range both {
		inserters.Go(func() { errs[i] = insert(ctx, tx, id) })
	}
	inserters.Wait()
	return errors.Join(sum.count(errs[0]), sum.count(errs[1]))
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
				if blocked {
					locked++
				}
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
func SellTwice(ctx context.Context, db *sql.DB, level sql.IsolationLevel, commitFirst bool) (left int, err error) {
	err = withTable(ctx, db, unlocked, []string{createStock, insertStock}, func() error {
		err := withTwo(ctx, db, level, func(both [2]*sql.Tx) error { return sellTwice(ctx, both, commitFirst) })
		if err != nil {
			return fmt.Errorf("sell twice: %w", err)
		}
		return db.QueryRowContext(ctx, readStock).Scan(&left)
	})
	return left, err
}

func sellTwice(ctx context.Context, both [2]*sql.Tx, commitFirst bool) error {
	var stock [2]int
	read := func(i int) error { return both[i].QueryRowContext(ctx, readStock).Scan(&stock[i]) }
	write := func(i int) error {
		_, err := both[i].ExecContext(ctx, writeStock, stock[i]-1)
		return err
	}
	commit := func(i int) error { return both[i].Commit() }
	type step struct {
		do func(i int) error
		of int
	}
	steps := []step{{read, 0}, {write, 0}, {read, 1}, {commit, 0}, {write, 1}, {commit, 1}}
	if commitFirst {
		steps = []step{{read, 0}, {write, 0}, {commit, 0}, {read, 1}, {write, 1}, {commit, 1}}
	}
	for _, s := range steps {
		if err := s.do(s.of); err != nil {
			return err
		}
	}
	return nil
}
