package live

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

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
	// mostRows bounds a table.
	mostRows = 20
)

// views ask the servers, on connections of their own.
type views struct {
	backends *servers.Backends
	lenses   map[string]*lens
}

// lens is the way to look at one server.
type lens struct {
	look  func(ctx context.Context, item int64) (View, error)
	close func() error

	mu   sync.Mutex
	item int64
	last View
	at   time.Time
}

func newViews(b *servers.Backends) *views {
	v := &views{backends: b, lenses: make(map[string]*lens)}
	database := &databaseLens{server: b.Database}
	v.lenses["database"] = &lens{look: database.look, close: database.close}
	if b.Redis != nil {
		r := &redisLens{nodes: []*servers.Redis{b.Redis}}
		v.lenses["redis"] = &lens{look: r.look, close: r.close}
	}
	if b.Redlock != nil {
		r := &redisLens{nodes: b.Redlock.Nodes}
		v.lenses["redlock"] = &lens{look: r.look, close: r.close}
	}
	if b.ZooKeeper != nil {
		z := &zooKeeperLens{server: b.ZooKeeper}
		v.lenses["zookeeper"] = &lens{look: z.look, close: z.close}
	}
	if b.Etcd != nil {
		e := &etcdLens{server: b.Etcd}
		v.lenses["etcd"] = &lens{look: e.look, close: e.close}
	}
	return v
}

