package backend

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// line is a connection of the driver whose server answers as a test says.
type line struct {
	mysqlConn

	sent   []string
	left   []time.Duration // until the deadline of each; 0: it has none
	answer func(ctx context.Context, statement string) error
	rows   [][2]string // what a query finds; nil: a server without settings
	closed int
}

func (l *line) send(ctx context.Context, statement string) error {
	left := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	l.sent, l.left = append(l.sent, statement), append(l.left, left)
	if l.answer == nil {
		return nil
	}
	return l.answer(ctx, statement)
}

func (l *line) ExecContext(ctx context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, l.send(ctx, statement)
}

func (l *line) QueryContext(ctx context.Context, statement string, _ []driver.NamedValue) (driver.Rows, error) {
	rows := slices.Clone(l.rows)
	if rows == nil {
		rows = [][2]string{{"sql_mode", ""}}
	}
	return &found{rows}, l.send(ctx, statement)
}

func (l *line) PrepareContext(ctx context.Context, statement string) (driver.Stmt, error) {
	return nil, l.send(ctx, statement)
}

func (l *line) BeginTx(ctx context.Context, _ driver.TxOptions) (driver.Tx, error) {
	return nil, l.send(ctx, "BEGIN")
}

func (l *line) Ping(ctx context.Context) error         { return l.send(ctx, "PING") }
func (*line) ResetSession(context.Context) error       { return nil }
func (*line) IsValid() bool                            { return true }
func (*line) CheckNamedValue(*driver.NamedValue) error { return nil }
func (l *line) Close() error                           { l.closed++; return nil }

// found is rows of two columns.
type found struct{ rows [][2]string }

func (*found) Columns() []string { return make([]string, 2) }
func (*found) Close() error      { return nil }
func (f *found) Next(into []driver.Value) error {
	if len(f.rows) == 0 {
		return io.EOF
	}
	for i := range into {
		into[i] = []byte(f.rows[0][i])
	}
	f.rows = f.rows[1:]
	return nil
}

const (
	limitOfStatements = 10 * time.Second
	inTransactions    = 5 * time.Second
)

// last is how long the last statement might take.
func (l *line) last() time.Duration { return l.left[len(l.left)-1] }

// A statement lasts no longer than its context, than the transaction around it, and than the
// limit of its connection where neither says so; and a transaction that has ended bounds nothing.
func TestEveryStatementHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := new(line)
		c := &boundedConn{mysqlConn: l, limit: limitOfStatements}
		statements := map[string]func(context.Context) error{
			"exec":    func(ctx context.Context) error { _, err := c.ExecContext(ctx, "UPDATE", nil); return err },
			"query":   func(ctx context.Context) error { _, err := c.QueryContext(ctx, "SELECT", nil); return err },
			"prepare": func(ctx context.Context) error { _, err := c.PrepareContext(ctx, "INSERT"); return err },
			"ping":    c.Ping,
		}
		check := func(when string, longest time.Duration) {
			for name, do := range statements {
				for _, within := range []time.Duration{0, time.Second, time.Minute} {
					ctx, cancel, want := t.Context(), context.CancelFunc(func() {}), longest
					if within > 0 {
						ctx, cancel = context.WithTimeout(ctx, within)
						want = within
						if when == "in a transaction" {
							want = min(within, longest)
						}
					}
					must.Do(t, do(ctx))
					should.Be(t, l.last(), want, when, name, "within", within, "may take")
					cancel()
				}
			}
		}
		check("before", limitOfStatements)
		for name, end := range map[string]func(driver.Tx) error{"commit": driver.Tx.Commit, "rollback": driver.Tx.Rollback} {
			ctx, cancel := context.WithTimeout(t.Context(), inTransactions)
			tx := must.Get(c.BeginTx(ctx, driver.TxOptions{}))(t)
			check("in a transaction", inTransactions)
			should.Fail(t, end(tx), nil, name)
			cancel()
			check("after its "+name, limitOfStatements)
		}
		tx := must.Get(c.BeginTx(t.Context(), driver.TxOptions{}))(t)
		time.Sleep(time.Second)
		must.Get(c.ExecContext(t.Context(), "UPDATE", nil))(t)
		should.Be(t, l.last(), limitOfStatements-time.Second, "in a transaction without a deadline a statement may take")
		if err := tx.Rollback(); err != nil || l.sent[len(l.sent)-1] != "ROLLBACK" || l.closed != 0 {
			t.Errorf("rolled back with %q: %v", l.sent[len(l.sent)-1], err)
		}
		must.Do(t, c.Close())
		should.Be(t, l.closed, 1, "the times that it was closed")
	})
}

