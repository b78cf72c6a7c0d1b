package backend_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// openSQL opens a database with a wait for locks that is short.
func openSQL(t testing.TB, d *servers.Database, maxOpen int) *backend.SQL {
	t.Helper()
	s := must.Get(backend.OpenSQL(backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: maxOpen,
		LockWait: answerWithin, ConnectTimeout: 5 * time.Second, Silence: 77 * time.Second,
	}))(t)
	t.Cleanup(func() { closePool(t, s.DB) })
	return s
}

// What a server answers depends on the session, and so on none of its own defaults.
func TestASessionOfMySQLIsTheSameOnEachServer(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openSQL(t, d, 1)
		must.Get(s.ExecContext(t.Context(), `CREATE TABLE same (id INT PRIMARY KEY, n TINYINT NOT NULL, at DATETIME NULL)`))(t)
		for query, want := range map[string]string{
			`SELECT @@SESSION.innodb_lock_wait_timeout`: "1",
			`SELECT @@SESSION.wait_timeout`:             "77",
			`SELECT @@SESSION.time_zone`:                "+00:00",
			`SELECT @@SESSION.sql_mode`:                 "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION",
		} {
			var got string
			must.Do(t, s.QueryRowContext(t.Context(), query).Scan(&got))
			should.Be(t, got, want, query)
		}
		at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.FixedZone("east", 3600))
		must.Get(s.ExecContext(t.Context(), `INSERT INTO same VALUES (?, ?, ?)`, 1, 2, at))(t)
		var read time.Time
		if err := s.QueryRowContext(t.Context(), `SELECT at FROM same`).Scan(&read); err != nil || !read.Equal(at) || read.Location() != time.UTC {
			t.Errorf("%s is read as %s (%v)", at, read, err)
		}
		done := must.Get(s.ExecContext(t.Context(), `UPDATE same SET n = ? WHERE id = ?`, 2, 1))(t)
		if n, err := done.RowsAffected(); n != 1 || err != nil {
			t.Errorf("%d rows match that look the same afterwards (%v), want 1", n, err)
		}
		if _, err := s.ExecContext(t.Context(), `UPDATE same SET n = 1000`); err == nil {
			t.Error("a number that is too large is cut")
		}
	})
}

// A transaction sees what others have committed since it began.
func TestATransactionOfMySQLReadsWhatIsCommitted(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openSQL(t, d, 2)
		for _, statement := range []string{`CREATE TABLE seen (n INT)`, `INSERT INTO seen VALUES (1)`} {
			must.Get(s.ExecContext(t.Context(), statement))(t)
		}
		tx := must.Get(s.BeginTx(t.Context(), nil))(t)
		defer tx.Rollback()
		for want := 1; want <= 2; want++ {
			var n int
			must.Do(t, tx.QueryRowContext(t.Context(), `SELECT n FROM seen`).Scan(&n))
			should.Be(t, n, want, "it reads")
			must.Get(s.ExecContext(t.Context(), `UPDATE seen SET n = 2`))(t)
		}
	})
}

// One process at a time changes the schema: the next waits until it is done, and one that does
// not wait any longer leaves nothing behind.
func TestOneProcessAtATimeChangesTheSchema(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		one, other := openSQL(t, d, 1), openSQL(t, d, 1)
		unlock := must.Get(one.LockSchema(t.Context()))(t)
		must.Do(t, one.PingContext(t.Context())) // it has only one connection
		if d.Driver != backend.SQLite {          // whose driver does not heed the context
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			should.Reject(other.LockSchema(ctx))(t, context.DeadlineExceeded)
			cancel()
		}
		locked := make(chan error, 1)
		go func() {
			unlock, err := other.LockSchema(t.Context())
			if err == nil {
				err = unlock()
			}
			locked <- err
		}()
		select {
		case err := <-locked:
			t.Fatalf("two change the schema at once (%v)", err)
		case <-time.After(50 * time.Millisecond):
		}
		must.Do(t, unlock())
		select {
		case err := <-locked:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatal("the schema is locked after its unlock")
		}
	})
}

