package innodb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

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
		if err := sellTwice(ctx, db, level, commitFirst); err != nil {
			return fmt.Errorf("sell twice: %w", err)
		}
		return db.QueryRowContext(ctx, readStock).Scan(&left)
	})
	return left, err
}

func sellTwice(ctx context.Context, db *sql.DB, level sql.IsolationLevel, commitFirst bool) error {
	var both [2]*sql.Tx
	for i := range both {
		tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: level})
		if err != nil {
			return err
		}
		defer tx.Rollback() // it has been committed, or failed
		both[i] = tx
	}
	first, err := subtractOne(ctx, both[0])
	if err == nil {
		err = first()
	}
	if err == nil && commitFirst {
		err = both[0].Commit()
	}
	if err != nil {
		return err
	}
	second, err := subtractOne(ctx, both[1])
	if err == nil && !commitFirst {
		err = both[0].Commit()
	}
	if err != nil {
		return err
	}
	return errors.Join(second(), both[1].Commit())
}

// subtractOne reads the stock, and returns what writes one less.
func subtractOne(ctx context.Context, tx *sql.Tx) (write func() error, err error) {
	var stock int
	if err := tx.QueryRowContext(ctx, readStock).Scan(&stock); err != nil {
		return nil, err
	}
	return func() error {
		_, err := tx.ExecContext(ctx, writeStock, stock-1)
		return err
	}, nil
}