// A context of the connection's own is freed when the next user comes, and when it is closed.
func TestTheDeadlineOfAStatementIsFreedWithIt(t *testing.T) {
	for name, end := range map[string]func(*boundedConn) error{
		"next statement": func(c *boundedConn) error { _, err := c.ExecContext(context.Background(), "next", nil); return err },
		"next user":      func(c *boundedConn) error { return c.ResetSession(context.Background()) },
		"close":          (*boundedConn).Close,
	} {
		own := make(chan context.Context, 2)
		c := &boundedConn{limit: time.Minute, mysqlConn: &line{answer: func(ctx context.Context, _ string) error {
			own <- ctx
			return nil
		}}}
		_, err := c.QueryContext(t.Context(), "first", nil)
		first := <-own
		if err != nil || first.Err() != nil {
			t.Errorf("%s: the context of the statement has ended before its rows were read: %v", name, err)
		}
		if err := end(c); err != nil || first.Err() == nil {
			t.Errorf("%s: the context of the last statement is kept (%v)", name, err)
		}
	}
}

func TestABeginThatIsNotAnsweredSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deadlock := &mysql.MySQLError{Number: mysqlDeadlock}
		for err, unanswered := range map[error]bool{error(deadlock): false, nil: true} {
			c := &boundedConn{limit: limitOfStatements, mysqlConn: &line{answer: func(ctx context.Context, _ string) error {
				if err != nil {
					return err
				}
				<-ctx.Done()
				return driver.ErrBadConn
			}}}
			_, got := c.BeginTx(t.Context(), driver.TxOptions{})
			if errors.Is(got, ErrUnanswered) != unanswered || got == nil || err != nil && !errors.Is(got, err) {
				t.Errorf("the transaction begins with %v, want unanswered: %v", got, unanswered)
			}
			if !c.until.IsZero() {
				t.Error("a transaction that has not begun bounds the statements after it")
			}
		}
	})
}

