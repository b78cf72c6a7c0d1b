package locktest

import (
	"database/sql"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
)

// databaseBackend is a SQL database of its own on the lab's server, or a file.
type databaseBackend struct {
	at    addresses
	admin *sql.DB
}

func newDatabaseBackend(t *testing.T, d *servers.Database) *databaseBackend {
	t.Helper()
	migrate(t, d)
	at := addresses{Driver: d.Driver, DSN: d.DSN, Password: d.Password, TTL: time.Second}
	admin, _, err := at.database()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Close() }) // its server may have been killed
	b := &databaseBackend{at: at, admin: admin}
	if at.Driver == repo.MySQL {
		// Nothing has to survive the machine, and the suite waits for the disk no
		// longer than it must.
		b.exec(t, `SET GLOBAL innodb_flush_log_at_trx_commit = 2`)
	}
	return b
}

// newSQLite is a database in a file.
func newSQLite(t *testing.T) *servers.Database {
	t.Helper()
	d := &servers.Database{Driver: repo.SQLite, DSN: filepath.Join(t.TempDir(), "tokens.db")}
	migrate(t, d)
	return d
}

// migrate brings the schema up to date.
func migrate(t *testing.T, d *servers.Database) {
	t.Helper()
	store, err := d.Open(t.Context(), "locktest", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, store)
	if _, err := store.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// ownDatabase is a database server that topics may kill. It ends with the lab.
func ownDatabase(t *testing.T, lab *labtest.Lab, kind string) *servers.Database {
	t.Helper()
	d, err := servers.StartDatabase(t.Context(), lab.Supervisor(), servers.Choice{Mode: servers.Local, Database: kind})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// database makes the small pool of a replica's locks.
func (a addresses) database() (pool *sql.DB, dialect string, err error) {
	return backend.OpenPool(backend.SQLOptions{
		Driver: a.Driver, DSN: a.DSN, Password: a.Password,
		MaxOpen: connections, LockWait: time.Second, ConnectTimeout: answerWithin,
	})
}

func (b *databaseBackend) addresses() addresses { return b.at }
func (b *databaseBackend) ttl() time.Duration   { return b.at.TTL }
func (b *databaseBackend) named() backend.Name  { return backend.Name(b.at.Driver) }

// A commit is what grants a name where a transaction ends before the work, and
// it names nothing.
func (b *databaseBackend) requests() []string { return []string{"", "COMMIT"} }

// namedLock is how a server that has named locks calls that of a name.
const namedLock = `CONCAT('stockd:', SHA2(CONCAT(DATABASE(), '/', ?), 224))`

// The traces of a name, one column of words each.
const (
	recordTraces = `SELECT CONCAT('record_lock: held by ', owner) FROM record_lock WHERE lock_name = ?`

	versionTraces = `SELECT CONCAT('distribute_lock: owner ', owner) FROM distribute_lock
		WHERE lock_name = ? AND kind = 'version' AND owner <> ''`

	namedTraces = `SELECT CONCAT('named lock: held by connection ', IS_USED_LOCK(` + namedLock + `))`

	statementTraces = `SELECT CONCAT('connection ', id, ': ', info) FROM information_schema.processlist
		WHERE id <> CONNECTION_ID() AND db = DATABASE() AND info LIKE CONCAT('%', ?, '%')`

	rowOfName = `SELECT COUNT(*) FROM distribute_lock WHERE lock_name = ? AND kind = 'row'`
)

func (b *databaseBackend) litter(t *testing.T, name string) []string {
	t.Helper()
	traces := append(b.strings(t, recordTraces, name), b.strings(t, versionTraces, name)...)
	if b.at.Driver == repo.SQLite {
		return traces
	}
	traces = append(traces, b.strings(t, namedTraces, name)...)
	traces = append(traces, b.strings(t, statementTraces, name)...)
	if b.isRowHeld(t, name) {
		traces = append(traces, "distribute_lock: a transaction holds the row")
	}
	return traces
}

// The connections that hold a name: by its named lock, or by a transaction that
// stays open. Nobody else has one in this database.
const (
	namedHolders = `SELECT IS_USED_LOCK(` + namedLock + `)`

	rowHolders = `SELECT p.id FROM information_schema.innodb_trx t
		JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE()`
)

// drop deletes the rows of a name, and ends the connections that hold it.
func (b *databaseBackend) drop(t *testing.T, name string) {
	t.Helper()
	b.exec(t, `DELETE FROM record_lock WHERE lock_name = ?`, name)
	b.exec(t, `UPDATE distribute_lock SET owner = '' WHERE lock_name = ? AND kind = 'version'`, name)
	if b.at.Driver == repo.SQLite {
		return
	}
	for _, id := range b.strings(t, namedHolders, name) {
		b.kill(t, id)
	}
	// What the server tells of transactions may be a tenth of a second old.
	dropped := labtest.Eventually(patience, func() bool {
		if !b.isRowHeld(t, name) {
			return true
		}
		for _, id := range b.strings(t, rowHolders) {
			b.kill(t, id)
		}
		return false
	})
	if !dropped {
		t.Fatalf("drop %s: a transaction holds its row still", name)
	}
}

// kill ends a connection, which may have ended by itself.
func (b *databaseBackend) kill(t *testing.T, id string) {
	t.Helper()
	const noSuchThread = 1094
	_, err := b.admin.ExecContext(background(t), `KILL CONNECTION `+id)
	if answer, is := errors.AsType[*mysql.MySQLError](err); is && answer.Number == noSuchThread {
		return
	}
	if err != nil {
		t.Fatalf("kill connection %s: %v", id, err)
	}
}

// isRowHeld reports whether the row of a name is locked.
func (b *databaseBackend) isRowHeld(t *testing.T, name string) bool {
	t.Helper()
	return b.count(t, rowOfName, name) > b.count(t, rowOfName+` FOR UPDATE SKIP LOCKED`, name)
}

func (b *databaseBackend) exec(t *testing.T, statement string, args ...any) {
	t.Helper()
	if _, err := b.admin.ExecContext(background(t), statement, args...); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

func (b *databaseBackend) count(t *testing.T, statement string, args ...any) (n int) {
	t.Helper()
	if err := b.admin.QueryRowContext(background(t), statement, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return n
}

// strings are the rows of a statement that has one column, but for those that
// are NULL.
func (b *databaseBackend) strings(t *testing.T, statement string, args ...any) (all []string) {
	t.Helper()
	rows, err := b.admin.QueryContext(background(t), statement, args...)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	defer rows.Close() //nolint:errcheck // its error is that of Err
	for rows.Next() {
		var one sql.NullString
		if err := rows.Scan(&one); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
		if one.Valid {
			all = append(all, one.String)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return all
}
