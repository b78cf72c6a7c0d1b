package hostile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
)

// State is what the servers keep.
type State struct {
	// Rows is how many rows each table has.
	Rows map[string]int64 `json:"rows"`
	// Keys is how many keys Redis has, and Memory what it uses for them, in bytes.
	Keys   int64 `json:"redis_keys"`
	Memory int64 `json:"redis_memory"`
	// Invented counts rows and keys of items that do not exist, by where they are.
	Invented map[string]int `json:"invented,omitempty"`
}

// readState counts what is in the servers now.
func readState(ctx context.Context, b *servers.Backends) (s State, err error) {
	s.Invented = make(map[string]int)
	if s.Rows, err = s.countRows(ctx, b.Database); err != nil || b.Redis == nil {
		return s, err
	}
	r := redis.NewClient(&redis.Options{Addr: b.Redis.Address, Password: b.Redis.Password})
	defer func() { err = errors.Join(err, r.Close()) }()
	if s.Keys, err = r.DBSize(ctx).Result(); err != nil {
		return s, fmt.Errorf("count keys of Redis: %w", err)
	}
	for keys := r.Scan(ctx, 0, "*"+inventedPrefix+"*", 1000).Iterator(); keys.Next(ctx); {
		if invented().MatchString(keys.Val()) {
			s.Invented["keys of Redis"]++
		}
	}
	if stats := r.InfoMap(ctx, "memory"); stats.Err() == nil {
		_, _ = fmt.Sscan(stats.Item("Memory", "used_memory"), &s.Memory) // a figure for people
	}
	return s, nil
}

// inventedPrefix begins the number of every item that the attacker invents.
const inventedPrefix = "77770"

func invented() *regexp.Regexp { return regexp.MustCompile(`(^|\D)` + inventedPrefix + `\d{8}(\D|$)`) }

func (s State) countRows(ctx context.Context, d *servers.Database) (rows map[string]int64, err error) {
	db, tables, err := openTables(d)
	if err != nil {
		return nil, fmt.Errorf("count rows: %w", err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	names, err := readNames(ctx, db, tables)
	if err != nil {
		return nil, fmt.Errorf("list tables: %w", err)
	}
	rows = make(map[string]int64)
	for _, name := range names {
		var n int64
		if err := db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+name).Scan(&n); err != nil {
			return nil, fmt.Errorf("count rows of %s: %w", name, err)
		}
		if n < inventedRows {
			if err := s.findInvented(ctx, db, name); err != nil {
				return nil, fmt.Errorf("read %s: %w", name, err)
			}
		}
		rows[name] = n
	}
	return rows, nil
}

// openTables connects to a database, and says how its tables are listed.
func openTables(d *servers.Database) (db *sql.DB, tables string, err error) {
	db, dialect, err := backend.OpenPool(backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 1, LockWait: time.Second, ConnectTimeout: readTimeout,
	})
	if dialect == repo.SQLite {
		return db, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'", err
	}
	return db, "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()", err
}

// readTimeout bounds the wait for a connection after an attack.
const readTimeout = 10 * time.Second

func readNames(ctx context.Context, db *sql.DB, query string) (names []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells what is wrong
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names, rows.Err()
}

// inventedRows bounds the tables that are read in full: one that is larger breaks the
// bound of its rows, or is the ledger.
const inventedRows = 100_000

// findInvented counts the rows of a table that name an item that does not exist.
func (s State) findInvented(ctx context.Context, db *sql.DB, table string) error {
	rows, err := db.QueryContext(ctx, "SELECT * FROM "+table) //nolint:gosec,unqueryvet // any column of a table that the database has named may have an item
	if err != nil {
		return err
	}
	defer rows.Close() //nolint:errcheck // Err tells what is wrong
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	values, into := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	pattern := invented()
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if slices.ContainsFunc(values, func(v sql.RawBytes) bool { return pattern.Match(v) }) {
			s.Invented["rows of "+table]++
		}
	}
	return rows.Err()
}