// What became of a transaction is in the error of its commit: nothing, the server's own
// answer, or it is unknown. In each case its connection is not used again.
func TestTheErrorOfACommitTellsWhatHappened(t *testing.T) {
	full := &mysql.MySQLError{Number: 1180, Message: "Got error 28 - 'No space left on device' during COMMIT"}
	for name, c := range map[string]struct {
		answer error
		kind   error // ErrNotSent, ErrUnanswered, or the answer itself
	}{
		"rejected":        {full, full},
		"nothing written": {driver.ErrBadConn, ErrNotSent},
		"broken":          {io.ErrUnexpectedEOF, ErrUnanswered},
	} {
		l := &line{answer: func(_ context.Context, statement string) error {
			if statement == "COMMIT" {
				return c.answer
			}
			return nil
		}}
		conn := &boundedConn{mysqlConn: l, limit: limitOfStatements}
		tx, err := conn.BeginTx(t.Context(), driver.TxOptions{})
		must.Do(t, err)
		err = tx.Commit()
		for _, kind := range []error{full, ErrNotSent, ErrUnanswered} {
			should.Be(t, errors.Is(err, kind), errors.Is(c.kind, kind), "the error of the commit is …, want …", name, err, c.kind)
		}
		if l.closed != 1 || !conn.until.IsZero() {
			t.Errorf("%s: the connection is closed %d times, and its transaction has ended: %v", name, l.closed, conn.until.IsZero())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	l := new(line)
	tx := must.Get((&boundedConn{mysqlConn: l, limit: limitOfStatements}).BeginTx(ctx, driver.TxOptions{}))(t)
	cancel()
	if err := tx.Commit(); !errors.Is(err, ErrNotSent) || !errors.Is(err, context.Canceled) || slices.Contains(l.sent, "COMMIT") || l.closed != 1 {
		t.Errorf("the commit of a request that has ended: %v after %q, closed %d times", err, l.sent, l.closed)
	}
}

// The answer to a commit or a rollback is awaited for a moment after the end of the request,
// and no longer.
func TestTheEndOfATransactionOutlastsItsRequestByAMoment(t *testing.T) {
	const moment = 250 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			name     string
			end      func(driver.Tx) error
			canceled time.Duration // after the end has begun; 0: never
			answered time.Duration
			took     time.Duration
			fails    bool
		}{
			{"commit", driver.Tx.Commit, 0, time.Second + moment - 1, time.Second + moment - 1, false},
			{"commit, hung", driver.Tx.Commit, 0, time.Hour, time.Second + moment, true},
			{"commit, canceled", driver.Tx.Commit, moment, 2*moment - 1, 2*moment - 1, false},
			{"commit, canceled and hung", driver.Tx.Commit, moment, time.Hour, 2 * moment, true},
			{"rollback", driver.Tx.Rollback, 0, moment - 1, moment - 1, false},
			{"rollback, hung", driver.Tx.Rollback, 0, time.Hour, moment, true},
		} {
			l := new(line)
			conn := &boundedConn{mysqlConn: l, limit: limitOfStatements}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			tx, err := conn.BeginTx(ctx, driver.TxOptions{})
			must.Do(t, err)
			l.answer = func(ctx context.Context, _ string) error {
				select {
				case <-time.After(c.answered):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if c.canceled > 0 {
				time.AfterFunc(c.canceled, cancel)
			}
			start := time.Now()
			err = c.end(tx)
			if took := time.Since(start); took != c.took || (err != nil) != c.fails || (l.closed > 0) != c.fails {
				t.Errorf("%s: ended after %s with %v, closed %d times; want %s, failure %v", c.name, took, err, l.closed, c.took, c.fails)
			}
			cancel()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		own, free := UncutCommit(ctx)
		time.AfterFunc(moment, cancel)
		start := time.Now()
		<-own.Done()
		should.Be(t, time.Since(start), 2*moment, "a statement that commits by itself is awaited")
		free()
		own, free = UncutCommit(ctx) // it has ended
		if free(); own.Err() == nil {
			t.Error("what was answered keeps its timer")
		}
	})
}

// A request that has ended is rolled back all the same.
func TestARollbackIsSentAfterTheEndOfItsRequest(t *testing.T) {
	l := new(line)
	ctx, cancel := context.WithCancel(t.Context())
	tx := must.Get((&boundedConn{mysqlConn: l, limit: limitOfStatements}).BeginTx(ctx, driver.TxOptions{}))(t)
	l.answer = func(ctx context.Context, _ string) error { return ctx.Err() }
	cancel()
	if err := tx.Rollback(); err != nil || l.closed > 0 {
		t.Errorf("rolled back with %v, and closed %d times", err, l.closed)
	}
}

// server takes connections as a test says.
type server struct {
	connect func(ctx context.Context) (driver.Conn, error)
}

func (s server) Connect(ctx context.Context) (driver.Conn, error) { return s.connect(ctx) }
func (server) Driver() driver.Driver                              { return nil }

// A server that takes a connection and then says nothing is given up after the timeout of
// connections, which is no end of the request; and where the request ends first, that is told.
func TestAConnectionIsMadeInTime(t *testing.T) {
	hangs := func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
	synctest.Test(t, func(t *testing.T) {
		for name, s := range map[string]server{
			"connect": {func(ctx context.Context) (driver.Conn, error) { return nil, hangs(ctx, "") }},
			"prepare": {func(context.Context) (driver.Conn, error) { return &line{answer: hangs}, nil }},
		} {
			c := sessionConnector{Connector: s, timeout: time.Second, limit: limitOfStatements}
			start := time.Now()
			_, err := c.Connect(t.Context())
			if took := time.Since(start); took != time.Second || err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no answer within 1s") {
				t.Errorf("%s: given up after %s with %v", name, took, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			if _, err = c.Connect(ctx); !errors.Is(err, ErrUnanswered) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: the request ended first, and the error is %v", name, err)
			}
			cancel()
		}
	})
	broken := errors.New("broken")
	c := sessionConnector{Connector: server{func(context.Context) (driver.Conn, error) { return nil, broken }}, timeout: time.Minute}
	if _, err := c.Connect(t.Context()); !errors.Is(err, broken) || errors.Is(err, ErrUnanswered) {
		t.Errorf("a failure of the driver is %v", err)
	}
}

// The session of each connection is set up before it is used, and closed where that fails. On a node of a
// cluster its transactions wait for what other nodes have committed, and nothing is prepared there and on Vitess.
func TestASessionIsSetUpForItsServer(t *testing.T) {
	const (
		ask = "SHOW SESSION VARIABLES"
		set = "SET SESSION autocommit = 'ON', innodb_lock_wait_timeout = 7"
	)
	alone := [][2]string{{"sql_mode", "STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"}, {"autocommit", "OFF"}, {"innodb_lock_wait_timeout", "50"}, {"group_replication_single_primary_mode", "ON"}, {"wsrep_on", "OFF"}}
	for name, c := range map[string]struct {
		variable []string
		want     []string
	}{
		"alone":  {nil, []string{showsAll, ask, set}},
		"galera": {[]string{"wsrep_on", "ON"}, []string{showsAll, ask, set, galeraReads}},
		"group":  {[]string{"group_replication_single_primary_mode", "OFF"}, []string{showsAll, ask, IsMember, set, groupReads}},
		"vitess": {[]string{"version", "8.4.6-Vitess"}, []string{showsAll, ask, "SET SESSION autocommit = 'ON'", "SET SESSION innodb_lock_wait_timeout = 7", oneShard, noLimit}},
	} {
		rows := slices.Clone(alone)
		if c.variable != nil {
			rows = append(rows, [2]string(c.variable))
		}
		l := &line{rows: rows}
		connector := sessionConnector{timeout: time.Minute, limit: limitOfStatements, own: map[string]string{"innodb_lock_wait_timeout": "7"}, Connector: server{
			func(context.Context) (driver.Conn, error) { return l, nil },
		}}
		conn, err := connector.Connect(t.Context())
		bounded, ok := conn.(*boundedConn)
		if err != nil || !ok || bounded.limit != limitOfStatements || !slices.EqualFunc(l.sent, c.want, strings.HasPrefix) {
			t.Fatalf("%s: set up with %q (%v), want %q", name, l.sent, err, c.want)
		}
		_, prepares := bounded.mysqlConn.(*preparingConn)
		should.Be(t, prepares, name == "alone", name, "it prepares statements")
		for i, left := range l.left {
			if left == 0 {
				t.Errorf("%s: %q has no deadline", name, l.sent[i])
			}
		}
		for _, fails := range c.want {
			broken := errors.New("broken")
			l = &line{rows: rows, answer: func(_ context.Context, statement string) error {
				if strings.HasPrefix(statement, fails) {
					return broken
				}
				return nil
			}}
			if _, err := connector.Connect(t.Context()); !errors.Is(err, broken) || l.closed != 1 {
				t.Errorf("%s: where %q fails the error is %v, and the connection is closed %d times", name, fails, err, l.closed)
			}
		}
	}
}

// A vtgate shows variables of its tablets' databases that it knows none of.
func TestASessionOfAVtgateIsSetAsFarAsItKnows(t *testing.T) {
	for number, works := range map[uint16]bool{mysqlUnknownVariable: true, 1105: false} {
		l := &line{rows: [][2]string{{"sql_mode", "STRICT_ALL_TABLES"}, {"version", "8.4.6-Vitess"}, {"autocommit", "OFF"}}, answer: func(_ context.Context, statement string) error {
			if strings.Contains(statement, "autocommit =") {
				return &mysql.MySQLError{Number: number}
			}
			return nil
		}}
		connector := sessionConnector{timeout: time.Minute, Connector: server{func(context.Context) (driver.Conn, error) { return l, nil }}}
		if _, err := connector.Connect(t.Context()); (err == nil) != works {
			t.Errorf("where a variable is answered with error %d a connection is opened with %v", number, err)
		}
	}
}

// If a shard is down, a session reads its variables in another keyspace. Here every query has the same rows, so that the keyspaces
// are sql_mode and version.
func TestASessionOfAVtgateIsSetUpWithoutAShard(t *testing.T) {
	keyspace, down := "", &mysql.MySQLError{Number: 1105, Message: "target: shop.-80.primary: " + noTablet + " for it"}
	l := &line{rows: [][2]string{{"sql_mode", "STRICT_ALL_TABLES"}, {"version", "8.4.6-Vitess"}}, answer: func(_ context.Context, statement string) error {
		if name, ok := strings.CutPrefix(statement, "USE "); ok {
			keyspace = name
		} else if keyspace != "`version`" && strings.Contains(statement, " SESSION ") {
			return down
		}
		return nil
	}}
	connector := sessionConnector{database: "shop", timeout: time.Minute, Connector: server{func(context.Context) (driver.Conn, error) { return l, nil }}}
	must.Get(connector.Connect(t.Context()))(t)
	should.Be(t, keyspace, "`shop`", "the keyspace of the session")
	should.Be(t, rejectsMySQL(down), "", "a shard that is down rejects writes because of")
}

// A server is rejected by the names of all settings that stockd does not work with, with what was found and what is wanted.
func TestAServerIsRejectedByTheNamesOfItsSettings(t *testing.T) {
	for settings, wrong := range map[[2]string][]string{
		{"innodb_page_size=4096", "disabled_storage_engines=MyISAM,InnoDB"}: {"innodb_page_size", `"4096"`, "8192 or more", "disabled_storage_engines"},
		{"innodb_page_size=8192", "disabled_storage_engines=MyISAM"}:        nil,
		{"sql_log_bin=OFF"}:                                                    {"sql_log_bin"},
		{"binlog_format=STATEMENT", "log_bin=ON"}:                              {"binlog_format", "ROW or MIXED"},
		{"binlog_format=STATEMENT", "log_bin=OFF"}:                             nil,
		{"init_connect=START TRANSACTION"}:                                     {"init_connect"},
		{"init_connect=INSERT INTO a.log VALUES (NOW(), USER()); SET NAMES x"}: nil,
		{"innodb_flush_log_at_trx_commit=0", "sync_binlog=0"}:                  nil, // it is the owner's to decide
	} {
		l := &line{rows: [][2]string{{"sql_mode", ""}}}
		for _, setting := range settings {
			name, value, _ := strings.Cut(setting, "=")
			l.rows = append(l.rows, [2]string{name, value})
		}
		c := sessionConnector{timeout: time.Minute, Connector: server{func(context.Context) (driver.Conn, error) { return l, nil }}}
		_, err := c.Connect(t.Context())
		if (err == nil) != (wrong == nil) {
			t.Errorf("%q: %v, want it to name %q", settings, err, wrong)
		}
		for _, want := range wrong {
			if err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want it to name %q", settings, err, want)
			}
		}
	}
}

// leaver is a server of a group that it has left.
type leaver struct{ *line }

func (l leaver) QueryContext(ctx context.Context, statement string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := l.line.QueryContext(ctx, statement, args)
	if statement == IsMember {
		return &found{}, err
	}
	return rows, err
}

// A server that has restarted takes writes that its group never gets.
func TestAServerOutsideItsGroupIsNotUsed(t *testing.T) {
	l := &line{rows: [][2]string{{"sql_mode", ""}, {"group_replication_single_primary_mode", "OFF"}}}
	c := sessionConnector{timeout: time.Minute, Connector: server{func(context.Context) (driver.Conn, error) { return leaver{l}, nil }}}
	if _, err := c.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "not in its group") || l.closed != 1 {
		t.Errorf("the connection is made: %v, and closed %d times", err, l.closed)
	}
}

