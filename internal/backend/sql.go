package backend

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"sync/atomic"
	"time"
)

// SQLite is the dialect of a database in a file; the other one is MySQL.
const SQLite = "sqlite"

// SQLOptions say which database to open, and how.
type SQLOptions struct {
	// Driver is MySQL or SQLite.
	Driver string
	// DSN is a go-sql-driver DSN, or the path of a SQLite file.
	DSN string
	// Password replaces the DSN's, where it is set.
	Password string
	// TLS encrypts the connections to MySQL; nil leaves them plain.
	TLS *tls.Config
	// MaxOpen bounds the connections of this process, at least 1.
	MaxOpen int
	// LockWait bounds the wait for a row lock; MySQL rounds it up to seconds.
	LockWait time.Duration
	// ConnectTimeout bounds the making of one connection.
	ConnectTimeout time.Duration
	// TxTimeout is the longest transaction, and the longest statement whose context has
	// no deadline; at least as long as a purchase. No transaction commits later, which
	// the running totals rely on: all replicas must have the same. 0: 10 s.
	TxTimeout time.Duration
	// Silence is the wait_timeout of MySQL, in whole seconds: it rolls back the
	// transaction of a replica that was stopped, or has lost its network. It is longer
	// than any purchase. 0, or wait_timeout in the DSN, leaves it to the server.
	Silence time.Duration
	// OpenDB makes the pool of a connector; nil: sql.OpenDB.
	OpenDB func(driver.Connector) *sql.DB
}

// SQL is a pool of connections to one database. It may be used from any number of
// goroutines. It connects when it is first used.
type SQL struct {
	*sql.DB

	// Dialect is MySQL or SQLite.
	Dialect string
	// TxTimeout is that of the options.
	TxTimeout time.Duration

	heard      *atomic.Int64 // when the server has answered last, in ns since 1970; nil where it is a file
	lockSchema func(context.Context) (unlock func() error, err error)
	settings   func(context.Context) ([]SettingState, error)
}

// longestSilence is how long a server may answer nothing before it is thought to hang.
const longestSilence = time.Second

// Silent reports that the server has answered nothing for a second: where all connections are in use, it hangs.
func (s *SQL) Silent() bool {
	return s.heard != nil && time.Since(time.Unix(0, s.heard.Load())) > longestSilence
}

// LockSchema waits until this process alone may change the schema, up to a minute, on a
// connection of its own; then the error is stock.ErrBusy. The lock ends with unlock, or
// with the process.
func (s *SQL) LockSchema(ctx context.Context) (unlock func() error, err error) {
	return s.lockSchema(ctx)
}

const (
	// poolConnections is the least that OpenPool keeps: the tokens of a lock that holds
	// one connection are issued on another.
	poolConnections = 2
	// poolSilence is the Silence of OpenPool.
	poolSilence = 10 * time.Second
	// maxIdle is how long an idle connection is kept.
	maxIdle = 5 * time.Minute
	// program is the name of stockd in the lists of connections that servers keep.
	program = "stockd"
)

// OpenPool opens a pool of at least two connections for code with SQL of its own, such as the
// locks: their waiters must not take a connection from the purchases.
func OpenPool(o SQLOptions) (pool *sql.DB, dialect string, err error) {
	o.MaxOpen = max(o.MaxOpen, poolConnections)
	o.Silence = poolSilence
	s, err := OpenSQL(o)
	if err != nil {
		return nil, "", err
	}
	return s.DB, s.Dialect, nil
}

// OpenSQL opens a pool, and does not wait for the database. It fails where the driver is
// not known or the DSN cannot be read.
func OpenSQL(o SQLOptions) (*SQL, error) {
	open, ok := map[string]func(SQLOptions) (*SQL, error){
		string(MySQL): openMySQL, SQLite: openSQLite,
	}[o.Driver]
	if !ok {
		return nil, fmt.Errorf("open database: driver %q is neither %q nor %q", o.Driver, MySQL, SQLite)
	}
	pool, err := open(o)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", o.Driver, err)
	}
	pool.TxTimeout = o.txTimeout()
	pool.SetMaxOpenConns(o.MaxOpen)
	pool.SetMaxIdleConns(o.MaxOpen)
	idle := maxIdle
	if o.Silence > 0 {
		idle = min(idle, o.Silence/2) // before the server ends it
	}
	pool.SetConnMaxIdleTime(idle)
	return pool, nil
}

func (o SQLOptions) txTimeout() time.Duration { return cmp.Or(o.TxTimeout, defaultTxTimeout) }

func (o SQLOptions) openDB(connector driver.Connector) *sql.DB {
	if o.OpenDB == nil {
		return sql.OpenDB(connector)
	}
	return o.OpenDB(connector)
}
