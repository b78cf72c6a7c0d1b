package live

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

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

// lookAtRedis looks at the keys of an item, on one server or on several.
func lookAtRedis(ctx context.Context, item int64, clients ...redis.UniversalClient) (View, error) {
	tables, failed := make([]Table, len(clients)), make([]error, len(clients))
	var asked sync.WaitGroup
	for i, c := range clients {
		asked.Go(func() { tables[i], failed[i] = keys(ctx, c, item) })
	}
	asked.Wait()
	if len(clients) == 1 {
		tables[0].Title = "keys"
		return View{Tables: tables}, failed[0]
	}
	all := votes(tables, failed)
	for i := range tables {
		tables[i].Title = fmt.Sprintf("redlock-%d", i+1)
		if failed[i] != nil {
			tables[i].Head, tables[i].Rows = []string{"error"}, [][]string{{failed[i].Error()}}
		}
	}
	return View{Tables: append([]Table{all}, tables...)}, nil
}

// votes shows the masters side by side: which of them has which value of a key.
func votes(masters []Table, failed []error) Table {
	all := Table{Title: "votes", Head: []string{"key", "value"}, Rows: [][]string{}}
	at := make(map[[2]string]int) // the row of a key and its value
	for i, master := range masters {
		all.Head = append(all.Head, strconv.Itoa(i+1))
		for _, row := range master.Rows {
			which := [2]string{row[0], row[2]}
			if _, known := at[which]; !known {
				at[which] = len(all.Rows)
				all.Rows = append(all.Rows, append([]string{row[0], row[2]}, make([]string, len(masters))...))
			}
			all.Rows[at[which]][2+i] = "yes"
		}
	}
	all.Head = append(all.Head, "votes")
	for n, row := range all.Rows {
		count := 0
		for i := range masters {
			switch {
			case row[2+i] != "":
				count++
			case failed[i] != nil:
				row[2+i] = "?"
			default:
				row[2+i] = "no"
			}
		}
		all.Rows[n] = append(row, fmt.Sprintf("%d of %d", count, len(masters)))
	}
	return all
}

// keys are those of an item, with type, value and time to live.
func keys(ctx context.Context, c redis.UniversalClient, item int64) (Table, error) {
	// Names stand escaped in keys; braces keep those of one item in one slot.
	found, err := scan(ctx, c, fmt.Sprintf("*{*[^0-9]%d}*", item))
	if err != nil {
		return Table{}, err
	}
	table := Table{Head: []string{"key", "type", "value", "ttl_ms"}, Rows: [][]string{}}
	for _, key := range found {
		kind, err := c.Type(ctx, key).Result()
		if err != nil {
			return Table{}, err
		}
		value, err := valueOf(ctx, c, key, kind)
		if err != nil {
			return Table{}, err
		}
		ttl, err := c.PTTL(ctx, key).Result()
		if err != nil {
			return Table{}, err
		}
		if kind == "none" {
			continue // it has gone meanwhile
		}
		left := ""
		if ttl > 0 {
			left = strconv.FormatInt(ttl.Milliseconds(), 10)
		}
		table.Rows = append(table.Rows, []string{key, kind, printable(value), left})
	}
	return table, nil
}

// scan lists keys; a Redis of a lab has few.
func scan(ctx context.Context, c redis.UniversalClient, pattern string) (found []string, err error) {
	keys := c.Scan(ctx, 0, pattern, 500).Iterator()
	for len(found) < maxRows && keys.Next(ctx) {
		found = append(found, keys.Val())
	}
	slices.Sort(found)
	return found, keys.Err()
}

func valueOf(ctx context.Context, c redis.UniversalClient, key, kind string) (string, error) {
	const some = 8
	switch kind {
	case "string":
		value, err := c.Get(ctx, key).Result()
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return value, err
	case "hash":
		fields, err := c.HGetAll(ctx, key).Result()
		list := make([]string, 0, len(fields))
		for field, value := range fields {
			list = append(list, field+" = "+value)
		}
		slices.Sort(list)
		return strings.Join(list[:min(len(list), some)], ", "), err
	case "list":
		n, err := c.LLen(ctx, key).Result()
		return fmt.Sprintf("%d entries", n), err
	case "zset":
		members, err := c.ZRange(ctx, key, 0, some-1).Result()
		return strings.Join(members, ", "), err
	case "set":
		n, err := c.SCard(ctx, key).Result()
		return fmt.Sprintf("%d members", n), err
	case "stream":
		n, err := c.XLen(ctx, key).Result()
		return fmt.Sprintf("%d entries", n), err
	default:
		return "", nil
	}
}