// garbled is a line whose driver panics at one answer.
func garbled(statement string) *line {
	return &line{answer: func(_ context.Context, sent string) error {
		if sent == statement {
			panic("index out of range")
		}
		return nil
	}}
}

// torn is a line whose driver panics at the rows of an answer.
type torn struct{ *line }

func (torn) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return tornRows{new(found)}, nil
}

type tornRows struct{ *found }

func (tornRows) Next([]driver.Value) error { panic("index out of range") }

// A panic of the driver in mid-answer would leave the connection locked, and closing it would wait for
// ever: no other purchase of the batch's queue would be sold. The connection ends, and the pool goes on.
func TestAnAnswerThatTheDriverCannotReadCostsItsConnectionAlone(t *testing.T) {
	for statement, use := range map[string]func(context.Context, *sql.Conn) error{
		"UPDATE":   func(ctx context.Context, c *sql.Conn) error { _, err := c.ExecContext(ctx, "UPDATE"); return err },
		"SELECT":   func(ctx context.Context, c *sql.Conn) error { return c.QueryRowContext(ctx, "SELECT").Scan() },
		"PREPARE":  func(ctx context.Context, c *sql.Conn) error { _, err := c.PrepareContext(ctx, "PREPARE"); return err }, //nolint:sqlclosecheck // there is none
		"PING":     func(ctx context.Context, c *sql.Conn) error { return c.PingContext(ctx) },
		"BEGIN":    func(ctx context.Context, c *sql.Conn) error { _, err := c.BeginTx(ctx, nil); return err },
		"COMMIT":   func(ctx context.Context, c *sql.Conn) error { return endOf(ctx, c, (*sql.Tx).Commit) },
		"ROLLBACK": func(ctx context.Context, c *sql.Conn) error { return endOf(ctx, c, (*sql.Tx).Rollback) },
		"rows":     func(ctx context.Context, c *sql.Conn) error { return c.QueryRowContext(ctx, "SELECT").Scan() },
	} {
		synctest.Test(t, func(t *testing.T) {
			l := garbled(statement)
			conn := mysqlConn(l)
			if statement == "rows" {
				conn = torn{l}
			}
			pool := sql.OpenDB(server{func(context.Context) (driver.Conn, error) {
				return &boundedConn{mysqlConn: conn, limit: limitOfStatements}, nil
			}})
			defer pool.Close() //nolint:errcheck // nothing is open
			c := must.Get(pool.Conn(t.Context()))(t)
			switch err := use(t.Context(), c); {
			case !errors.Is(err, mysql.ErrInvalidConn):
				t.Errorf("%s: %v, want %v", statement, err, mysql.ErrInvalidConn)
			case statement == "COMMIT" && !errors.Is(err, ErrUnanswered):
				t.Errorf("a commit with such an answer is %v, want %v", err, ErrUnanswered)
			}
			if err := c.Close(); err != nil || l.closed == 0 || pool.Stats().InUse != 0 {
				t.Errorf("%s: the connection was closed %d times (%v), and %d are in use", statement, l.closed, err, pool.Stats().InUse)
			}
		})
	}
}

