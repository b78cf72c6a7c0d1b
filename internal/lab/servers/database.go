package servers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
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
)

// Database is one that runs, and how to reach it.
type Database struct {
	Info
	// Driver, DSN and Password are what backend.SQLOptions and the configuration of
	// a replica take.
	Driver, DSN, Password string

	server   *sqlServer // nil where it is embedded
	security *Security
}

// StartDatabase starts the database of a choice, or the first that is found.
func StartDatabase(ctx context.Context, k *Supervisor, c Choice) (*Database, error) {
	switch {
	case c.Database == SQLite, c.Database == "" && c.Mode == Embedded:
		return embeddedDatabase(ctx, k)
	case c.Mode == Embedded:
		return nil, fmt.Errorf("%s has no embedded form", c.Database)
	}
	found := LocalDatabases()
	i := slices.IndexFunc(found, func(p Program) bool { return c.Database == "" || p.Kind == c.Database })
	if i >= 0 {
		return found[i].start(ctx, k, nil)
	}
	if c.Mode == Auto && c.Database == "" {
		return embeddedDatabase(ctx, k)
	}
	return nil, fmt.Errorf("mariadbd or mysqld: %w; apt-get install mariadb-server brings one", ErrNotFound)
}

// StartSecureDatabase starts a database server of a kind that takes TLS only.
func StartSecureDatabase(ctx context.Context, k *Supervisor, kind string, s *Security) (*Database, error) {
	found := LocalDatabases()
	i := slices.IndexFunc(found, func(p Program) bool { return p.Kind == kind })
	if i < 0 {
		return nil, &MissingError{What: fmt.Sprintf("%s: %v", kind, ErrNotFound), How: "apt-get install mariadb-server brings one"}
	}
	return found[i].start(ctx, k, s)
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
		}
		if !slices.ContainsFunc(found, func(f Program) bool { return f.Kind == p.Kind }) {
			found = append(found, p)
		}
	}
	return found
}

// portTries bounds how often a server is started whose port somebody else took
// between our finding it and its binding it.
const portTries = 3

func (p Program) start(ctx context.Context, k *Supervisor, security *Security) (*Database, error) {
	folder, err := os.MkdirTemp(k.Folder(), p.Kind+"-")
	if err != nil {
		return nil, err
	}
	s := &sqlServer{Program: p, supervisor: k, folder: folder, password: rand.Text(), security: security}
	if err := s.initialize(ctx); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		if s.port, err = FreePort(); err != nil {
			return nil, err
		}
		d, err := s.run(ctx)
		if err == nil || try == portTries || !strings.Contains(err.Error(), "already in use") {
			return d, err
		}
	}
}

// sqlServer is a private mariadbd or mysqld.
type sqlServer struct {
	Program
	supervisor *Supervisor
	folder     string
	password   string
	port       int
	process    *Process
	security   *Security
}

func (s *sqlServer) data() string            { return filepath.Join(s.folder, "data") }
func (s *sqlServer) file(name string) string { return filepath.Join(s.folder, name) }

// initialize makes the data folder.
func (s *sqlServer) initialize(ctx context.Context) error {
	if err := os.WriteFile(s.file("users.sql"), []byte(s.users()), 0o600); err != nil {
		return err
	}
	command := Command{
		Path: s.Path, Env: os.Environ(), Log: s.file("initialize.log"),
		Args: append(s.common(), "--initialize-insecure"),
	}
	if s.Kind == MariaDB {
		script, err := Find("mariadb-install-db", "mysql_install_db")
		if err != nil {
			return fmt.Errorf("initialize %s: %w", s.Kind, err)
		}
		command.Path = script
		command.Args = append(s.common(), "--skip-test-db", "--auth-root-authentication-method=normal")
	}
	process, err := s.supervisor.Run(ctx, command)
	if err != nil {
		return fmt.Errorf("initialize %s: %w", s.Kind, err)
	}
	select {
	case <-process.Done():
	case <-ctx.Done():
		return fmt.Errorf("initialize %s: %w", s.Kind, context.Cause(ctx))
	}
	if process.State() != "exit status 0" {
		return fmt.Errorf("initialize %s: %s; the end of its log:\n%s", s.Kind, process.State(), LogTail(command.Log, 15))
	}
	return nil
}

func (s *sqlServer) common() []string {
	// A server that starts removes the temporary tables of its folder for them,
	// those of a server that runs there as well.
	args := []string{"--no-defaults", "--datadir=" + s.data(), "--tmpdir=" + s.folder}
	if me, err := user.Current(); err == nil {
		args = append(args, "--user="+me.Username)
	}
	return args
}