func (v *views) close() error {
	errs := make([]error, 0, len(v.lenses))
	for _, l := range v.lenses {
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}

// See asks a server what it has of the item on sale; ok tells whether there is such a server.
func (s *Session) See(ctx context.Context, backend string) (view View, ok bool) {
	l := s.views.lenses[backend]
	if l == nil {
		return View{}, false
	}
	s.mu.Lock()
	item := s.item
	s.mu.Unlock()
	return l.see(ctx, item), true
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

// databaseLens looks at the rows of an item, and at the locks that the database lists.
type databaseLens struct {
	server *servers.Database
	pool   *sql.DB
}

func (d *databaseLens) close() error {
	if d.pool == nil {
		return nil
	}
	return d.pool.Close()
}

// query is a table that a database is asked for.
type query struct {
	title, statement string
	args             []any
}

func (d *databaseLens) look(ctx context.Context, item int64) (v View, err error) {
	if d.pool == nil {
		if d.pool, _, err = d.server.Pool(1, time.Second); err != nil {
			return v, err
		}
	}
	name := lockName(item)
	for _, q := range append([]query{
		{"row", "SELECT stock, version, fence, fence_by FROM tb_goods_stock WHERE goods_id = ?", []any{item}},
		{"allocations", "SELECT place, units, epoch FROM tb_stock_place WHERE goods_id = ? ORDER BY place LIMIT 20", []any{item}},
		{"record_lock", "SELECT owner, depth, token, expires_at FROM record_lock WHERE lock_name = ?", []any{[]byte(name)}},
		{"distribute_lock", "SELECT kind, version, owner, expires_at FROM distribute_lock WHERE lock_name = ?", []any{[]byte(name)}},
	}, d.locks()...) {
		table, err := d.table(ctx, q)
		if err != nil {
			return v, err
		}
		if len(table.Rows) > 0 || q.title == "row" || q.title == "transactions" {
			v.Tables = append(v.Tables, table)
		}
	}
	switch {
	case d.server.Driver == repo.SQLite:
		v.Notes = []string{"sqlite"}
	case d.server.Name == "MariaDB":
		v.Notes = []string{"mariadb"}
	}
	return v, nil
}

// locks are the statements for what InnoDB has locked.
func (d *databaseLens) locks() []query {
	const transactions = `SELECT trx_id, trx_state AS state, trx_rows_locked AS rows_locked, trx_query AS query
		FROM information_schema.INNODB_TRX WHERE trx_mysql_thread_id <> CONNECTION_ID() AND trx_id <> 0 ORDER BY trx_state DESC, trx_started LIMIT 20`
	switch {
	case d.server.Driver == repo.SQLite:
		return nil
	case d.server.Name == "MariaDB":
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

func (d *databaseLens) table(ctx context.Context, q query) (Table, error) {
	statement := q.statement
	if d.server.Driver != repo.SQLite {
		statement = strings.ReplaceAll(statement, `"`, "`")
	}
	rows, err := d.pool.QueryContext(ctx, statement, q.args...)
	if err != nil {
		return Table{}, err
	}
	defer rows.Close() //nolint:errcheck // it has been read
	table := Table{Title: q.title, Rows: [][]string{}}
	if table.Head, err = rows.Columns(); err != nil {
		return Table{}, err
	}
	for rows.Next() {
		cells := make([]sql.NullString, len(table.Head))
		into := make([]any, len(cells))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return Table{}, err
		}
		texts := make([]string, len(cells))
		for i, c := range cells {
			texts[i] = printable(c.String)
		}
		table.Rows = append(table.Rows, texts)
	}
	return table, rows.Err()
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

// redisLens looks at the keys of an item, on one server or on several.
type redisLens struct {
	nodes   []*servers.Redis
	clients []*redis.Client
}

func (r *redisLens) close() error {
	errs := make([]error, 0, len(r.clients))
	for _, c := range r.clients {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

func (r *redisLens) look(ctx context.Context, item int64) (v View, err error) {
	if r.clients == nil {
		for _, node := range r.nodes {
			r.clients = append(r.clients, node.Open())
		}
	}
	tables, failed := make([]Table, len(r.clients)), make([]error, len(r.clients))
	var asked sync.WaitGroup
	for i, c := range r.clients {
		asked.Go(func() { tables[i], failed[i] = keys(ctx, c, item) })
	}
	asked.Wait()
	if len(r.clients) == 1 {
		tables[0].Title = "keys"
		return View{Tables: tables}, failed[0]
	}
	for i := range tables {
		tables[i].Title = fmt.Sprintf("redlock-%d", i+1)
		if failed[i] != nil {
			tables[i].Head, tables[i].Rows = []string{"error"}, [][]string{{failed[i].Error()}}
		}
	}
	return View{Tables: tables}, nil
}

// keys are those of an item, with type, value and time to live.
func keys(ctx context.Context, c *redis.Client, item int64) (Table, error) {
	// Names stand escaped in keys; braces keep those of one item in one slot.
	found, err := scan(ctx, c, fmt.Sprintf("*{*%d}*", item))
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
func scan(ctx context.Context, c *redis.Client, pattern string) (found []string, err error) {
	for cursor := uint64(0); ; {
		var some []string
		if some, cursor, err = c.Scan(ctx, cursor, pattern, 500).Result(); err != nil {
			return nil, err
		}
		found = append(found, some...)
		if cursor == 0 || len(found) > mostRows {
			slices.Sort(found)
			return found[:min(len(found), mostRows)], nil
		}
	}
}

func valueOf(ctx context.Context, c *redis.Client, key, kind string) (string, error) {
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

// zooKeeperLens looks at the nodes below the locks of an item.
type zooKeeperLens struct {
	server *servers.ZooKeeper
	conn   *zk.Conn
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func (z *zooKeeperLens) close() error {
	if z.conn != nil {
		z.conn.Close()
	}
	return nil
}

func (z *zooKeeperLens) look(ctx context.Context, item int64) (v View, err error) {
	if z.conn == nil {
		if z.conn, _, err = zk.Connect([]string{z.server.Address}, 10*time.Second, zk.WithLogger(silent{}), zk.WithLogInfo(false)); err != nil {
			return v, err
		}
	}
	type result struct {
		table Table
		err   error
	}
	answered := make(chan result, 1)
	go func() { // the client takes no context
		table, err := nodes(z.conn, item)
		answered <- result{table, err}
	}()
	select {
	case r := <-answered:
		return View{Tables: []Table{r.table}}, r.err
	case <-ctx.Done():
		return v, fmt.Errorf("ZooKeeper does not answer: %w", context.Cause(ctx))
	}
}

// nodes are those of an item below the folder of each kind of lock.
func nodes(conn *zk.Conn, item int64) (Table, error) {
	table := Table{Title: "nodes", Head: []string{"node", "session", "czxid"}, Rows: [][]string{}}
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
		if err := add(conn, &table, folder); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return table, err
		}
	}
	return table, nil
}

// add adds a node and what is below it.
func add(conn *zk.Conn, table *Table, path string) error {
	children, stat, err := conn.Children(path)
	if err != nil || len(table.Rows) >= mostRows {
		return err
	}
	session := ""
	if stat.EphemeralOwner != 0 {
		session = fmt.Sprintf("%#x", stat.EphemeralOwner)
	}
	table.Rows = append(table.Rows, []string{path, session, strconv.FormatInt(stat.Czxid, 10)})
	slices.SortFunc(children, func(a, b string) int { return strings.Compare(a[max(0, len(a)-10):], b[max(0, len(b)-10):]) })
	for _, child := range children {
		if err := add(conn, table, path+"/"+child); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}

// etcdLens looks at the keys of the locks of an item.
type etcdLens struct {
	server *servers.Etcd
	client *clientv3.Client
}

func (e *etcdLens) close() error {
	if e.client == nil {
		return nil
	}
	return e.client.Close()
}

func (e *etcdLens) look(ctx context.Context, item int64) (v View, err error) {
	if e.client == nil {
		if e.client, err = e.server.Open(); err != nil {
			return v, err
		}
	}
	answer, err := e.client.Get(ctx, "stockd/etcd/", clientv3.WithPrefix(), clientv3.WithLimit(mostRows),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return v, err
	}
	table := Table{Title: "keys", Head: []string{"key", "create_revision", "lease", "ttl_s"}, Rows: [][]string{}}
	left := make(map[int64]string)
	for _, kv := range answer.Kvs {
		if !strings.Contains(string(kv.Key), strconv.FormatInt(item, 10)) {
			continue
		}
		if _, known := left[kv.Lease]; !known && kv.Lease != 0 {
			life, err := e.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
			if err != nil {
				return v, err
			}
			left[kv.Lease] = fmt.Sprintf("%d of %d", life.TTL, life.GrantedTTL)
		}
		lease := ""
		if kv.Lease != 0 {
			lease = fmt.Sprintf("%x", kv.Lease)
		}
		table.Rows = append(table.Rows, []string{string(kv.Key), strconv.FormatInt(kv.CreateRevision, 10), lease, left[kv.Lease]})
	}
	return View{Tables: []Table{table}}, nil
}
