package innodb

import (
	"context"
	"database/sql"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// Locked has the places that were found locked, of all that were tried.
type Locked map[string]bool

// Probe runs the statement in each of the eight combinations, on a table each,
// and tries every place of it while the transaction is open. The pool must be
// one of Open: every place that is locked takes a second to say so, and they do
// it at the same time.
func Probe(ctx context.Context, db *sql.DB, s Statement) (map[Combination]Locked, error) {
	combinations := Combinations()
	found := make([]Locked, len(combinations))
	group, groupCtx := errgroup.WithContext(ctx)
	for i, c := range combinations {
		group.Go(func() (err error) {
			found[i], err = c.probe(groupCtx, db, s)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("probe what is locked: %w", err)
	}
	matrix := make(map[Combination]Locked)
	for i, c := range combinations {
		matrix[c] = found[i]
	}
	return matrix, nil
}

func (c Combination) probe(ctx context.Context, db *sql.DB, s Statement) (locked Locked, err error) {
	table := "lab_" + c.String()
	if err := c.Index.create(ctx, db, table); err != nil {
		return nil, err
	}
	defer drop(ctx, db, table) //nolint:errcheck // the next probe makes it anew
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: c.Level})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() // it ends the locks
	if _, err := tx.ExecContext(ctx, s.on(table)); err != nil {
		return nil, err
	}
	return try(ctx, db, table, c.Index)
}

// try tries all places at once, each from a connection of its own.
func try(ctx context.Context, db *sql.DB, table string, i Index) (Locked, error) {
	places := i.Places()
	is := make([]bool, len(places))
	group, ctx := errgroup.WithContext(ctx)
	for n, p := range places {
		group.Go(func() (err error) {
			is[n], err = p.locked(ctx, db, table, i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	locked := make(Locked)
	for n, p := range places {
		locked[p.Name] = is[n]
	}
	return locked, nil
}

// locked tries one place, and leaves everything as it was. It is at READ
// COMMITTED, and so locks no gap itself.
func (p Place) locked(ctx context.Context, db *sql.DB, table string, i Index) (bool, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return false, err
	}
	defer tx.Rollback()
	statement, args := p.attempt(table, i)
	_, err = tx.ExecContext(ctx, statement, args...)
	if is(err, lockWaitTimeout, noWait) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("try %s of %s: %w", p.Name, table, err)
	}
	return false, nil
}

// attempt is the statement that waits where the place is locked, and nowhere
// else. A shared lock on what the index alone can answer stays in the index.
func (p Place) attempt(table string, i Index) (statement string, args []any) {
	switch {
	case p.Kind == Gap:
		return `INSERT INTO ` + table + ` (id, name) VALUES (?, ?)`, []any{p.id, p.name}
	case p.Kind == Entry:
		return `SELECT id FROM ` + table + ` FORCE INDEX (by_id) WHERE id = ? LOCK IN SHARE MODE`, []any{p.id}
	case i == Primary:
		return `SELECT id FROM ` + table + ` WHERE id = ? FOR UPDATE NOWAIT`, []any{p.id}
	default:
		return `SELECT id FROM ` + table + ` WHERE name = ? FOR UPDATE NOWAIT`, []any{p.name}
	}
}
