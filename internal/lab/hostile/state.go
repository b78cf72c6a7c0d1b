package hostile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	_ "github.com/glebarez/go-sqlite" // a database without a server is counted, too
	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

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
}

// readState counts what is in the servers now.
func readState(ctx context.Context, b *servers.Backends) (s State, err error) {
	if s.Rows, err = countRows(ctx, b.Database); err != nil || b.Redis == nil {
		return s, err
	}
	r := redis.NewClient(&redis.Options{Addr: b.Redis.Address, Password: b.Redis.Password})
	defer func() { err = errors.Join(err, r.Close()) }()
	if s.Keys, err = r.DBSize(ctx).Result(); err != nil {
		return s, fmt.Errorf("count keys of Redis: %w", err)
	}
	if stats := r.InfoMap(ctx, "memory"); stats.Err() == nil {
		_, _ = fmt.Sscan(stats.Item("Memory", "used_memory"), &s.Memory) // a figure for people
	}
	return s, nil
}

func countRows(ctx context.Context, d *servers.Database) (rows map[string]int64, err error) {
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
		rows[name] = n
	}
	return rows, nil
}

// openTables connects to a database, and says how its tables are listed.
func openTables(d *servers.Database) (db *sql.DB, tables string, err error) {
	if d.Driver == repo.SQLite {
		db, err = sql.Open("sqlite", d.DSN)
		return db, "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'", err
	}
	c, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		return nil, "", err
	}
	c.Passwd = d.Password
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, "", err
	}
	return sql.OpenDB(connector), "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()", nil
}

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
