package live

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
)

// View is what a server says of itself.
type View struct {
	At Millis `json:"at"`
	// Error is why it says nothing.
	Error  string  `json:"error,omitempty"`
	Tables []Table `json:"tables"`
	// Notes are the names of what this server cannot tell; the page has the words.
	Notes []string `json:"notes"`
}

// Table is a part of a view.
type Table struct {
	// Title is a name that the page has words for.
	Title string     `json:"title"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
}

const (
	// viewFor is how long a view is shared: each server is asked a few times a second at
	// most, however many pages are open.
	viewFor    = 200 * time.Millisecond
	viewWithin = 1500 * time.Millisecond
	// maxRows bounds a table.
	maxRows = 20
)

// lens is the way to look at one server, on connections of its own.
type lens struct {
	look    func(ctx context.Context, item int64) (View, error)
	clients *backend.Clients // nil: it has no connection

	mu   sync.Mutex
	item int64
	last View
	at   time.Time
}

// lensOf looks at a server of our own. Its first look connects.
func lensOf(b *servers.Backends, name string) (*lens, error) {
	clients, err := b.Conn(name).AsAdmin().Connect(servers.Limits{Session: 10 * time.Second, Timeout: 3 * time.Second, Pool: 1})
	if err != nil {
		return nil, err
	}
	look := map[string]func(context.Context, int64) (View, error){
		"database": func(ctx context.Context, item int64) (View, error) { return rowsOf(ctx, b.Database, clients.DB, item) },
		"redis":    func(ctx context.Context, item int64) (View, error) { return lookAtRedis(ctx, item, clients.Redis) },
		"redlock":  func(ctx context.Context, item int64) (View, error) { return lookAtRedis(ctx, item, clients.Redlock...) },
		"zookeeper": func(ctx context.Context, item int64) (View, error) {
			return nodesOf(ctx, b.ZooKeeper, clients.ZooKeeper, item)
		},
		"etcd": func(ctx context.Context, item int64) (View, error) { return lookAtEtcd(ctx, clients.Etcd, item) },
	}
	return &lens{look: look[name], clients: clients}, nil
}

func (l *lens) close() error {
	if l.clients == nil {
		return nil
	}
	return l.clients.Close()
}

// See asks a server what it has of the item on sale.
func (s *Session) See(ctx context.Context, backend string) (View, error) {
	l := s.lenses[backend]
	if l == nil {
		return View{}, fmt.Errorf("a server %q: %w", backend, fs.ErrNotExist)
	}
	s.mu.Lock()
	item := s.item
	s.mu.Unlock()
	return l.see(ctx, item), nil
}

// see asks one question at a time.
func (l *lens) see(ctx context.Context, item int64) View {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.item == item && time.Since(l.at) < viewFor {
		return l.last
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), viewWithin) // the answer is shared
	defer cancel()
	view, err := l.look(ctx, item)
	if err != nil {
		view = View{Error: err.Error()}
	}
	view.At = millis(time.Now())
	if view.Tables == nil {
		view.Tables = []Table{}
	}
	if view.Notes == nil {
		view.Notes = []string{}
	}
	l.item, l.last, l.at = item, view, time.Now()
	return view
}

// printable is a text without what is none, and not too long for a table.
func printable(text string) string {
	const most = 80
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

// lockName is what locks call an item.
func lockName(item int64) string { return "goods/" + strconv.FormatInt(item, 10) }

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