// The connection that locks the schema is silent while the schema changes, for longer than a server, or
// wait_timeout in the DSN, bears silence.
func TestTheSchemaStaysLockedForALongChange(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		impatient := must.Get(mysql.ParseDSN(d.DSN))(t)
		impatient.Params = map[string]string{"wait_timeout": "1"}
		one := must.Get(backend.OpenSQL(backend.SQLOptions{Driver: d.Driver, DSN: impatient.FormatDSN(), Password: d.Password, MaxOpen: 1, ConnectTimeout: 5 * time.Second}))(t)
		t.Cleanup(func() { closePool(t, one.DB) })
		unlock := must.Get(one.LockSchema(t.Context()))(t)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		should.Reject(openSQL(t, d, 1).LockSchema(ctx))(t, context.DeadlineExceeded)
		must.Do(t, unlock())
	})
}

// The connection that locked the schema ends with its unlock.
func TestLockingTheSchemaLeavesNoConnection(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		admin, _ := labtest.Connect(t, d)
		defer closePool(t, admin)
		connections := func() (n int) {
			must.Do(t, admin.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE()`).Scan(&n))
			return n
		}
		s := openSQL(t, d, 1)
		unlock := must.Get(s.LockSchema(t.Context()))(t)
		before := connections()
		must.Do(t, unlock())
		should.Be(t, labtest.Eventually(5*time.Second, func() bool { return connections() == before-1 }), true, "… connections of … are left", connections(), before)
	})
}

// A database in a file is its owner's alone, survives a power cut, is read while it is written,
// and has a path of any letters.
func TestADatabaseInAFileIsPrivateAndDurable(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "stock ?#%41;库存.db")
	s := openSQL(t, &servers.Database{Driver: backend.SQLite, DSN: path}, 3)
	for range 3 { // each of its connections
		conn := must.Get(s.Conn(t.Context()))(t)
		defer conn.Close() //nolint:errcheck // it was only read
		for query, want := range map[string]string{
			`PRAGMA journal_mode`: "wal", `PRAGMA synchronous`: "2", `PRAGMA busy_timeout`: "1000",
		} {
			var got string
			must.Do(t, conn.QueryRowContext(t.Context(), query).Scan(&got))
			should.Be(t, got, want, query)
		}
	}
	unlock, err := s.LockSchema(t.Context())
	must.Do(t, err)
	defer unlock() //nolint:errcheck // the test is over
	files, err := os.ReadDir(folder)
	if err != nil || len(files) < 3 {
		t.Fatalf("%v (%v), want the database, its journal and its lock", files, err)
	}
	for _, f := range files {
		info := must.Get(f.Info())(t)
		should.Be(t, info.Mode().Perm(), 0o600, "has the mode", f.Name())
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the database is elsewhere: %v", err)
	}
}

// A file that is there keeps its mode and what is in it.
func TestAFileThatIsThereIsOpenedAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stock.db")
	must.Do(t, os.WriteFile(path, nil, 0o640))
	for want := range 2 {
		s := openSQL(t, &servers.Database{Driver: backend.SQLite, DSN: path}, 1)
		must.Get(s.ExecContext(t.Context(), `CREATE TABLE IF NOT EXISTS kept (n INT)`))(t)
		var n int
		must.Do(t, s.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM kept`).Scan(&n))
		should.Be(t, n, want, "its rows")
		must.Get(s.ExecContext(t.Context(), `INSERT INTO kept VALUES (1)`))(t)
		should.Be(t, must.Get(os.Stat(path+"-wal"))(t).Mode().Perm(), 0o640, "the mode of its journal is")
		closePool(t, s.DB)
	}
	should.Be(t, must.Get(os.Stat(path))(t).Mode().Perm(), 0o640, "its mode")
}

// A transaction of a file writes from its begin on: two that read first, and then write, would
// not both get to the end.
func TestATransactionOfAFileExcludesOthersFromItsBegin(t *testing.T) {
	s := openSQL(t, &servers.Database{Driver: backend.SQLite, DSN: filepath.Join(t.TempDir(), "stock.db")}, 2)
	first := must.Get(s.BeginTx(t.Context(), nil))(t)
	defer first.Rollback()
	began := make(chan error, 1)
	go func() {
		var second *sql.Tx
		second, err := s.BeginTx(t.Context(), nil)
		if err == nil {
			err = second.Rollback()
		}
		began <- err
	}()
	select {
	case err := <-began:
		t.Fatalf("the second begins beside the first (%v)", err)
	case <-time.After(30 * time.Millisecond):
	}
	must.Do(t, first.Rollback())
	should.Do(t, <-began)
}

