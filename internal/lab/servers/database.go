package servers

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/repo"
)

// The databases that can be chosen.
const (
	SQLite  = "sqlite"
	MariaDB = "mariadb"
	MySQL   = "mysql"
	// OnVitess is two shards of Vitess, on one of the servers.
	OnVitess = "vitess"
)

// Database is one that runs, and how to reach it. A copy of it with another DSN
// reaches the same server.
type Database struct {
	Info
	// Driver, DSN and Password are what backend.SQLOptions and the configuration of
	// a replica take.
	Driver, DSN, Password string

	runner   // nil where it is embedded
	security *Security
}

// StartDatabase starts the database of a choice, or the first that is found.
func StartDatabase(ctx context.Context, k *Supervisor, c Choice) (*Database, error) {
	switch {
	case c.Database == SQLite, c.Database == "" && c.Mode == Embedded:
		return embeddedDatabase(ctx, k)
	case c.Mode == Embedded:
		return nil, fmt.Errorf("%s has no embedded form", c.Database)
	case c.Database == OnVitess:
		v, err := StartVitess(ctx, k, VitessOptions{Shards: []string{"-80", "80-"}})
		if err != nil {
			return nil, err
		}
		return v.Database, nil
	}
	if p, ok := localDatabase(c.Database); ok {
		p.volatile, p.options = c.Volatile, strings.Fields(c.Options)
		return p.start(ctx, k, c.Security)
	}
	if c.Mode == Auto && c.Database == "" {
		return embeddedDatabase(ctx, k)
	}
	return nil, &MissingError{What: fmt.Sprintf("mariadbd or mysqld: %v", ErrNotFound), How: "apt-get install mariadb-server brings one"}
}

// localDatabase is a database server of this machine: of a kind, or of any where that is empty.
func localDatabase(kind string) (p Program, ok bool) {
	for _, one := range LocalDatabases() {
		if kind == "" || one.Kind == kind {
			return one, true
		}
	}
	return Program{}, false
}

func embeddedDatabase(ctx context.Context, k *Supervisor) (*Database, error) {
	folder, err := os.MkdirTemp(k.Folder(), "sqlite-")
	if err != nil {
		return nil, err
	}
	d := &Database{Info: Info{Name: "SQLite", Started: Embedded}, Driver: repo.SQLite, DSN: filepath.Join(folder, "stockd.db")}
	return d, d.readVersion(ctx)
}

// Program is a database server found on this machine.
type Program struct {
	// Kind is MariaDB or MySQL.
	Kind string
	Path string

	volatile bool
	options  []string
	user     string   // whom it runs as; empty: as this process
	clients  []string // where clients come from that are not on this machine
}

// LocalDatabases lists the database servers of this machine, one a kind.
func LocalDatabases() []Program {
	var found []Program
	for _, name := range []string{"mariadbd", "mysqld"} {
		path, err := Find(name)
		if err != nil {
			continue
		}
		p := Program{Kind: MySQL, Path: path}
		// Distributions install MariaDB under MySQL's name, too.
		version, err := exec.Command(path, "--no-defaults", "--version").Output()
		if err != nil {
			continue
		}
		if strings.Contains(string(version), "MariaDB") {
			p.Kind = MariaDB
			if _, err := installer(); err != nil {
				continue // it cannot make its tables
			}
		}
		if !slices.ContainsFunc(found, func(f Program) bool { return f.Kind == p.Kind }) {
			found = append(found, p)
		}
	}
	return found
}

// installer makes the tables of a MariaDB.
func installer() (string, error) { return Find("mariadb-install-db", "mysql_install_db") }

func (p Program) start(ctx context.Context, k *Supervisor, security *Security) (*Database, error) {
	d := &Database{Info: Info{Started: Local}, Driver: repo.MySQL, Password: rand.Text(), security: security}
	server, err := newServer(k, Spec{
		Name: p.Kind, Program: p.Path,
		Configure: func(folder string, port int) ([]string, []string, error) {
			c := mysql.NewConfig()
			c.User, c.Net, c.Addr, c.DBName = "stockd", "tcp", Loopback(port), "stockd"
			d.DSN = c.FormatDSN()
			return append(p.arguments(folder, port, security), initFile(folder)), nil, nil
		},
		Ready: func(ctx context.Context, _ int) error { return d.readVersion(ctx) },
	})
	if err != nil {
		return nil, err
	}
	if err := p.initialize(ctx, server, d.Password, security); err != nil {
		return nil, err
	}
	d.runner = server
	return d, server.start(ctx)
}

func (p Program) initialize(ctx context.Context, s *Server, password string, security *Security) error {
	folder := s.spec.Folder
	if err := os.WriteFile(filepath.Join(folder, "users.sql"), []byte(p.users(password, security)), 0o600); err != nil {
		return err
	}
	command := Command{
		Path: p.Path, Env: os.Environ(), Log: filepath.Join(folder, "initialize.log"),
		Args: append(p.commonArguments(folder), "--initialize-insecure"),
	}
	if p.Kind == MariaDB {
		script, err := installer()
		if err != nil {
			return fmt.Errorf("initialize %s: %w", p.Kind, err)
		}
		command.Path = script
		command.Args = append(p.commonArguments(folder), "--skip-test-db", "--auth-root-authentication-method=normal")
	}
	process, err := s.supervisor.Run(ctx, command)
	if err != nil {
		return fmt.Errorf("initialize %s: %w", p.Kind, err)
	}
	select {
	case <-process.Done():
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("initialize %s: %w", p.Kind, context.Cause(ctx)), process.Kill(context.WithoutCancel(ctx)))
	}
	if process.State() != "exit status 0" {
		return fmt.Errorf("initialize %s: %s; the end of its log:\n%s", p.Kind, process.State(), logTail(command.Log))
	}
	return nil
}

