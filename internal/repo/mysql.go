package repo

import (
	"context"
	"database/sql"
	"strings"

	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/backend"
)

// mysqlNoTable is an error number of MySQL and MariaDB.
const mysqlNoTable = 1146

func mysqlDialect() dialect {
	return dialect{
		name: MySQL,
		// VERSION() of a vtgate may be that of a tablet's database.
		version: `SELECT @@version`,
		noTable: func(err error) bool { return backend.IsMySQL(err, mysqlNoTable) },
		// The options, the rights and the tables are looked at before the condition.
		writes: []string{
			`INSERT INTO tb_stock_ledger (goods_id, kind, quantity, request_id, strategy, replica, created_at)
				SELECT goods_id, '', 0, '', '', '', UTC_TIMESTAMP(6) FROM tb_goods_stock WHERE FALSE`,
			`UPDATE tb_goods_stock SET stock = 0 WHERE FALSE`,
		},
		describe: func(version string) string {
			if number, _, ok := strings.Cut(version, "-MariaDB"); ok {
				return "MariaDB " + number
			}
			return "MySQL " + version
		},
		gorm: func(pool *sql.DB) gorm.Dialector {
			// It would ask VERSION(), and write as that database does.
			return gormmysql.New(gormmysql.Config{Conn: pool, SkipInitializeWithVersion: true})
		},
		// The schema has a procedure that reads JSON_TABLE; SKIP LOCKED is as old.
		tooOld: func(version string) bool {
			return !since(version, "MariaDB", "10.6") && !since(version, "MySQL", "8.0")
		},
		// MySQL and what follows it have no INSERT … RETURNING.
		returns:       func(version string) bool { return since(version, "MariaDB", "10.5") },
		readForUpdate: readRow + ` FOR UPDATE`,
		forUpdate:     ` FOR UPDATE`,
		byItem:        ` FORCE INDEX (uk_goods)`,
		skipLocked:    ` FOR UPDATE SKIP LOCKED`,
		// LAST_INSERT_ID(x) brings x back with the answer: no second statement
		// is needed to learn what is left.
		subtractIfEnough: `UPDATE tb_goods_stock SET stock = LAST_INSERT_ID(stock - ?), ` + bySale + `
			WHERE goods_id = ? AND stock >= ? AND per_user = ?`,
		readSettled: `SELECT upto, seen, seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AS old
			FROM tb_ledger_settled WHERE id = 1 FOR UPDATE`,
		onUser: ` ON DUPLICATE KEY UPDATE units = units + VALUES(units),
			allowed = IF(VALUES(allowed) > 0, GREATEST(allowed, units), allowed), kept = kept + VALUES(kept), returned = returned + VALUES(returned)`,
		userBytes:  `CAST(user_id AS BINARY)`,
		columnTime: "2006-01-02 15:04:05.000000",
		now:        `UTC_TIMESTAMP(6)`,
		until:      `UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`,
		// The rows themselves are locked: one whose other indexes are not written
		// yet stands in no other.
		byID:     `FORCE INDEX (PRIMARY)`,
		lockRead: ` LOCK IN SHARE MODE`,
		onTotal: ` ON DUPLICATE KEY UPDATE restocked = restocked + VALUES(restocked), corrected = corrected + VALUES(corrected),
			sold = sold + VALUES(sold), orders = orders + VALUES(orders),
			held = held + VALUES(held), returned = returned + VALUES(returned)`,
		// A server that is no node of a cluster lacks the variables, or has them at another value.
		clusters: `SHOW GLOBAL VARIABLES WHERE Variable_name = 'wsrep_on' AND Value = 'ON'
			OR Variable_name = 'group_replication_single_primary_mode' AND Value = 'OFF'`,
		keyspace: `SELECT COALESCE(DATABASE(), '')`,
		sharded:  `SHOW VSCHEMA KEYSPACES`,
		shards:   `SHOW VITESS_SHARDS`,
		engines: `SELECT table_name, engine FROM information_schema.tables
			WHERE table_schema = DATABASE() AND engine <> 'InnoDB' AND table_name IN ('%s') ORDER BY table_name`,
		conflicted: backend.IsGroupConflict,
		member:     backend.IsMember,
		change:     changeByInsertID,
	}
}

// since tells whether a server that has described itself is one of a name, of a version or a
// later one.
func since(version, name, least string) bool {
	number, ok := strings.CutPrefix(version, name+" ")
	return ok && backend.IsSince(number, least)
}

func changeByInsertID(ctx context.Context, conn gorm.ConnPool, statement string, args ...any) (left, rows int64, err error) {
	result, err := conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, 0, err
	}
	if rows, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	left, err = result.LastInsertId()
	return left, rows, err
}
