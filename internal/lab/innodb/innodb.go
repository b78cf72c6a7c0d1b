// Package innodb finds out by behaviour what a statement has locked: other
// connections try every row and every gap, and what does not let them is
// locked. It asks no table of the server's own, so that what it says is as true
// of MariaDB as of MySQL.
package innodb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
)

// The limits of the connections that probe: a place each, with those that hold
// what is probed, and the shortest lock wait that both servers have.
const (
	connections    = 128
	lockWait       = time.Second
	connectTimeout = 10 * time.Second
)

// Open connects to a server for the probes of this package.
func Open(d *servers.Database) (*sql.DB, error) {
	db, dialect, err := backend.OpenPool(backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password,
		MaxOpen: connections, LockWait: lockWait, ConnectTimeout: connectTimeout,
	})
	if err == nil && dialect != repo.MySQL {
		return nil, errors.Join(errors.New("SQLite locks no rows, and so there is nothing to probe"), db.Close())
	}
	return db, err
}

// Index is what a table knows of the column that the statement looks at.
type Index string

// The indexes.
const (
	Primary Index = "primary" // it is the primary key
	Unique  Index = "unique"  // it has a unique index
	Plain   Index = "plain"   // it has an index with duplicates
	None    Index = "none"    // it has none
)

// Combination is one cell of the matrix.
type Combination struct {
	Index Index
	Level sql.IsolationLevel
}

// Combinations are all eight, in the order of the source.
func Combinations() []Combination {
	const rc, rr = sql.LevelReadCommitted, sql.LevelRepeatableRead
	return []Combination{
		{Primary, rc},
		{Unique, rc},
		{Plain, rc},
		{None, rc},
		{Primary, rr},
		{Unique, rr},
		{Plain, rr},
		{None, rr},
	}
}

// String names the combination: "plain_rr".
func (c Combination) String() string {
	if c.Level == sql.LevelReadCommitted {
		return string(c.Index) + "_rc"
	}
	return string(c.Index) + "_rr"
}

// Statement is what locks.
type Statement string

// The statements. Every table has 10, and none has 12.
const (
	Found   Statement = `DELETE FROM %s WHERE id = 10`
	Missing Statement = `SELECT id, name FROM %s WHERE id = 12 FOR UPDATE`
)

func (s Statement) on(table string) string { return fmt.Sprintf(string(s), table) }

// keys says how the table of an index is made.
func (i Index) keys() string {
	return map[Index]string{
		Primary: `PRIMARY KEY (id)`,
		Unique:  `PRIMARY KEY (name), UNIQUE KEY by_id (id)`,
		Plain:   `PRIMARY KEY (name), KEY by_id (id)`,
		None:    `PRIMARY KEY (name)`,
	}[i]
}

// create makes a table with its rows: b has 5, d and f have 10, h has 15 and j
// has 20. Where 10 can be there but once, f is missing.
func (i Index) create(ctx context.Context, db *sql.DB, table string) error {
	statements := []string{
		`DROP TABLE IF EXISTS ` + table,
		`CREATE TABLE ` + table + ` (id INT NOT NULL, name CHAR(1) NOT NULL, ` + i.keys() + `) ENGINE=InnoDB`,
		`INSERT INTO ` + table + ` (id, name) VALUES ` + strings.Join(i.values(), ", "),
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("make table %s: %w", table, err)
		}
	}
	return nil
}

func drop(ctx context.Context, db *sql.DB, table string) error {
	_, err := db.ExecContext(context.WithoutCancel(ctx), `DROP TABLE IF EXISTS `+table)
	return err
}

// Error numbers that MariaDB and MySQL share, but for the last: MySQL has one of
// its own for NOWAIT.
const (
	duplicateEntry  = 1062
	lockWaitTimeout = 1205
	deadlock        = 1213
	noWait          = 3572
)

func is(err error, numbers ...uint16) bool {
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, answer.Number)
}
