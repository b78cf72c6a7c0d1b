package backend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/stock"
)

// SQLRights are those of the database's user that an installation needs on its schema, as GRANT takes them; sql-procedure
// also has to execute its procedure.
const SQLRights = "SELECT, INSERT, UPDATE, DELETE"

func openMySQL(o SQLOptions) (*SQL, error) {
	c, err := mysql.ParseDSN(o.DSN)
	if err != nil {
		return nil, fmt.Errorf("read DSN: %w", err)
	}
	if o.Password != "" {
		c.Passwd = o.Password
	}
	if o.TLS != nil {
		c.TLS = o.TLS.Clone() // the driver writes into it
	}
	if err := requireText(o.DSN, c); err != nil {
		return nil, fmt.Errorf("read DSN: %w", err)
	}
	connector, err := mysql.NewConnector(driverOptions(c, o))
	if err != nil {
		return nil, fmt.Errorf("read DSN: %w", err)
	}
	session := sessionConnector{Connector: connector, database: c.DBName, timeout: o.ConnectTimeout, limit: o.txTimeout(), heard: new(atomic.Int64), own: map[string]string{
		"innodb_lock_wait_timeout": strconv.Itoa(wholeSeconds(o.LockWait)),
	}}
	if _, chosen := c.Params["wait_timeout"]; o.Silence > 0 && !chosen {
		session.own["wait_timeout"] = strconv.Itoa(wholeSeconds(o.Silence))
	}
	waiting := session
	waiting.limit = longestChange
	return &SQL{
		DB: o.openDB(session), Dialect: string(MySQL), heard: session.heard,
		lockSchema: func(ctx context.Context) (unlock func() error, err error) {
			return lockSchemaBy(ctx, sql.OpenDB(waiting))
		},
		settings: func(ctx context.Context) ([]SettingState, error) { return settingsBy(ctx, sql.OpenDB(connector)) },
	}, nil
}

// driverOptions sets what a DSN may say otherwise of how statements are sent and answers are read.
func driverOptions(c *mysql.Config, o SQLOptions) *mysql.Config {
	c.InterpolateParams = true // one round trip a statement, not two
	c.ClientFoundRows = true   // rows matched, not rows that look different
	c.ParseTime = true
	c.Loc = time.UTC
	c.Timeout = o.ConnectTimeout
	c.ReadTimeout, c.WriteTimeout = 0, 0 // contexts have the deadlines
	c.RejectReadOnly = false             // the driver would hide why: see boundedConn.left
	c.CheckConnLiveness = true
	c.MultiStatements, c.ColumnsWithAlias, c.AllowAllFiles = false, false, false
	c.MaxAllowedPacket = mysql.NewConfig().MaxAllowedPacket
	c.Logger = &mysql.NopLogger{} // what it would log reaches us as an error
	c.ConnectionAttributes = "program_name:" + program
	_ = c.Apply(mysql.TimeTruncate(0)) // never fails
	return c
}

// longestChange is longer than a change of the schema may take.
const longestChange = 2 * time.Hour

const (
	takeSchema = `SELECT COALESCE(GET_LOCK('stockd-schema', 60), 0)`
	freeSchema = `DO RELEASE_LOCK('stockd-schema')`
)

// lockSchemaBy lets one process change the schema while the others wait, up to a
// minute. It has a connection of its own, for a pool may have no more than one, which is
// silent meanwhile. MySQL gives the lock back by itself when the connection ends.
func lockSchemaBy(ctx context.Context, beside *sql.DB) (unlock func() error, err error) {
	conn, err := beside.Conn(ctx)
	if err != nil {
		return nil, errors.Join(err, beside.Close())
	}
	var got bool
	_, err = conn.ExecContext(ctx, fmt.Sprintf(`SET SESSION wait_timeout = %d`, wholeSeconds(longestChange)))
	if err == nil {
		err = conn.QueryRowContext(ctx, takeSchema).Scan(&got)
	}
	if err == nil && !got {
		err = fmt.Errorf("%w: another process has been changing it for a minute", stock.ErrBusy)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close(), beside.Close())
	}
	return func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWithin)
		defer cancel()
		_, err := conn.ExecContext(ctx, freeSchema)
		return errors.Join(err, conn.Close(), beside.Close())
	}, nil
}

func wholeSeconds(d time.Duration) int {
	return int(max(1, math.Ceil(d.Seconds())))
}

// sessionConnector sets up the session of each new connection, as Settings says.
type sessionConnector struct {
	driver.Connector
	database string
	timeout  time.Duration
	limit    time.Duration     // of a statement whose context has no deadline
	own      map[string]string // values of settings that are the caller's
	heard    *atomic.Int64     // as that of a boundedConn
}

// Connect opens a connection and sets it up within the timeout, also where
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
		return nil, fmt.Errorf("connect: %w: %w", ErrUnanswered, err)
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
	unprepared, err := c.setUp(ctx, inner)
	if err != nil && strings.Contains(err.Error(), noTablet) {
		unprepared, err = c.setUpElsewhere(ctx, inner, err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up session: %w", err), conn.Close())
	}
	if !unprepared {
		inner = &preparingConn{mysqlConn: inner}
	}
	return &boundedConn{mysqlConn: inner, limit: c.limit, heard: c.heard}, nil
}

