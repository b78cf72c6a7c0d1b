package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
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
		return 0, backend.Failure(t.base.deps.Dialect, fmt.Errorf("issue token: %w", err))
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
	if t.base.deps.Dialect != string(backend.MySQL) {
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
	if b.deps.Dialect != string(backend.MySQL) { // there is one writer, which has begun
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

// sweepPage is how many names are looked at, and cleared, at a time.
const sweepPage = 500

// Sweep deletes what the locks in SQL keep of names that are over, a page at a time, and
// counts those names. over picks them of some names; a name that is in use all the same
// loses nothing but its place in the tables: a row that is held stays, and a token never
// goes back, because the floor of all tokens is lifted above each one that is deleted (see
// countUpMySQL). Any number of replicas may sweep at once.
func (t *Tokens) Sweep(ctx context.Context, over func(ctx context.Context, names []string) ([]string, error)) (swept int, err error) {
	for last := ""; ; {
		names, err := t.names(ctx, last)
		if err != nil || len(names) == 0 {
			return swept, t.notSwept(err)
		}
		last = names[len(names)-1]
		if names, err = over(ctx, names); err != nil {
			return swept, err
		}
		if len(names) == 0 {
			continue
		}
		if err := t.clear(ctx, names); err != nil {
			return swept, t.notSwept(err)
		}
		swept += len(names)
	}
}

func (t *Tokens) notSwept(err error) error {
	if err == nil {
		return nil
	}
	return backend.Failure(t.base.deps.Dialect, fmt.Errorf("sweep locks: %w", err))
}

// listNames is in three parts, each with the bound, so that a page reads no more than
// three pages.
const listNames = `SELECT lock_name FROM (SELECT lock_name FROM lock_token WHERE lock_name > ? ORDER BY lock_name LIMIT ?) AS a
	UNION SELECT lock_name FROM (SELECT DISTINCT lock_name FROM distribute_lock WHERE lock_name > ? ORDER BY lock_name LIMIT ?) AS b
	UNION SELECT lock_name FROM (SELECT lock_name FROM record_lock WHERE lock_name > ? ORDER BY lock_name LIMIT ?) AS c
	ORDER BY lock_name LIMIT ?`

// names is the page after a name. The empty name, which is the floor, is in none.
func (t *Tokens) names(ctx context.Context, last string) (names []string, err error) {
	rows, err := t.base.deps.DB.QueryContext(ctx, listNames, last, sweepPage, last, sweepPage, last, sweepPage, sweepPage)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // its error is that of Err
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, rows.Err()
}

// The statements of a sweep; {names} are the parameters for the names.
const (
	highestCount   = `SELECT COALESCE(MAX(token), 0) FROM lock_token WHERE lock_name IN ({names}){lock}`
	highestVersion = `SELECT COALESCE(MAX(version), 0) FROM distribute_lock WHERE lock_name IN ({names}){lock}`

	setFloorMySQL  = `UPDATE lock_token SET token = ? WHERE lock_name = ''`
	setFloorSQLite = `INSERT INTO lock_token (lock_name, token) VALUES ('', ?) ON CONFLICT (lock_name) DO UPDATE SET token = excluded.token`

	clearTokens  = `DELETE FROM lock_token WHERE lock_name IN ({names})`
	clearLocks   = `DELETE FROM distribute_lock WHERE lock_name IN ({names}) AND (kind = 'row' OR owner = '' OR expires_at < {now})`
	clearRecords = `DELETE FROM record_lock WHERE lock_name IN ({names}) AND expires_at < {now}`
)

// clear lifts the floor to the highest token of the names, and deletes their rows. A row
// that a transaction holds is waited for, for a slice. It is cut off with ctx: the next
// sweep does what it did not.
func (t *Tokens) clear(ctx context.Context, names []string) error {
	args := make([]any, len(names))
	for i, name := range names {
		args[i] = name
	}
	marks := strings.Repeat(", ?", len(names))[2:]
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	conn, err := t.base.deps.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	return inTx(ctx, conn, func(tx runner) error {
		if err := t.lift(ctx, tx, marks, args); err != nil {
			return err
		}
		for _, statement := range []string{clearTokens, clearLocks, clearRecords} {
			if _, err := t.base.exec(ctx, tx, strings.ReplaceAll(statement, "{names}", marks), args...); err != nil {
				return err
			}
		}
		return nil
	})
}

func (t *Tokens) lift(ctx context.Context, tx runner, marks string, args []any) error {
	floor, err := t.base.holdFloor(ctx, tx)
	if err != nil {
		return err
	}
	highest := floor
	for _, statement := range []string{highestCount, highestVersion} {
		var found uint64
		if err := t.base.query(ctx, tx, strings.ReplaceAll(statement, "{names}", marks), args, &found); err != nil {
			return err
		}
		highest = max(highest, found)
	}
	if highest == floor {
		return nil
	}
	set := setFloorSQLite
	if t.base.deps.Dialect == string(backend.MySQL) {
		set = setFloorMySQL
	}
	_, err = tx.ExecContext(ctx, set, highest)
	return err
}
