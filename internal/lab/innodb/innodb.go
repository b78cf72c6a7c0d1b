// Package innodb finds by behavior what a statement has locked: other connections try
// every row and every gap, and those that wait have met a lock. It reads no system
// table, so that it is as true of MariaDB as of MySQL.
package innodb

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
)

// The limits of the pool that probes: a connection for each place and each holder of locks.
const (
	connections    = 128
	connectTimeout = 10 * time.Second
)

// Open connects to a server for the probes of this package.
func Open(d *servers.Database) (*sql.DB, error) {
	db, dialect, err := d.Pool(connections, connectTimeout)
	if err == nil && dialect != repo.MySQL {
		return nil, errors.Join(errors.New("SQLite locks no rows: there are none to probe"), db.Close())
	}
	return db, err
}

// Index is the index of the column in the statement's condition.
type Index string

// The indexes, each with a fixture of its name.
const (
	Primary Index = "primary"
	Unique  Index = "unique"
	Plain   Index = "plain"
	None    Index = "none"
)

// fixtures have a table of each index, its places, and what the source says of them.
//
//go:embed fixtures/*.sql
var fixtures embed.FS

const table = "probed"

// Kind is what can be locked.
type Kind string

// The kinds of places: a row of the table itself, an entry of the column's index where
// that is another one, and a gap between two neighbors of the index.
const (
	Row   Kind = "row"
	Entry Kind = "entry"
	Gap   Kind = "gap"
)

// Place is one of a table that other connections try.
type Place struct {
	Kind Kind
	// Name is unique in the table: "row_10", "gap_10_15".
	Name string

	attempt string   // waits where the place is locked
	claimed []string // the statements and levels that lock it, by the source
}

func (i Index) fixture() (setup []string, places []Place) {
	content, err := fixtures.ReadFile("fixtures/" + string(i) + ".sql")
	if err != nil {
		panic(err) // it is embedded
	}
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		place, begins := strings.CutPrefix(line, "-- ")
		statement := strings.TrimSuffix(line, ";")
		switch {
		case strings.HasPrefix(line, "#"):
		case begins:
			name, claimed, _ := strings.Cut(place, ":")
			kind, _, _ := strings.Cut(name, "_")
			places = append(places, Place{Kind: Kind(kind), Name: name, claimed: strings.Fields(claimed)})
		case len(places) == 0:
			setup = append(setup, statement)
		default:
			places[len(places)-1].attempt = statement
		}
	}
	return setup, places
}

// Places are all places of the table.
func (i Index) Places() []Place {
	_, places := i.fixture()
	return places
}

// Combination is one cell of the matrix.
type Combination struct {
	Index Index
	Level sql.IsolationLevel
}

// Combinations are all eight, in the order of the source.
func Combinations() []Combination {
	all := make([]Combination, 0, 8)
	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
		for _, index := range []Index{Primary, Unique, Plain, None} {
			all = append(all, Combination{index, level})
		}
	}
	return all
}

// String names the combination: "plain_rr".
func (c Combination) String() string { return string(c.Index) + "_" + c.level() }

func (c Combination) level() string {
	if c.Level == sql.LevelReadCommitted {
		return "rc"
	}
	return "rr"
}

// Statement is what locks.
type Statement string

// The statements. Every table has 10, and none has 12.
const (
	Found   Statement = "found"
	Missing Statement = "missing"
)

const deleteTen = `DELETE FROM ` + table + ` WHERE id = 10`

func (s Statement) sql() string {
	if s == Found {
		return deleteTen
	}
	return `SELECT id, name FROM ` + table + ` WHERE id = 12 FOR UPDATE`
}

// Claims tells whether the statement locks a place by the source. Of a statement that
// finds no row the source speaks for the primary key and the unique index; what it
// says of full scans and of plain indexes is applied to that statement as well.
func (c Combination) Claims(s Statement, p Place) bool {
	return slices.Contains(p.claimed, string(s)+"_"+c.level())
}

// excuse says why a server locks a place that is free by the source, or is empty.
// What it excuses is reported all the same.
func (c Combination) excuse(s Statement, p Place) string {
	if s == Found && c.String() == "unique_rr" && p.Name == "gap_5_10" {
		return "MariaDB 10.11 takes a next-key lock on the entry of a unique index that is not the primary key, and with it the gap below; MySQL 9.7 locks the entry alone"
	}
	return ""
}

// with makes the table of an index under another name, and drops it after a function.
func (i Index) with(x *flow.Flow, db *sql.DB, name string, do func()) {
	setup, _ := i.fixture()
	withTable(x, db, name, setup, do)
}

// withTable makes a table by statements for the one of the fixtures.
func withTable(x *flow.Flow, db *sql.DB, name string, setup []string, do func()) {
	defer func() {
		_, err := db.ExecContext(context.WithoutCancel(x), `DROP TABLE IF EXISTS `+name)
		x.Fail(err)
	}()
	for _, statement := range append([]string{`DROP TABLE IF EXISTS ` + table}, setup...) {
		exec(x, db, on(name, statement))
	}
	do()
}

func exec(x *flow.Flow, by interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
}, statement string, args ...any,
) {
	_, err := by.ExecContext(x, statement, args...)
	x.Must(failed(statement, err))
}

func begin(x *flow.Flow, db *sql.DB, level sql.IsolationLevel) *sql.Tx {
	return flow.Get(db.BeginTx(x, &sql.TxOptions{Isolation: level}))(x)
}

// failed names the statement of an error.
func failed(statement string, err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", statement, err)
	}
	return err
}

// on is a statement of a fixture for a table of that name.
func on(name, statement string) string { return strings.ReplaceAll(statement, table, name) }

// Error numbers that MariaDB and MySQL share, except the last: MySQL has its own for
// NOWAIT.
const (
	duplicateEntry  = 1062
	lockWaitTimeout = 1205
	deadlock        = 1213
	noWait          = 3572
)
