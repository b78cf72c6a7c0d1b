package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/stock"
)

// Tokens counts the holders of names in the database. It is for those locks
// whose own backend cannot count, or forgets.
type Tokens struct{ base *base }

// tokenRetry is the pause before a token is asked for again where others were in
// the way.
const tokenRetry = 5 * time.Millisecond

// NewTokens returns a counter in a database of the dialect "mysql" or "sqlite".
func NewTokens(db *sql.DB, dialect string) *Tokens {
	return &Tokens{newBase(lock.Deps{Clients: &backend.Clients{DB: db, Dialect: dialect}})}
}

// Issue returns a number that is larger than any that was issued for the name
// before, by any replica. Only the holder of the name may call it: only then do the tokens grow with the holders. A number whose answer was
// lost is left out.
func (t *Tokens) Issue(ctx context.Context, name string) (uint64, error) {
	return t.issue(ctx, name, func(do func(context.Context, *sql.Conn) error) error {
		return t.base.run(ctx, do)
	})
}

// issueBy is Issue by a connection that the caller has.
func (t *Tokens) issueBy(ctx context.Context, conn *sql.Conn, name string) (uint64, error) {
	return t.issue(ctx, name, func(do func(context.Context, *sql.Conn) error) error {
		return answered(ctx, func(ctx context.Context) error { return do(ctx, conn) })
	})
}

func (t *Tokens) issue(ctx context.Context, name string, run func(func(context.Context, *sql.Conn) error) error) (token uint64, err error) {
	for {
		err := run(func(ctx context.Context, conn *sql.Conn) (err error) {
			token, err = t.next(ctx, conn, name)
			return err
		})
		if err == nil {
			return token, nil
		}
		contended := t.base.contended(err)
		if contended && pause.About(ctx, tokenRetry) == nil {
			continue
		}
		if ctx.Err() != nil && (contended || errors.Is(err, ctx.Err())) {
			return 0, fmt.Errorf("issue token: %w", context.Cause(ctx))
		}
		return 0, &stock.BackendError{Backend: t.base.dialect, Err: fmt.Errorf("issue token: %w", err)}
	}
}

// A token of a name never goes back, although the rows of names without an item are
// deleted. The row of the empty name is the floor: Sweep lifts it, in the transaction that
// deletes, to the highest token that it deletes, and the first token of a name is above
// it. A first token has the floor locked until it is committed, so that its issuer
// reads no floor that a sweep is about to lift.
//
// LAST_INSERT_ID(x) brings x back with the answer.
const (
	countUpMySQL = `UPDATE lock_token SET token = LAST_INSERT_ID(token + 1) WHERE lock_name = ?`

	holdFloorMySQL = `INSERT INTO lock_token (lock_name, token) VALUES ('', LAST_INSERT_ID(0))
		ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(token)`

	countFirstMySQL = `INSERT INTO lock_token (lock_name, token) VALUES (?, LAST_INSERT_ID(?))
		ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(token + 1)`

	readFloorSQLite = `SELECT COALESCE((SELECT token FROM lock_token WHERE lock_name = ''), 0)`

	countUpSQLite = `INSERT INTO lock_token (lock_name, token) VALUES (?, 1 + (` + readFloorSQLite + `))
		ON CONFLICT (lock_name) DO UPDATE SET token = token + 1 RETURNING token`
)

// next issues a token on a connection, or in a transaction: then it counts when the
// transaction is committed, and no other caller is issued one before.
func (t *Tokens) next(ctx context.Context, on runner, name string) (token uint64, err error) {
	if t.base.dialect != string(backend.MySQL) {
		err = t.base.query(ctx, on, countUpSQLite, []any{name}, &token)
		return token, err
	}
	result, err := on.ExecContext(ctx, countUpMySQL, name)
	if err != nil {
		return 0, err
	}
	if rows, err := result.RowsAffected(); err != nil || rows > 0 {
		return insertID(result, err)
	}
	err = inTx(ctx, on, func(tx runner) (err error) {
		token, err = t.first(ctx, tx, name)
		return err
	})
	return token, err
}

// first issues the first token of a name, in a transaction.
func (t *Tokens) first(ctx context.Context, tx runner, name string) (uint64, error) {
	floor, err := t.base.holdFloor(ctx, tx)
	if err != nil {
		return 0, err
	}
	return insertID(tx.ExecContext(ctx, countFirstMySQL, name, floor+1))
}

// holdFloor reads the floor of all tokens, and keeps it until the transaction ends.
func (b *base) holdFloor(ctx context.Context, tx runner) (floor uint64, err error) {
	if b.dialect != string(backend.MySQL) { // there is one writer, which has begun
		err = b.query(ctx, tx, readFloorSQLite, nil, &floor)
		return floor, err
	}
	return insertID(tx.ExecContext(ctx, holdFloorMySQL))
}

func insertID(result sql.Result, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	last, err := result.LastInsertId()
	return uint64(last), err //nolint:gosec // counted up from 0
}

// inTx runs do in a transaction: the caller's, where it has begun one.
func inTx(ctx context.Context, on runner, do func(tx runner) error) error {
	conn, ok := on.(*sql.Conn)
	if !ok {
		return do(on)
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // harmless after the commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
