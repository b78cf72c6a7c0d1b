package innodb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
)

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
	case is(err, duplicateEntry):
		s.Duplicates++
	case is(err, deadlock):
		s.Deadlocks++
		s.Answer = err.Error()
	default:
		return err
	}
	return nil
}