// nodesOf looks at the nodes below the locks of an item.
func nodesOf(ctx context.Context, server *servers.ZooKeeper, client *backend.ZooKeeperClient, item int64) (v View, err error) {
	watchers, notes, err := watched(ctx, server)
	if err != nil {
		return v, fmt.Errorf("ZooKeeper does not answer: %w", err)
	}
	link, err := client.Connected(ctx)
	if err != nil {
		return v, err
	}
	table, err := backend.ZKCall(ctx, link, func(conn *zk.Conn) (Table, error) { return nodes(conn, item, watchers) }, nil)
	return View{Tables: []Table{table}, Notes: notes}, err
}

// watched asks a ZooKeeper which sessions watch which nodes. A note says that it does not tell.
func watched(ctx context.Context, server *servers.ZooKeeper) (watchers map[string][]string, notes []string, err error) {
	text, err := server.Ask(ctx, "wchp")
	if strings.Contains(text, "whitelist") {
		notes = []string{"wchp"}
	}
	return watchersOf(text), notes, err
}

// watchersOf reads the answer to wchp: a node, and below it the sessions that watch it.
func watchersOf(text string) map[string][]string {
	sessions := make(map[string][]string)
	node := ""
	for line := range strings.Lines(text) {
		switch session := strings.TrimSpace(line); {
		case strings.HasPrefix(line, "/"):
			node = session
		case node != "" && session != "":
			sessions[node] = append(sessions[node], session)
		}
	}
	return sessions
}

// nodes are those of an item below the folder of each kind of lock.
func nodes(conn *zk.Conn, item int64, watchers map[string][]string) (Table, error) {
	table := Table{Title: "nodes", Head: []string{"node", "session", "watched by", "czxid"}, Rows: [][]string{}}
	kinds, _, err := conn.Children("/stockd")
	if errors.Is(err, zk.ErrNoNode) {
		return table, nil
	}
	if err != nil {
		return table, err
	}
	slices.Sort(kinds)
	for _, kind := range kinds {
		folder := "/stockd/" + kind + "/" + strings.ReplaceAll(lockName(item), "/", "%2F")
		if err := add(conn, &table, folder, watchers); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return table, err
		}
	}
	return table, nil
}

// add adds a node and what is below it.
func add(conn *zk.Conn, table *Table, path string, watchers map[string][]string) error {
	children, stat, err := conn.Children(path)
	if err != nil || len(table.Rows) >= maxRows {
		return err
	}
	session := ""
	if stat.EphemeralOwner != 0 {
		session = fmt.Sprintf("%#x", stat.EphemeralOwner)
	}
	table.Rows = append(table.Rows, []string{path, session, strings.Join(watchers[path], ", "), strconv.FormatInt(stat.Czxid, 10)})
	slices.SortFunc(children, func(a, b string) int { return strings.Compare(a[max(0, len(a)-10):], b[max(0, len(b)-10):]) })
	for _, child := range children {
		if err := add(conn, table, path+"/"+child, watchers); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// lookAtEtcd looks at the keys of the locks of an item.
func lookAtEtcd(ctx context.Context, client *clientv3.Client, item int64) (v View, err error) {
	answer, err := client.Get(ctx, "stockd/etcd/"+url.PathEscape(lockName(item))+"/", clientv3.WithPrefix(), clientv3.WithLimit(maxRows),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return v, err
	}
	table := Table{Title: "keys", Head: []string{"in line", "key", "create_revision", "lease", "ttl_s"}, Rows: [][]string{}}
	left := make(map[int64]string)
	for _, kv := range answer.Kvs {
		if _, known := left[kv.Lease]; !known && kv.Lease != 0 {
			life, err := client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
			if err != nil {
				return v, err
			}
			left[kv.Lease] = fmt.Sprintf("%d of %d", life.TTL, life.GrantedTTL)
		}
		lease := ""
		if kv.Lease != 0 {
			lease = fmt.Sprintf("%x", kv.Lease)
		}
		table.Rows = append(table.Rows, []string{strconv.Itoa(len(table.Rows) + 1), string(kv.Key), strconv.FormatInt(kv.CreateRevision, 10), lease, left[kv.Lease]})
	}
	return View{Tables: []Table{table}, Notes: []string{"etcd"}}, nil
}
