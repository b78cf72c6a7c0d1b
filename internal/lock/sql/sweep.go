package sql

import (
	"context"
	"fmt"
	"strings"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

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
	return &stock.BackendError{Backend: t.base.dialect, Err: fmt.Errorf("sweep locks: %w", err)}
}

// listNames is in three parts, each with the bound, so that a page reads no more than
// three pages.
const listNames = `SELECT lock_name FROM (SELECT lock_name FROM lock_token WHERE lock_name > ? ORDER BY lock_name LIMIT ?) AS a
	UNION SELECT lock_name FROM (SELECT DISTINCT lock_name FROM distribute_lock WHERE lock_name > ? ORDER BY lock_name LIMIT ?) AS b
	UNION SELECT lock_name FROM (SELECT lock_name FROM record_lock WHERE lock_name > ? ORDER BY lock_name LIMIT ?) AS c
	ORDER BY lock_name LIMIT ?`

// names is the page after a name. The empty name, which is the floor, is in none.
func (t *Tokens) names(ctx context.Context, last string) (names []string, err error) {
	rows, err := t.base.db.QueryContext(ctx, listNames, last, sweepPage, last, sweepPage, last, sweepPage, sweepPage)
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
	conn, err := t.base.db.Conn(ctx)
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
	if t.base.dialect == string(backend.MySQL) {
		set = setFloorMySQL
	}
	_, err = tx.ExecContext(ctx, set, highest)
	return err
}