// A server that takes no writes any more, such as a demoted primary, is left: the statement is sent
// again on another connection.
func TestAServerThatTakesNoWritesIsLeft(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openSQL(t, d, 1)
		for _, statement := range []string{`CREATE TABLE written (n INT)`, `SET SESSION TRANSACTION READ ONLY`, `INSERT INTO written VALUES (1)`} {
			if _, err := s.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		must.Get(s.ExecContext(t.Context(), `SET GLOBAL read_only = 1`))(t)
		defer s.ExecContext(context.WithoutCancel(t.Context()), `SET GLOBAL read_only = 0`) //nolint:errcheck // the server ends with the tests
		_, err := openSQL(t, labtest.Restricted(t, d, labtest.ReplicaRights), 1).ExecContext(t.Context(), `INSERT INTO written VALUES (2)`)
		if text := fmt.Sprint(err); !strings.Contains(text, "--read-only") || strings.Contains(text, driver.ErrBadConn.Error()) {
			t.Errorf("all connections are left, with %q", text)
		}
	})
}

// A statement that comes again is prepared, which must change nothing but the server's work: neither what is
// written, nor what is read.
func TestAPreparedStatementIsWhatItsTextIs(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openSQL(t, d, 1)
		must.Get(s.ExecContext(t.Context(), `CREATE TABLE again (id BIGINT AUTO_INCREMENT PRIMARY KEY, n BIGINT UNSIGNED NOT NULL,
			less BIGINT NOT NULL, at DATETIME(6) NOT NULL, who VARCHAR(64) NULL, yes BOOLEAN NOT NULL)`))(t)
		at := time.Date(2030, 1, 2, 3, 4, 5, 678_901_000, time.FixedZone("east", 3600))
		before := preparations(t, s)
		for try := range 4 {
			done := must.Get(s.ExecContext(t.Context(), `INSERT INTO again (n, less, at, who, yes) VALUES (?, ?, ?, ?, ?)`,
				uint64(math.MaxUint64), int64(math.MinInt64), at, nil, true))(t)
			should.Be(t, must.Get(done.LastInsertId())(t), int64(try+1), "try … got the id", try)
			var n, sum uint64
			var less int64
			var when time.Time
			var who sql.NullString
			var yes bool
			must.Do(t, s.QueryRowContext(t.Context(), `SELECT n, less, at, who, yes, (SELECT SUM(id) FROM again) FROM again WHERE id = ?`, try+1).
				Scan(&n, &less, &when, &who, &yes, &sum))
			if n != math.MaxUint64 || less != math.MinInt64 || !when.Equal(at) || when.Location() != time.UTC || who.Valid || !yes ||
				sum != uint64((try+1)*(try+2)/2) {
				t.Errorf("try %d reads %d, %d, %s, %v, %t, %d", try, n, less, when, who, yes, sum)
			}
			changed := must.Get(s.ExecContext(t.Context(), `UPDATE again SET less = ? WHERE id >= ?`, int64(math.MinInt64), 1))(t)
			should.Be(t, must.Get(changed.RowsAffected())(t), int64(try+1), "try … matches rows", try)
		}
		should.Be(t, preparations(t, s), before+3, "the statements that were prepared")
	})
}

// preparations is how many statements the session has prepared.
func preparations(t *testing.T, s *backend.SQL) (n int) {
	t.Helper()
	var name string
	must.Do(t, s.QueryRowContext(t.Context(), `SHOW SESSION STATUS LIKE 'Com_stmt_prepare'`).Scan(&name, &n))
	return n
}