// initFile has a server make its users when it starts.
func initFile(folder string) string { return "--init-file=" + filepath.Join(folder, "users.sql") }

func (p Program) commonArguments(folder string) []string {
	name := p.user
	if me, err := user.Current(); err == nil && name == "" {
		name = me.Username
	}
	// A server that starts removes temporary tables from its temporary folder, also
	// those of another server that runs there.
	return append([]string{"--no-defaults", "--datadir=" + filepath.Join(folder, "data"), "--tmpdir=" + folder, "--user=" + name}, p.options...)
}

func (p Program) arguments(folder string, port int, security *Security) []string {
	args := append(p.commonArguments(folder),
		"--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", port),
		"--socket="+filepath.Join(folder, "s.sock"), "--pid-file="+filepath.Join(folder, "pid"),
		"--skip-name-resolve", "--max-connections=1000")
	if p.Kind == MySQL {
		args = append(args, "--mysqlx=OFF")
	}
	if p.volatile {
		args = append(args, "--innodb-flush-log-at-trx-commit=2", "--innodb-flush-method=nosync", "--sync-binlog=0")
	}
	if security != nil {
		args = append(args, "--require-secure-transport=ON", "--ssl-ca="+security.Authority.CAFile,
			"--ssl-cert="+security.own.CertFile, "--ssl-key="+security.own.KeyFile)
	}
	return args
}

// users makes one user with a random password, for connections by TCP and those that
// a server takes for local, and removes those without a password.
func (p Program) users(password string, security *Security) string {
	var b strings.Builder
	require := ""
	if security != nil && security.ClientCerts {
		require = " REQUIRE X509"
	}
	b.WriteString("CREATE DATABASE IF NOT EXISTS stockd;\n")
	for _, host := range append([]string{"127.0.0.1", "localhost"}, p.clients...) {
		fmt.Fprintf(&b, "DROP USER IF EXISTS ''@'%s';\n", host)
		fmt.Fprintf(&b, "CREATE USER IF NOT EXISTS 'stockd'@'%s' IDENTIFIED BY '%s'%s;\n", host, password, require)
		fmt.Fprintf(&b, "GRANT ALL ON *.* TO 'stockd'@'%s' WITH GRANT OPTION;\n", host)
	}
	b.WriteString("DROP USER IF EXISTS 'root'@'127.0.0.1', 'root'@'::1', 'root'@'localhost';\n")
	return b.String()
}

func (d *Database) readVersion(ctx context.Context) error {
	store, err := d.Open(ctx, "lab", 1)
	if err != nil {
		return err
	}
	d.Name, d.Version, _ = strings.Cut(store.Version(), " ")
	return store.Close()
}

// The limits of a store of the lab.
const (
	lockWait       = 5 * time.Second
	connectTimeout = 3 * time.Second
)

// Open connects to the database as a replica of that name would.
func (d *Database) Open(ctx context.Context, replica string, maxOpen int) (*repo.Store, error) {
	encryption, err := d.security.ClientConfig()
	if err != nil {
		return nil, err
	}
	return repo.Open(ctx, backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, TLS: encryption, MaxOpen: maxOpen,
		LockWait: lockWait, ConnectTimeout: connectTimeout,
	}, repo.Options{Replica: replica})
}

// Pool connects to the database for what no store offers. Statements wait for a lock for a
// second, the shortest time that MySQL has.
func (d *Database) Pool(maxOpen int, connect time.Duration) (pool *sql.DB, dialect string, err error) {
	return backend.OpenPool(d.options(maxOpen, connect))
}

func (d *Database) options(maxOpen int, connect time.Duration) backend.SQLOptions {
	return backend.SQLOptions{Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: maxOpen, LockWait: time.Second, ConnectTimeout: connect}
}

// With is the database as it is reached otherwise: as another user, by another address, or another one on the same server.
func (d *Database) With(change func(*mysql.Config)) (*Database, error) {
	c, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		return nil, err
	}
	change(c)
	other := *d
	other.DSN = c.FormatDSN()
	return &other, nil
}

// Raw connects to a database that is a server by its driver alone.
func (d *Database) Raw() (*sql.DB, error) {
	c, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		return nil, err
	}
	c.Passwd, c.Logger = d.Password, new(mysql.NopLogger) // an error says the same
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// Rows are what a statement finds, as texts; NULL is an empty one.
func Rows(ctx context.Context, db *sql.DB, statement string, args ...any) (columns []string, list [][]string, err error) {
	rows, err := db.QueryContext(ctx, statement, args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close() //nolint:errcheck // Err tells what is wrong
	if columns, err = rows.Columns(); err != nil {
		return nil, nil, err
	}
	for rows.Next() {
		cells, into, row := make([]sql.NullString, len(columns)), make([]any, len(columns)), make([]string, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, nil, err
		}
		for i, c := range cells {
			row[i] = c.String
		}
		list = append(list, row)
	}
	return columns, list, rows.Err()
}

// Env is the configuration of a replica of stockd that uses the database.
func (d *Database) Env() []string {
	return append([]string{
		"STOCKD_DATABASE_DRIVER=" + d.Driver,
		"STOCKD_DATABASE_DSN=" + d.DSN,
		"STOCKD_DATABASE_PASSWORD=" + d.Password,
	}, d.security.env("database")...)
}
