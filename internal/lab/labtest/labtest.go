// Package labtest gives tests real servers: one of each kind for a test binary,
// started when first asked for, with an empty database for each test.
package labtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9/logging"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
)

// Require names the variable that lists, comma separated, what must be on the
// machine: a test that lacks it fails then, and is skipped otherwise.
const Require = "STOCKDTEST_REQUIRE"

// Lab is the servers of one test binary.
type Lab struct {
	supervisor *servers.Supervisor
	mu         sync.Mutex
	databases  map[string]*servers.Database
	fresh      atomic.Int64
	// What follows is nil until a test asks for it.
	redis     *servers.Redis
	redlock   *servers.Redlock
	galera    *servers.Nodes
	group     *servers.Nodes
	vitess    *servers.Vitess
	zookeeper *servers.ZooKeeper
	etcd      *servers.Etcd
}

// Main runs the tests of a binary with a lab, and returns the exit status. It
// must be the first thing that TestMain calls.
func Main(m *testing.M, into **Lab) int {
	servers.SuperviseIfAsked()
	logging.Disable() // what go-redis would print reaches a test as an error
	k, err := servers.StartSupervisor()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*into = &Lab{supervisor: k, databases: make(map[string]*servers.Database)}
	status := m.Run()
	if err := k.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

// StartSupervisor starts a supervisor that ends with the test.
func StartSupervisor(t testing.TB) *servers.Supervisor {
	t.Helper()
	k := must.Get(servers.StartSupervisor())(t)
	should.Close(t, k)
	return k
}

// Supervisor is the supervisor of the lab, for what a test starts itself.
func (l *Lab) Supervisor() *servers.Supervisor { return l.supervisor }

// EachDatabase runs a test on every kind of database.
func (l *Lab) EachDatabase(t *testing.T, test func(t *testing.T, d *servers.Database)) {
	t.Helper()
	l.each(t, []string{servers.SQLite, servers.MariaDB, servers.MySQL}, test)
}

// EachServer runs a test on every kind of database that is a server.
func (l *Lab) EachServer(t *testing.T, test func(t *testing.T, d *servers.Database)) {
	t.Helper()
	l.each(t, []string{servers.MariaDB, servers.MySQL}, test)
}

func (l *Lab) each(t *testing.T, kinds []string, test func(t *testing.T, d *servers.Database)) {
	t.Helper()
	tested := false
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			tested = true
			test(t, l.Database(t, kind))
		})
	}
	MustMatch(t, tested, fmt.Sprintf("one of %q", kinds))
}

// MustMatch fails a test none of whose sub-tests ran although -run names it: a path that is
// misspelled would pass otherwise.
func MustMatch(t *testing.T, ran bool, path string) {
	t.Helper()
	top, _, _ := strings.Cut(flag.Lookup("test.run").Value.String(), "/")
	if !ran && strings.Trim(top, "^$") == t.Name() {
		t.Errorf("-run matches no sub-test of %s: want %s", t.Name(), path)
	}
}

