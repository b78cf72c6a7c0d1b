package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	sqllock "github.com/stockd/stockd/internal/lock/sql"
	"github.com/stockd/stockd/internal/locktest"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/internal/repo"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(locktest.Main(m, &lab, locks()...)) }

func TestLocks(t *testing.T) { locktest.Run(t, lab, locks()...) }

// locks are the locks of this family, with their state.
func locks() []locktest.Lock { return locktest.Family(lock.FamilySQL, stateOf) }

// state is the rows, named locks and statements of a name, in a database that no other
// test uses.
type state struct {
	db      *sql.DB
	dialect string
}

func stateOf(_ string, c *backend.Clients) locktest.State { return state{c.DB, c.Dialect} }

// The traces of a name, one column of words each.
const (
	recordTraces = `SELECT CONCAT('record_lock: held by ', owner) FROM record_lock WHERE lock_name = ?`

	versionTraces = `SELECT CONCAT('distribute_lock: owner ', owner) FROM distribute_lock
		WHERE lock_name = ? AND kind = 'version' AND owner <> ''`

	namedTraces = `SELECT CONCAT('named lock: held by connection ', IS_USED_LOCK(` + sqllock.ServerName + `))`

	// A prepared statement shows no values: it may be one of this name.
	statementTraces = `SELECT CONCAT('connection ', id, ': ', info) FROM information_schema.processlist
		WHERE id <> CONNECTION_ID() AND db = DATABASE() AND (info LIKE CONCAT('%', ?, '%') OR info LIKE '%?%')`

	rowOfName = `SELECT lock_name FROM distribute_lock WHERE lock_name = ? AND kind = 'row'`
)

// Traces lists them.
func (s state) Traces(ctx context.Context, name string) (traces []string, err error) {
	statements := []string{recordTraces, versionTraces}
	if s.dialect == repo.MySQL {
		statements = append(statements, namedTraces, statementTraces)
	}
	for _, statement := range statements {
		found, err := s.list(ctx, statement, name)
		if err != nil {
			return nil, err
		}
		traces = append(traces, found...)
	}
	held, err := s.isRowHeld(ctx, name)
	if held {
		traces = append(traces, "distribute_lock: a transaction holds the row")
	}
	return traces, err
}

// The connections that hold a name: by its named lock, or by a transaction that stays open.
const (
	namedHolders = `SELECT IS_USED_LOCK(` + sqllock.ServerName + `)`

	rowHolders = `SELECT p.id FROM information_schema.innodb_trx t
		JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()`
)

// Break deletes the rows of a name, and ends the connections that hold it.
func (s state) Break(ctx context.Context, name string) error {
	_, err := s.db.ExecContext(ctx, `DELETE FROM record_lock WHERE lock_name = ?`, name)
	if err == nil {
		_, err = s.db.ExecContext(ctx, `UPDATE distribute_lock SET owner = '' WHERE lock_name = ? AND kind = 'version'`, name)
	}
	if err != nil || s.dialect != repo.MySQL {
		return err
	}
	if err := s.kill(ctx, namedHolders, name); err != nil {
		return err
	}
	for {
		held, err := s.isRowHeld(ctx, name)
		if err != nil || !held {
			return err
		}
		if err := s.kill(ctx, rowHolders); err != nil {
			return err
		}
		// The server makes its list of transactions anew when it was not read for a tenth of a second.
		if err := pause.About(ctx, 250*time.Millisecond); err != nil {
			return fmt.Errorf("a transaction still holds the row of %s: %w", name, err)
		}
	}
}

// kill ends the connections that a statement lists, those that have not ended meanwhile.
func (s state) kill(ctx context.Context, list string, args ...any) error {
	const noSuchThread = 1094
	ids, err := s.list(ctx, list, args...)
	for _, id := range ids {
		_, killed := s.db.ExecContext(ctx, `KILL CONNECTION `+id)
		if answer, ok := errors.AsType[*mysql.MySQLError](killed); !ok || answer.Number != noSuchThread {
			err = errors.Join(err, killed)
		}
	}
	return err
}

// isRowHeld reports whether a transaction has the row of a name locked.
func (s state) isRowHeld(ctx context.Context, name string) (bool, error) {
	if s.dialect != repo.MySQL {
		return false, nil
	}
	all, err := s.list(ctx, rowOfName, name)
	if err != nil {
		return false, err
	}
	free, err := s.list(ctx, rowOfName+` FOR UPDATE SKIP LOCKED`, name)
	return len(free) < len(all), err
}

// list is the rows of a statement that has one column, without those that are NULL.
func (s state) list(ctx context.Context, statement string, args ...any) (all []string, err error) {
	rows, err := s.db.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // its error is that of Err
	for rows.Next() {
		var one sql.NullString
		if err := rows.Scan(&one); err != nil {
			return nil, err
		}
		if one.Valid {
			all = append(all, one.String)
		}
	}
	return all, rows.Err()
}
