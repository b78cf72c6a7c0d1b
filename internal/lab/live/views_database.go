package live

import (
	"context"
	"database/sql"
	"strings"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
)

// query is a table that a database is asked for.
type query struct {
	title, statement string
	args             []any
}

// rowsOf looks at the rows of an item, and at the locks that the database lists.
func rowsOf(ctx context.Context, server *servers.Database, pool *sql.DB, item int64) (v View, err error) {
	name := lockName(item)
	for _, q := range append([]query{
		{"row", "SELECT stock, version, fence, fence_by FROM tb_goods_stock WHERE goods_id = ?", []any{item}},
		{"allocations", "SELECT place, units, epoch FROM tb_stock_place WHERE goods_id = ? ORDER BY place LIMIT 20", []any{item}},
		{"record_lock", "SELECT owner, depth, token, expires_at FROM record_lock WHERE lock_name = ?", []any{[]byte(name)}},
		{"distribute_lock", "SELECT kind, version, owner, expires_at FROM distribute_lock WHERE lock_name = ?", []any{[]byte(name)}},
	}, innoDBLocks(server)...) {
		table, err := q.table(ctx, server, pool)
		if err != nil {
			return v, err
		}
		if len(table.Rows) > 0 || q.title == "row" || q.title == "transactions" {
			v.Tables = append(v.Tables, table)
		}
	}
	switch {
	case server.Driver == repo.SQLite:
		v.Notes = []string{"sqlite"}
	case server.Name == "MariaDB":
		v.Notes = []string{"mariadb"}
	}
	return v, nil
}

// innoDBLocks are the statements for what InnoDB has locked.
func innoDBLocks(server *servers.Database) []query {
	const transactions = `SELECT trx_id, trx_state AS state, trx_rows_locked AS rows_locked, trx_query AS query
		FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_id <> 0 ORDER BY trx_state DESC, trx_started LIMIT 20`
	switch {
	case server.Driver == repo.SQLite:
		return nil
	case server.Name == "MariaDB":
		return []query{
			{title: "transactions", statement: transactions},
			{title: "locks", statement: `SELECT l.lock_trx_id AS trx_id, l.lock_mode AS mode, l.lock_type AS type, l.lock_table AS "table", l.lock_index AS "index", l.lock_data AS data,
				CASE WHEN w.requesting_trx_id IS NULL THEN 'holds' ELSE 'waits' END AS state
				FROM information_schema.INNODB_LOCKS AS l LEFT JOIN
				(SELECT DISTINCT requesting_trx_id FROM information_schema.INNODB_LOCK_WAITS) AS w ON w.requesting_trx_id = l.lock_trx_id
				ORDER BY state LIMIT 20`},
		}
	default:
		return []query{
			{title: "transactions", statement: transactions},
			{title: "locks", statement: `SELECT engine_transaction_id AS trx_id, lock_mode AS mode, lock_type AS type, object_name AS "table", index_name AS "index", lock_data AS data, lock_status AS state
				FROM performance_schema.data_locks ORDER BY lock_status LIMIT 20`},
		}
	}
}

func (q query) table(ctx context.Context, server *servers.Database, pool *sql.DB) (Table, error) {
	statement := q.statement
	if server.Driver != repo.SQLite {
		statement = strings.ReplaceAll(statement, `"`, "`")
	}
	head, rows, err := servers.Rows(ctx, pool, statement, q.args...)
	table := Table{Title: q.title, Head: head, Rows: make([][]string, len(rows))}
	for i, row := range rows {
		for _, cell := range row {
			table.Rows[i] = append(table.Rows[i], printable(cell))
		}
	}
	return table, err
}
