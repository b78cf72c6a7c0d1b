package repo

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	gormsqlite "github.com/glebarez/sqlite"
	"gorm.io/gorm"
)

func sqliteDialect() dialect {
	return dialect{
		name:    SQLite,
		version: `SELECT sqlite_version()`,
		// Its code is that of any mistake in SQL.
		noTable:  func(err error) bool { return strings.Contains(err.Error(), "no such table") },
		describe: func(version string) string { return "SQLite " + version },
		gorm: func(pool *sql.DB) gorm.Dialector {
			return gormsqlite.Dialector{Conn: pool}
		},
		tooOld:    func(string) bool { return false },
		returns:   func(string) bool { return true },
		oneWriter: true,
		// There are no row locks: every transaction takes the lock of the whole
		// database when it begins (_txlock=immediate).
		readForUpdate: readRow,
		subtractIfEnough: `UPDATE tb_goods_stock SET stock = stock - ?, ` + bySale + `
			WHERE goods_id = ? AND stock >= ? AND per_user = ? RETURNING stock`,
		// While a transaction runs there is no other: what it sees is all there is.
		readSettled: `SELECT upto, seen, ? >= 0 AS old FROM tb_ledger_settled WHERE id = 1`,
		onUser: ` ON CONFLICT (goods_id, user_id) DO UPDATE SET units = units + excluded.units,
			allowed = CASE WHEN excluded.allowed > 0 THEN MAX(allowed, units + excluded.units) ELSE allowed END,
			kept = kept + excluded.kept, returned = returned + excluded.returned`,
		userBytes:  `user_id`,
		columnTime: "2006-01-02 15:04:05.000", // compared with the next two as text
		now:        `strftime('%Y-%m-%d %H:%M:%f', 'now')`,
		until:      `strftime('%Y-%m-%d %H:%M:%f', 'now', (? / 1e6) || ' seconds')`,
		onTotal: ` ON CONFLICT (goods_id) DO UPDATE SET restocked = restocked + excluded.restocked, corrected = corrected + excluded.corrected,
			sold = sold + excluded.sold, orders = orders + excluded.orders,
			held = held + excluded.held, returned = returned + excluded.returned`,
		change: changeReturning,
	}
}

func changeReturning(ctx context.Context, conn gorm.ConnPool, statement string, args ...any) (left, rows int64, err error) {
	err = conn.QueryRowContext(ctx, statement, args...).Scan(&left)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, 0, nil
	}
	return left, 1, err
}
