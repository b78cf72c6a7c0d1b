package repo

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	gormmysql "gorm.io/driver/mysql"
	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

func mysqlDialect() dialect {
	return dialect{
		name:    MySQL,
		version: `SELECT VERSION()`,
		describe: func(version string) string {
			if number, _, is := strings.Cut(version, "-MariaDB"); is {
				return "MariaDB " + number
			}
			return "MySQL " + version
		},
		gorm: func(pool *sql.DB) gorm.Dialector {
			return gormmysql.New(gormmysql.Config{Conn: pool})
		},
		returns:       isReturningMariaDB,
		readForUpdate: readRow + ` FOR UPDATE`,
		forUpdate:     ` FOR UPDATE`,
		// LAST_INSERT_ID(x) brings x back with the answer: no second statement
		// is needed to learn what is left.
		subtractIfEnough: `UPDATE tb_goods_stock SET stock = LAST_INSERT_ID(stock - ?), ` + bySale + `
			WHERE goods_id = ? AND stock >= ? AND per_user = ?`,
		readSettled: `SELECT upto, seen, seen_at < UTC_TIMESTAMP(6) - INTERVAL ? MICROSECOND AS old
			FROM tb_ledger_settled WHERE id = 1 FOR UPDATE`,
		onUser: ` ON DUPLICATE KEY UPDATE units = units + VALUES(units),
			allowed = IF(VALUES(allowed) > 0, GREATEST(allowed, units), allowed)`,
		userBytes: `CAST(user_id AS BINARY)`,
		now:       `UTC_TIMESTAMP(6)`,
		// The rows themselves are locked: one whose other indexes are not written
		// yet stands in no other.
		byID:     `FORCE INDEX (PRIMARY)`,
		lockRead: ` LOCK IN SHARE MODE`,
		onTotal: ` ON DUPLICATE KEY UPDATE restocked = restocked + VALUES(restocked),
			sold = sold + VALUES(sold), orders = orders + VALUES(orders)`,
		change:   changeByInsertID,
		classify: classifyMySQL,
	}
}

// isReturningMariaDB tells whether a server that has described itself is a MariaDB
// of 10.5 or later. MySQL and what follows it have no INSERT … RETURNING.
func isReturningMariaDB(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "MariaDB %d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 10 || major == 10 && minor >= 5
}

func changeByInsertID(ctx context.Context, conn gorm.ConnPool, statement string, args ...any) (left, rows int64, err error) {
	result, err := conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, 0, err
	}
	if rows, err = result.RowsAffected(); err != nil {
		return 0, 0, err
	}
	left, err = result.LastInsertId()
	return left, rows, err
}

func openMySQL(o Options) (dialect, *sql.DB, error) {
	c, err := mysql.ParseDSN(o.DSN)
	if err != nil {
		return dialect{}, nil, fmt.Errorf("read DSN: %w", err)
	}
	if o.Password != "" {
		c.Passwd = o.Password
	}
	if o.TLS != nil {
		c.TLS = o.TLS.Clone() // the driver writes into it
	}
	c.InterpolateParams = true // one round trip a statement, not two
	c.ClientFoundRows = true   // rows matched, not rows that look different
	c.ParseTime = true
	c.Loc = time.UTC
	c.Timeout = o.ConnectTimeout
	c.RejectReadOnly = true       // a demoted primary is left, not asked again
	c.Logger = &mysql.NopLogger{} // what it would log reaches us as an error
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return dialect{}, nil, fmt.Errorf("read DSN: %w", err)
	}
	setup := []string{
		// The isolation of the sources. It also keeps gap locks away, and
		// MariaDB's snapshot isolation, which answers error 1020.
		`SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED`,
		fmt.Sprintf(`SET SESSION innodb_lock_wait_timeout = %d, time_zone = '+00:00',
			sql_mode = 'STRICT_ALL_TABLES'`, wholeSeconds(o.LockWait)),
	}
	if _, chosen := c.Params["wait_timeout"]; o.Silence > 0 && !chosen {
		setup = append(setup, fmt.Sprintf(`SET SESSION wait_timeout = %d`, wholeSeconds(o.Silence)))
	}
	pool := o.openDB(sessionConnector{Connector: connector, timeout: o.ConnectTimeout, limit: o.txTimeout(), setup: setup})
	d := mysqlDialect()
	d.lockSchema = func(ctx context.Context) (unlock func() error, err error) {
		return lockSchemaBy(ctx, sql.OpenDB(connector))
	}
	return d, pool, nil
}

const (
	lockSchema   = `SELECT COALESCE(GET_LOCK('stockd-schema', 60), 0)`
	unlockSchema = `DO RELEASE_LOCK('stockd-schema')`
)

// lockSchemaBy lets one process change the schema while the others wait, up to a
// minute. It has a connection of its own, for a pool may have no more than one.
// MySQL gives the lock back by itself when the connection ends.
func lockSchemaBy(ctx context.Context, beside *sql.DB) (unlock func() error, err error) {
	conn, err := beside.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, beside.Close())
	}
	var got bool
	err = conn.QueryRowContext(ctx, lockSchema).Scan(&got)
	if err == nil && !got {
		err = fmt.Errorf("%w: another process has been changing it for a minute", stock.ErrBusy)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(), beside.Close())
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
		defer cancel()
		_, err := conn.ExecContext(ctx, unlockSchema)
		return errors.Join(err, conn.Close(), beside.Close())
	}, nil
}

func wholeSeconds(d time.Duration) int {
	return int(max(1, math.Ceil(d.Seconds())))
}

// sessionConnector prepares each new connection. The isolation level cannot be
// set in a DSN that MySQL and MariaDB both understand: they name the variable
// differently, but share the statement.
type sessionConnector struct {
	driver.Connector
	timeout time.Duration
	limit   time.Duration // of a statement whose context has no deadline
	setup   []string
}

// Connect opens a connection and prepares it within the timeout, also where
// the server takes the connection and then says nothing.
func (c sessionConnector) Connect(ctx context.Context) (driver.Conn, error) {
	limited, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("no answer within %s", c.timeout))
	defer cancel()
	conn, err := c.connect(limited)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		// Not the caller's deadline but ours: say so in words, lest it be
		// taken for the caller's.
		return nil, fmt.Errorf("connect: %v", context.Cause(limited)) //nolint:errorlint // hides DeadlineExceeded on purpose
	}
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("connect: %w: %w", errUnanswered, err)
	}
	return conn, err
}

func (c sessionConnector) connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	inner, ok := conn.(mysqlConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("a connection of the driver is a %T", conn), conn.Close())
	}
	for _, statement := range c.setup {
		if _, err := inner.ExecContext(ctx, statement, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("prepare session: %w", err), conn.Close())
		}
	}
	return &boundedConn{mysqlConn: inner, limit: c.limit}, nil
}

// Server error numbers that are the same in MySQL and MariaDB.
const (
	mysqlDuplicateEntry  = 1062
	mysqlLockWaitTimeout = 1205
	mysqlDeadlock        = 1213
)

func classifyMySQL(err error) faultKind {
	var answer *mysql.MySQLError
	if !errors.As(err, &answer) {
		return faultBackend
	}
	switch answer.Number {
	case mysqlDuplicateEntry:
		return faultDuplicate
	case mysqlLockWaitTimeout:
		return faultBusy
	case mysqlDeadlock:
		return faultDeadlock
	default:
		return faultBackend
	}
}
