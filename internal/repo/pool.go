package repo

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// poolConnections is the least that OpenPool keeps: a lock that is held on
	// one connection has its holders counted on another.
	poolConnections = 2
	// poolSilence is how long the server bears the silence of a connection of
	// OpenPool. Then it rolls back what a replica has begun that was stopped, or
	// has lost its network, and would keep rows locked for hours otherwise.
	poolSilence = 10 * time.Second
)

// OpenPool is a pool of its own on the database, with the session settings of
// the store, for those who write SQL themselves: the locks, whose waiters must
// not keep a connection from those who sell. It does not wait for the database.
// It also returns the dialect, MySQL or SQLite.
func OpenPool(o Options) (*sql.DB, string, error) {
	o.MaxOpen = max(o.MaxOpen, poolConnections)
	if o.Driver == MySQL {
		c, err := mysql.ParseDSN(o.DSN)
		if err != nil {
			return nil, "", fmt.Errorf("open %s: read DSN: %w", o.Driver, err)
		}
		if c.Params == nil {
			c.Params = make(map[string]string)
		}
		c.Params["wait_timeout"] = strconv.Itoa(wholeSeconds(poolSilence))
		o.DSN = c.FormatDSN()
	}
	d, pool, err := openPool(o)
	if err != nil {
		return nil, "", err
	}
	pool.SetConnMaxIdleTime(poolSilence / 2) // before the server ends it
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
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return d, pool, nil
}
