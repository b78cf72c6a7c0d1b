package innodb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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
	ScanDelete Scan = `DELETE FROM ` + table + ` WHERE id = 10`
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
	const above = 100 // behind all rows of the table
	err = Primary.with(ctx, db, gapTable, func() error {
		for round := range rounds {
			if err := w.insert(ctx, db, above+round, &sum); err != nil {
				return fmt.Errorf("insert twice: %w", err)
			}
		}
		return nil
	})
	return sum, err
}

func (w Way) insert(ctx context.Context, db *sql.DB, id int, sum *Insertions) error {
	var both [2]*sql.Tx
	for i := range both {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: w.Level})
		if err != nil {
			return err
		}
		defer tx.Rollback()
		both[i] = tx
		if !w.Look {
			continue
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