// Database is an empty database on the lab's server of a kind. A test whose
// server is not on this machine is skipped, or fails where it is required.
func (l *Lab) Database(t *testing.T, kind string) *servers.Database {
	t.Helper()
	if kind == servers.SQLite {
		return &servers.Database{Driver: repo.SQLite, DSN: filepath.Join(t.TempDir(), "stockd.db")}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.databases[kind] == nil {
		l.databases[kind] = l.start(t, kind, "")
	}
	return l.empty(t, l.databases[kind])
}

// OwnDatabase is an empty database on a server with more options than the lab's, which a test may treat as it likes.
func (l *Lab) OwnDatabase(t *testing.T, kind, options string) *servers.Database {
	t.Helper()
	server := l.start(t, kind, options)
	t.Cleanup(func() { should.Do(t, server.Close(context.Background())) })
	return l.empty(t, server)
}

func (l *Lab) start(t *testing.T, kind, options string) *servers.Database {
	t.Helper()
	Need(t, kind, slices.ContainsFunc(servers.LocalDatabases(), func(p servers.Program) bool { return p.Kind == kind }),
		map[string]string{
			servers.MariaDB: "apt-get install mariadb-server brings it",
			servers.MySQL:   "a mysqld on PATH that is no MariaDB is used where there is one",
		}[kind])
	server := must.Get(servers.StartDatabase(t.Context(), l.supervisor, servers.Choice{Mode: servers.Local, Database: kind, Volatile: true, Options: options}))(t)
	return server
}

func (l *Lab) empty(t *testing.T, server *servers.Database) *servers.Database {
	t.Helper()
	db, _ := Connect(t, server)
	defer db.Close() //nolint:errcheck // nothing is lost with it
	name := fmt.Sprintf("test_%d", l.fresh.Add(1))
	must.Get(db.ExecContext(t.Context(), "CREATE DATABASE "+name))(t)
	return must.Get(server.With(func(c *mysql.Config) { c.DBName = name }))(t)
}

// Granted is a database with its schema, as a replica has it with database.migrate: false: its user has the rights on
// it that the documents give, and no others.
func Granted(t *testing.T, d *servers.Database) *servers.Database {
	t.Helper()
	Open(t, d, "owner")
	if d.Driver != repo.MySQL {
		return d
	}
	return Restricted(t, d, backend.SQLRights+" ON %s.*", "EXECUTE ON PROCEDURE %s.stockd_sell")
}

// Connect opens a database server for what no store offers; c is its DSN
// without the password.
func Connect(t *testing.T, d *servers.Database) (db *sql.DB, c *mysql.Config) {
	t.Helper()
	return must.Get(d.Raw())(t), must.Get(mysql.ParseDSN(d.DSN))(t)
}

// ReplicaRights are those that a replica needs.
const ReplicaRights = "SELECT, INSERT, UPDATE, DELETE, EXECUTE ON %s.*"

// Restricted is a database as a user with some rights alone reaches it, and not one that read_only does not bind. In a right
// %s is its name.
func Restricted(t *testing.T, d *servers.Database, rights ...string) *servers.Database {
	t.Helper()
	db, c := Connect(t, d)
	defer db.Close() //nolint:errcheck // nothing is lost with it
	user := rand.Text()
	statements := make([]string, 0, 1+len(rights))
	statements = append(statements, fmt.Sprintf("CREATE USER '%s'@'127.0.0.1' IDENTIFIED BY '%s'", user, d.Password))
	for _, right := range rights {
		statements = append(statements, fmt.Sprintf("GRANT "+right+" TO '%s'@'127.0.0.1'", c.DBName, user))
	}
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	return must.Get(d.With(func(c *mysql.Config) { c.User = user }))(t)
}

// WaitingWriters counts the statements on a server that want to write a stock
// row and have not done it yet.
func WaitingWriters(t *testing.T, d *servers.Database) (n int) {
	t.Helper()
	db, _ := Connect(t, d)
	defer db.Close() //nolint:errcheck // nothing is lost with it
	err := db.QueryRowContext(t.Context(),
		`SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'UPDATE tb_goods_stock%'`).Scan(&n)
	must.Do(t, err)
	return n
}

// AwaitRowWait returns when a transaction waits for a row in a statement like the pattern. It
// fails where what should wait is answered before.
func AwaitRowWait(t *testing.T, d *servers.Database, like string, answered <-chan error) {
	t.Helper()
	db, _ := Connect(t, d)
	defer db.Close() //nolint:errcheck // nothing is lost with it
	const waiting = `SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT' AND trx_query LIKE ?`
	const cached = 150 * time.Millisecond // InnoDB answers the same to those who ask again within 100 ms
	for range 40 {
		var n int
		must.Do(t, db.QueryRowContext(t.Context(), waiting, like).Scan(&n))
		if n > 0 {
			return
		}
		select {
		case err := <-answered:
			t.Fatalf("what was to wait for a row that is kept was answered with %v", err)
		case <-time.After(cached):
		}
	}
	t.Fatalf("no transaction waits in a statement like %s", like)
}

// Open connects to a database, as a replica of that name would, and brings its
// schema up to date.
func Open(t testing.TB, d *servers.Database, replica string) *repo.Store {
	t.Helper()
	store := OpenReady(t, d, replica)
	must.Get(store.MigrateUp(t.Context()))(t)
	return store
}

// OpenReady is Open of a database that has its schema.
func OpenReady(t testing.TB, d *servers.Database, replica string) *repo.Store {
	t.Helper()
	const connections = 8
	store := must.Get(d.Open(t.Context(), replica, connections))(t)
	should.Close(t, store)
	return store
}

// Through is the same database, reached through a proxy.
func Through(t *testing.T, d *servers.Database) (*servers.Database, *servers.Proxy) {
	t.Helper()
	var proxy *servers.Proxy
	through := must.Get(d.With(func(c *mysql.Config) {
		proxy = NewProxy(t, c.Addr)
		c.Addr = proxy.Address
	}))(t)
	return through, proxy
}

// Need skips a test that lacks something, and says how to get it; it fails
// where the thing is required.
func Need(t *testing.T, what string, there bool, how string) {
	t.Helper()
	if there {
		return
	}
	words := fmt.Sprintf("%s is not on this machine; %s", what, how)
	if slices.Contains(strings.Split(os.Getenv(Require), ","), what) {
		t.Fatal(words)
	}
	t.Skip(words)
}

// NewProxy puts a proxy before a target; it is closed with the test.
func NewProxy(t *testing.T, target string) *servers.Proxy {
	t.Helper()
	p := must.Get(servers.NewProxy(target))(t)
	t.Cleanup(p.Close)
	return p
}

// Lose has the next request that contains certain bytes fail. With delivered the
// server gets it and acts, and only its answer is lost.
func Lose(p *servers.Proxy, sent string, delivered bool) *servers.Trigger {
	return LoseNth(p, 1, sent, delivered)
}

// LoseNth is Lose, but for the n-th of these requests.
func LoseNth(p *servers.Proxy, n int, sent string, delivered bool) *servers.Trigger {
	do := servers.Lose
	if delivered {
		do = servers.LoseReply
	}
	return p.Arm(servers.Rule{Sent: sent, Nth: n, Do: do})
}

// reachedWithin is far longer than a request takes on a busy machine.
const reachedWithin = 30 * time.Second

// AwaitReached waits until a request has met a rule, and fails the test where none does: the code
// does not send any more what the rule looks for.
func AwaitReached(t *testing.T, trigger *servers.Trigger) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), reachedWithin)
	defer cancel()
	must.Do(t, trigger.Wait(ctx))
}

// Repeating sends requests to no server: each gets the same answer, for an hour. What goes on asking
// fails then. In a bubble of testing/synctest a socket would stop the clock.
func Repeating(answer string) *http.Client {
	return &http.Client{Transport: repeating{answer, time.Now().Add(time.Hour)}}
}

type repeating struct {
	answer string
	until  time.Time
}

func (r repeating) RoundTrip(*http.Request) (*http.Response, error) {
	if time.Now().After(r.until) {
		return nil, errors.New("it is still asked")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(r.answer))}, nil
}