// endOf is the end of a transaction.
func endOf(ctx context.Context, c *sql.Conn, end func(*sql.Tx) error) error {
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	return end(tx)
}

// A pool keeps its connections for the next purchases, and ends those that idle before the
// server does.
func TestIdleConnectionsAreKeptAndEnded(t *testing.T) {
	for silence, longest := range map[time.Duration]time.Duration{0: 5 * time.Minute, 10 * time.Second: 5 * time.Second, time.Hour: 5 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s, err := OpenSQL(SQLOptions{
				Driver: string(MySQL), DSN: "tcp(nowhere)/", MaxOpen: 4, Silence: silence, ConnectTimeout: time.Second,
				OpenDB: func(driver.Connector) *sql.DB {
					return sql.OpenDB(server{func(context.Context) (driver.Conn, error) { return new(line), nil }})
				},
			})
			must.Do(t, err)
			defer s.Close() //nolint:errcheck // nothing is open
			for _, conns := range [][]*sql.Conn{make([]*sql.Conn, 4)} {
				for i := range conns {
					if conns[i], err = s.Conn(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				for _, conn := range conns {
					_ = conn.Close() // it idles from now on
				}
			}
			if n := s.Stats().Idle; n != 4 || s.Stats().MaxOpenConnections != 4 {
				t.Errorf("%d of 4 connections are kept", n)
			}
			time.Sleep(longest - time.Millisecond)
			should.Be(t, s.Stats().MaxIdleTimeClosed, 0, "with a silence of …, … connections end before", silence, longest)
			time.Sleep(3 * time.Second) // the cleaner has a period of its own, and the server does not wait for it
			should.Be(t, s.Stats().MaxIdleTimeClosed, 4, "with a silence of …, … of 4 connections end", silence, longest)
		})
	}
}