// A table that is changed under a prepared statement is read as it is.
func TestAPreparedStatementOutlivesAChangeOfItsTable(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openSQL(t, d, 1)
		must.Get(s.ExecContext(t.Context(), `CREATE TABLE moved (id INT PRIMARY KEY, n INT NOT NULL)`))(t)
		for try := range 6 {
			if _, err := s.ExecContext(t.Context(), `INSERT INTO moved (id, n) VALUES (?, ?)`, try, try); err != nil {
				t.Fatalf("try %d: %v", try, err)
			}
			var n int
			must.Do(t, s.QueryRowContext(t.Context(), `SELECT n FROM moved WHERE id = ?`, try).Scan(&n))
			should.Be(t, n, try, "it reads, at this try,")
			if try == 3 {
				must.Get(s.ExecContext(t.Context(), `ALTER TABLE moved ADD COLUMN more BIGINT NOT NULL DEFAULT 7 FIRST, MODIFY n BIGINT`))(t)
			}
		}
	})
}

// MySQL prepares no KILL with a parameter, and the driver has no answer for the rows of an Exec.
func TestWhatIsNotPreparedIsExecutedAgainAndAgain(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openSQL(t, d, 1)
		for try := range 4 {
			var id int64
			other := openSQL(t, d, 1)
			must.Do(t, other.QueryRowContext(t.Context(), `SELECT CONNECTION_ID()`).Scan(&id))
			if _, err := s.ExecContext(t.Context(), `KILL QUERY ?`, id); err != nil {
				t.Errorf("try %d: %v", try, err)
			}
			if _, err := s.ExecContext(t.Context(), `SELECT id FROM information_schema.processlist WHERE id = ?`, id); err != nil {
				t.Errorf("try %d: %v", try, err)
			}
		}
	})
}

func TestAConflictIsWhatAServerHasRolledBackForAnotherTransaction(t *testing.T) {
	for _, c := range []struct {
		number          uint16
		message         string
		conflict, group bool
	}{
		{1213, "Deadlock found when trying to get lock; try restarting transaction", true, false},
		{3101, "Plugin instructed the server to rollback the current transaction.", true, true},
		{1180, "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT", true, false},
		{1180, "Got error 28 - 'No space left on device' during COMMIT", false, false},
		{1180, "Got error 1490 - 'Unknown' during COMMIT", false, false},
		{1205, "Lock wait timeout exceeded; try restarting transaction", false, false},
		{3100, "Error on observer while running replication hook 'before_commit'.", false, false},
	} {
		err := fmt.Errorf("commit: %w", &mysql.MySQLError{Number: c.number, Message: c.message})
		should.Be(t, backend.FaultOf(err) == backend.Conflict, c.conflict, "is a conflict", c.number, c.message)
		should.Be(t, backend.IsGroupConflict(err), c.group, "is one of a group", c.number, c.message)
	}
	if backend.FaultOf(errors.New("Error 1213: not a server's")) == backend.Conflict {
		t.Error("an error without a number is a conflict")
	}
}

// A server may hang after the row that was asked for, and before the end of its answer:
// a call that answers and is then committed has such a moment. What is left of an answer
// is waited for no longer than the context lasts, or a connection would be lost for ever.
func TestTheEndOfAnAnswerIsNotAwaitedForEver(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		pool, _, err := backend.OpenPool(backend.SQLOptions{
			Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 2, LockWait: answerWithin, ConnectTimeout: 5 * time.Second,
		})
		must.Do(t, err)
		t.Cleanup(func() { pool.Close() }) //nolint:errcheck // the test is over
		const answersAndHangs = `CREATE PROCEDURE answers_and_hangs() BEGIN SELECT 7; SELECT SLEEP(8); END`
		must.Get(pool.ExecContext(t.Context(), answersAndHangs))(t)
		for name, end := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"AtTheDeadline": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, answerWithin)
			},
			"WhenCanceled": func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				time.AfterFunc(answerWithin, cancel)
				return ctx, cancel
			},
		} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := end(t.Context())
				defer cancel()
				start := time.Now()
				var got int
				err := pool.QueryRowContext(ctx, `CALL answers_and_hangs()`).Scan(&got)
				if took := time.Since(start); took > 5*time.Second {
					t.Errorf("it ended after %s with %v, want %s", took, err, answerWithin)
				}
				if got != 7 || err == nil {
					t.Errorf("it answered %d, %v; want the row, and an error for what was not read", got, err)
				}
			})
		}
	})
}