// users makes one user with a password nobody knows, for those connections
// that come by TCP and those that a server takes for local, and removes those
// that need no password.
func (s *sqlServer) users() string {
	var b strings.Builder
	require := ""
	if s.security != nil && s.security.ClientCerts {
		require = " REQUIRE X509"
	}
	b.WriteString("CREATE DATABASE IF NOT EXISTS stockd;\n")
	for _, host := range []string{"127.0.0.1", "localhost"} {
		fmt.Fprintf(&b, "DROP USER IF EXISTS ''@'%s';\n", host)
		fmt.Fprintf(&b, "CREATE USER IF NOT EXISTS 'stockd'@'%s' IDENTIFIED BY '%s'%s;\n", host, s.password, require)
		fmt.Fprintf(&b, "GRANT ALL ON *.* TO 'stockd'@'%s' WITH GRANT OPTION;\n", host)
	}
	b.WriteString("DROP USER IF EXISTS 'root'@'127.0.0.1', 'root'@'::1', 'root'@'localhost';\n")
	return b.String()
}

// run starts the server on its port and its data.
func (s *sqlServer) run(ctx context.Context) (*Database, error) {
	log := s.file("server.log")
	args := append(s.common(),
		"--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", s.port),
		"--socket="+s.file("s.sock"), "--pid-file="+s.file("pid"),
		"--init-file="+s.file("users.sql"), "--skip-name-resolve", "--max-connections=1000")
	if s.Kind == MySQL {
		args = append(args, "--mysqlx=OFF")
	}
	if s.security != nil {
		args = append(args, "--require-secure-transport=ON", "--ssl-ca="+s.security.Authority.CAFile,
			"--ssl-cert="+s.security.own.CertFile, "--ssl-key="+s.security.own.KeyFile)
	}
	process, err := s.supervisor.Run(ctx, Command{Path: s.Path, Args: args, Env: os.Environ(), Log: log})
	if err != nil {
		return nil, err
	}
	s.process = process
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "stockd", "tcp", Loopback(s.port), "stockd"
	d := &Database{Driver: repo.MySQL, DSN: c.FormatDSN(), Password: s.password, Info: Info{Started: Local}, server: s, security: s.security}
	return d, Await(ctx, s.Kind, process, log, d.readVersion)
}

// Kill ends the server without a warning.
func (d *Database) Kill(ctx context.Context) error {
	if err := d.server.process.Signal(ctx, syscall.SIGKILL); err != nil {
		return err
	}
	<-d.server.process.Done()
	return nil
}

// Pause stops the server where it stands: its connections stay, and nothing is
// answered on them.
func (d *Database) Pause(ctx context.Context) error { return d.server.process.Pause(ctx) }

// Resume lets a paused server go on.
func (d *Database) Resume(ctx context.Context) error { return d.server.process.Resume(ctx) }

// Restart starts the server again, on the port and the data that it had.
func (d *Database) Restart(ctx context.Context) error {
	_, err := d.server.run(ctx)
	return err
}

// readVersion asks the database what it is.
func (d *Database) readVersion(ctx context.Context) error {
	store, err := d.Open(ctx, "lab", 1)
	if err != nil {
		return err
	}
	described, err := store.Version(ctx)
	if err := errors.Join(err, store.Close()); err != nil {
		return err
	}
	d.Name, d.Version, _ = strings.Cut(described, " ")
	return nil
}

// The limits of a store that looks at a database of the lab.
const (
	lockWait       = 5 * time.Second
	connectTimeout = 3 * time.Second
)

// Open connects to the database as a replica of that name would.
func (d *Database) Open(ctx context.Context, replica string, maxOpen int) (*repo.Store, error) {
	encryption, err := d.security.config()
	if err != nil {
		return nil, err
	}
	return repo.Open(ctx, backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, TLS: encryption, MaxOpen: maxOpen,
		LockWait: lockWait, ConnectTimeout: connectTimeout,
	}, repo.Options{Replica: replica})
}

// Env is what a replica has to be told to use the database.
func (d *Database) Env() []string {
	return append([]string{
		"STOCKD_DATABASE_DRIVER=" + d.Driver,
		"STOCKD_DATABASE_DSN=" + d.DSN,
		"STOCKD_DATABASE_PASSWORD=" + d.Password,
	}, d.security.env("database")...)
}