const (
	// galeraReads and groupReads have each transaction wait for what other nodes have committed before it.
	// Without that a holder of a lock in Redis, ZooKeeper or etcd reads a row from before the last holder's
	// sale, and writes over it.
	galeraReads = `SET SESSION wsrep_sync_wait = @@SESSION.wsrep_sync_wait | 1`
	groupReads  = `SET SESSION group_replication_consistency = CASE @@SESSION.group_replication_consistency
		WHEN 'AFTER' THEN 'AFTER' WHEN 'BEFORE_AND_AFTER' THEN 'BEFORE_AND_AFTER' ELSE 'BEFORE' END`
)

const (
	// oneShard has Vitess reject a transaction that would write to several shards: it could commit on one of them alone.
	oneShard = `SET transaction_mode = 'SINGLE'`
	// noLimit has it add no LIMIT to each SELECT: some are then no valid SQL for MariaDB.
	noLimit = `SET SESSION sql_select_limit = DEFAULT`
)

// IsMember has a row where a server of Group Replication is in its group. It takes the right to read that
// table.
const IsMember = `SELECT member_id FROM performance_schema.replication_group_members
	WHERE member_id = @@server_uuid AND member_state = 'ONLINE'`

// requireMember fails where a server is not in its group: one that has restarted takes writes until it
// joins, and no other server ever gets them.
func requireMember(ctx context.Context, conn mysqlConn) error {
	rows, err := conn.QueryContext(ctx, IsMember, nil)
	if err != nil {
		return fmt.Errorf("ask whether the server is in its group: %w", err)
	}
	err = errors.Join(rows.Next(make([]driver.Value, 1)), rows.Close())
	if errors.Is(err, io.EOF) {
		return errors.New("the server is not in its group")
	}
	return err
}

// OfVitess reports that a version is that of a vtgate.
func OfVitess(version string) bool { return strings.HasSuffix(version, "-Vitess") }

const mysqlUnknownVariable = 1193

// setKnown sets what a vtgate lets a session set. It shows all variables of its tablets' databases, and answers for some
// of them that it knows none: these stay as the databases have them.
func setKnown(ctx context.Context, conn mysqlConn, list []string) error {
	for _, assignment := range list {
		_, err := conn.ExecContext(ctx, `SET SESSION `+assignment, nil)
		if err != nil && !IsMySQL(err, mysqlUnknownVariable) {
			return err
		}
	}
	return nil
}

// setUp reports also whether nothing may be prepared. So it is where the server is a node, one of a cluster of which several
// take writes: of Galera, or of Group Replication with several primaries. On MariaDB 10.11 with Galera, a
// transaction that a node aborts for the sake of another one goes on after the preparation of a SELECT, and
// what it did before is lost. And so it is on Vitess, which asks any shard for the columns of a SELECT that it prepares: the
// transaction is then on two.
func (c sessionConnector) setUp(ctx context.Context, conn mysqlConn) (unprepared bool, err error) {
	found, err := readSettings(ctx, conn)
	if err != nil {
		return false, err
	}
	if err := checkSettings(found); err != nil {
		return false, err
	}
	var setup []string
	list := assignments(found, c.own)
	if OfVitess(found[serverVersion]) {
		if err := setKnown(ctx, conn, list); err != nil {
			return false, err
		}
		setup, unprepared = append(setup, oneShard, noLimit), true
	} else if len(list) > 0 {
		setup = append(setup, `SET SESSION `+strings.Join(list, `, `))
	}
	if found[groupMode] == "OFF" {
		if err := requireMember(ctx, conn); err != nil {
			return false, err
		}
		setup, unprepared = append(setup, groupReads), true
	}
	if found[galeraNode] == "ON" {
		setup, unprepared = append(setup, galeraReads), true
	}
	for _, statement := range setup {
		if _, err := conn.ExecContext(ctx, statement, nil); err != nil {
			return false, err
		}
	}
	return unprepared, nil
}

// noTablet is in the answer of a vtgate for a shard that is down.
const noTablet = "no healthy tablet available"

// setUpElsewhere is setUp where a shard is down. A vtgate reads variables from any shard of the session's keyspace, so this sets the
// session up in another keyspace, such as the one without shards: the shards that are up sell on.
func (c sessionConnector) setUpElsewhere(ctx context.Context, conn mysqlConn, down error) (unprepared bool, err error) {
	keyspaces, err := readRows(ctx, conn, `SHOW VSCHEMA KEYSPACES`)
	if err != nil {
		return false, errors.Join(down, err)
	}
	for _, row := range keyspaces {
		if _, err = conn.ExecContext(ctx, "USE `"+row[0]+"`", nil); err == nil {
			unprepared, err = c.setUp(ctx, conn)
		}
		if err == nil {
			_, err = conn.ExecContext(ctx, "USE `"+c.database+"`", nil)
			return unprepared, err
		}
		down = errors.Join(down, err)
	}
	return false, down
}

// IsMySQL reports that a server has answered with one of these error numbers.
func IsMySQL(err error, numbers ...uint16) bool {
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && slices.Contains(numbers, answer.Number)
}
