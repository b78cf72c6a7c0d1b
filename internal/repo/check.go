package repo

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/migrations"
)

// Settings are those of backend.SQL.
func (s *Store) Settings(ctx context.Context) ([]backend.SettingState, error) {
	return s.pool.Settings(ctx)
}

// TryWrites does once what the rights of a replica are for, on every table, in a transaction that is rolled back: a row of
// the stock is inserted, changed and deleted, and of the other tables none is met. The error names the table.
func (s *Store) TryWrites(ctx context.Context) error {
	tx, err := s.pool.BeginTx(ctx, nil)
	if err != nil {
		return s.fault(ctx, "begin", err)
	}
	defer tx.Rollback() // it is what this is for
	goods := -1 - rand.Int64N(1<<62)
	for _, statement := range []string{
		`INSERT INTO tb_goods_stock (goods_id, stock) VALUES (?, 1)`,
		`UPDATE tb_goods_stock SET stock = 0 WHERE goods_id = ?`,
		`DELETE FROM tb_goods_stock WHERE goods_id = ?`,
	} {
		if _, err := tx.ExecContext(ctx, statement, goods); err != nil {
			return s.fault(ctx, "write tb_goods_stock", err)
		}
	}
	if s.sharded { // the tablets have these rights, and a statement without a shard would be for all
		return nil
	}
	columns, err := s.firstColumns()
	if err != nil {
		return err
	}
	for _, table := range slices.Sorted(maps.Keys(columns)) {
		if err := tryTable(ctx, tx, table, columns[table]); err != nil {
			return s.fault(ctx, "write "+table, err)
		}
	}
	return nil
}

// requireTransactions rejects tables that a server has made with another engine, or that were altered.
func (s *Store) requireTransactions(ctx context.Context) error {
	if s.dialect.engines == "" {
		return nil
	}
	columns, err := s.firstColumns()
	if err != nil {
		return err
	}
	var wrong []string
	err = s.each(ctx, s.pool, "read engines", func(scan scanRow) error {
		var table, engine string
		err := scan(&table, &engine)
		wrong = append(wrong, fmt.Sprintf("%s has the engine %s", table, engine))
		return err
	}, fmt.Sprintf(s.dialect.engines, strings.Join(slices.Sorted(maps.Keys(columns)), "', '")))
	if err == nil && len(wrong) > 0 {
		return fmt.Errorf("%s, without transactions: ALTER TABLE … ENGINE = InnoDB", strings.Join(wrong, ", "))
	}
	return err
}

// firstColumns are those of the tables that the migrations make.
func (s *Store) firstColumns() (columns map[string]string, err error) {
	made := regexp.MustCompile(`(?m)^CREATE TABLE (?:IF NOT EXISTS )?(\w+) \(\s+(\w+)`)
	files, err := fs.Glob(migrations.Files, s.dialect.name+"/*.sql")
	if err != nil {
		return nil, err
	}
	columns = make(map[string]string)
	for _, file := range files {
		content, err := migrations.Files.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, found := range made.FindAllSubmatch(content, -1) {
			columns[string(found[1])] = string(found[2])
		}
	}
	return columns, nil
}

// tryTable needs all four rights and meets no row.
func tryTable(ctx context.Context, tx *sql.Tx, table, column string) error {
	for _, statement := range []string{
		`INSERT INTO %[1]s SELECT * FROM %[1]s WHERE 1 = 0`, `UPDATE %[1]s SET %[2]s = %[2]s WHERE 1 = 0`, `DELETE FROM %[1]s WHERE 1 = 0`,
	} {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(statement, table, column)); err != nil {
			return err
		}
	}
	return nil
}