func TestATransactionLastsTenSecondsUnlessConfigured(t *testing.T) {
	for configured, want := range map[time.Duration]time.Duration{0: 10 * time.Second, time.Minute: time.Minute} {
		for driver, dsn := range map[string]string{string(MySQL): "tcp(nowhere)/", SQLite: t.TempDir() + "/stock.db"} {
			s := must.Get(OpenSQL(SQLOptions{Driver: driver, DSN: dsn, MaxOpen: 1, TxTimeout: configured}))(t)
			if s.TxTimeout != want || s.Dialect != driver {
				t.Errorf("a transaction of %s may last %s, want %s", s.Dialect, s.TxTimeout, want)
			}
			_ = s.Close() // nothing is open
		}
	}
}

// A pool of MySQL gives each of its connections the limits of the options.
func TestAPoolOfMySQLHasTheLimitsOfItsOptions(t *testing.T) {
	var made sessionConnector
	open := func(c driver.Connector) *sql.DB {
		made = c.(sessionConnector) //nolint:forcetypeassert // a panic fails the test as well
		return sql.OpenDB(c)
	}
	for _, c := range []struct {
		options SQLOptions
		want    map[string]string
	}{
		{SQLOptions{LockWait: 1200 * time.Millisecond, Silence: 90100 * time.Millisecond}, map[string]string{"innodb_lock_wait_timeout": "2", "wait_timeout": "91"}},
		{SQLOptions{LockWait: 0, Silence: time.Millisecond}, map[string]string{"innodb_lock_wait_timeout": "1", "wait_timeout": "1"}},
		{SQLOptions{LockWait: 50 * time.Second}, map[string]string{"innodb_lock_wait_timeout": "50"}},
		{SQLOptions{DSN: "tcp(nowhere)/?wait_timeout=7", Silence: time.Minute}, map[string]string{"innodb_lock_wait_timeout": "1"}},
	} {
		o := c.options
		o.Driver, o.MaxOpen, o.OpenDB, o.ConnectTimeout, o.TxTimeout = string(MySQL), 1, open, 3*time.Second, 4*time.Second
		if o.DSN == "" {
			o.DSN = "tcp(nowhere)/"
		}
		s := must.Get(OpenSQL(o))(t)
		if !maps.Equal(made.own, c.want) {
			t.Errorf("%+v: a connection begins with %v, want %v", c.options, made.own, c.want)
		}
		if made.timeout != 3*time.Second || made.limit != 4*time.Second {
			t.Errorf("a connection is made within %s, and a statement takes %s; want 3s and 4s", made.timeout, made.limit)
		}
		_ = s.Close() // nothing is open
	}
}
