package repo

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"
)

const (
	// poolConnections is the least that OpenPool keeps: a lock that is held on
	// one connection has its holders counted on another.
	poolConnections = 2
	// poolSilence is how long the server bears the silence of a connection of
	// OpenPool.
	poolSilence = 10 * time.Second
	// mostIdle is how long a connection is kept that nobody needs.
	mostIdle = 5 * time.Minute
)

// OpenPool is a pool of its own on the database, with the session settings of
// the store, for those who write SQL themselves: the locks, whose waiters must
// not keep a connection from those who sell. It does not wait for the database.
// It also returns the dialect, MySQL or SQLite.
func OpenPool(o Options) (*sql.DB, string, error) {
	o.MaxOpen = max(o.MaxOpen, poolConnections)
	o.Silence = poolSilence
	d, pool, err := openPool(o)
	if err != nil {
		return nil, "", err
	}
	return pool, d.name, nil
}

func (o Options) openDB(connector driver.Connector) *sql.DB {
	if o.OpenDB == nil {
		return sql.OpenDB(connector)
	}
	return o.OpenDB(connector)
}

func openPool(o Options) (dialect, *sql.DB, error) {
	open, known := map[string]func(Options) (dialect, *sql.DB, error){
		MySQL: openMySQL, SQLite: openSQLite,
	}[o.Driver]
	if !known {
		return dialect{}, nil, fmt.Errorf("open database: driver %q is neither %q nor %q", o.Driver, MySQL, SQLite)
	}
	d, pool, err := open(o)
	if err != nil {
		return dialect{}, nil, fmt.Errorf("open %s: %w", o.Driver, err)
	}
	pool.SetMaxOpenConns(o.MaxOpen)
	pool.SetMaxIdleConns(o.MaxOpen)
	idle := mostIdle
	if o.Silence > 0 {
		idle = min(idle, o.Silence/2) // before the server ends it
	}
	pool.SetConnMaxIdleTime(idle)
	return d, pool, nil
}
