package backend

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// defaultTxTimeout is the longest transaction where SQLOptions.TxTimeout is 0.
	defaultTxTimeout = 10 * time.Second
	// rollbackWithin bounds a rollback, which also runs after the deadline of its
	// request. Where it is not answered the connection is closed, which rolls back, too.
	rollbackWithin = 250 * time.Millisecond
)

// ErrNotSent marks a commit that was not sent: nothing happened.
var ErrNotSent = errors.New("commit not sent")

// mysqlConn is what go-sql-driver's connection implements. database/sql finds
// each of these by a type assertion, so that a wrapper must have them all.
type mysqlConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

// boundedConn gives every statement of a connection a deadline: that of its
// context, that of the transaction around it, or limit. database/sql commits and
// rolls back without a context, and go-sql-driver waits for those answers for
// ever. A connection whose statement was not answered in time is closed.
//
// Like every driver.Conn it is used by one goroutine at a time.
type boundedConn struct {
	mysqlConn
	limit time.Duration
	heard *atomic.Int64      // when a server of the pool has answered last, in ns since 1970; nil: it is not noted
	until time.Time          // the deadline of the open transaction; zero: there is none
	free  context.CancelFunc // frees the context of the last statement; nil: it had none of its own
}

// bound is the context of the next statement.
func (c *boundedConn) bound(ctx context.Context) context.Context {
	c.release()
	deadline, ok := ctx.Deadline()
	switch {
	case !c.until.IsZero() && (!ok || deadline.After(c.until)):
		ctx, c.free = context.WithDeadline(ctx, c.until)
	case !ok:
		ctx, c.free = context.WithTimeout(ctx, c.limit)
	}
	return ctx
}

// release frees the context of the last statement, whose rows have been read.
func (c *boundedConn) release() {
	if c.free != nil {
		c.free()
		c.free = nil
	}
}

// unreadable makes a panic of the driver at an answer that it cannot read the loss of the connection.
// database/sql would keep the locks of the connection, and closing it would wait for ever. Galera
// sends such answers: in the middle of a procedure that loses to another node, MariaDB 10.11 begins the
// result of the procedure's cursor.
func (c *boundedConn) unreadable(err *error) {
	if panicked := recover(); panicked != nil {
		_ = c.mysqlConn.Close()
		*err = fmt.Errorf("%w: the answer cannot be read: %v", mysql.ErrInvalidConn, panicked)
	}
}

// left closes a connection whose server takes no writes any more, such as a demoted primary: it is left, and
// not asked again. The error is driver.ErrBadConn, and what the server said.
func (c *boundedConn) left(err error) error {
	if !IsMySQL(err, optionPrevents, readOnlyTransaction, readOnlyMode) {
		return err
	}
	_ = c.Close()
	return leftError{err}
}

// leftError is what the server said, and driver.ErrBadConn for database/sql.
type leftError struct{ error }

func (e leftError) Unwrap() []error { return []error{e.error, driver.ErrBadConn} }

// answered notes that the server has answered. What it has not answered before the end of a context is ErrUnanswered, so
// that it is not taken for one that had no connection by then.
func (c *boundedConn) answered(ctx context.Context, err error) error {
	_, rejected := errors.AsType[*mysql.MySQLError](err)
	switch {
	case c.heard != nil && (err == nil || rejected):
		c.heard.Store(time.Now().UnixNano())
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ErrUnanswered, err)
	}
	return err
}

// ExecContext executes a statement. ErrUnanswered: the server did not answer before the deadline.
func (c *boundedConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (_ driver.Result, err error) {
	defer c.unreadable(&err)
	bounded := c.bound(ctx)
	result, err := c.mysqlConn.ExecContext(bounded, query, args)
	return result, c.left(c.answered(bounded, err))
}

// QueryContext is ExecContext for a statement that returns rows. The deadline includes their reading.
func (c *boundedConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (_ driver.Rows, err error) {
	defer c.unreadable(&err)
	bounded := c.bound(ctx)
	rows, err := c.mysqlConn.QueryContext(bounded, query, args)
	if err = c.answered(bounded, err); err != nil {
		return nil, c.left(err)
	}
	return boundedRows{rows, c}, nil
}

// boundedRows are read to their end before they are closed. go-sql-driver no longer heeds the
// context while it closes them, and would wait for what is left of the answer for ever.
type boundedRows struct {
	driver.Rows
	conn *boundedConn
}

func (r boundedRows) Next(row []driver.Value) (err error) {
	defer r.conn.unreadable(&err)
	return r.Rows.Next(row)
}

// Close reads what is left, which ends with the context, and frees the connection. The
// error says that the answer was not read to its end.
func (r boundedRows) Close() error {
	err := r.drain()
	return errors.Join(err, r.Rows.Close())
}

func (r boundedRows) drain() (err error) {
	for err == nil {
		row := make([]driver.Value, len(r.Columns()))
		for err == nil {
			err = r.Next(row)
		}
		if errors.Is(err, io.EOF) {
			err = r.NextResultSet()
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func (r boundedRows) HasNextResultSet() bool {
	results, ok := r.Rows.(driver.RowsNextResultSet)
	return ok && results.HasNextResultSet()
}

func (r boundedRows) NextResultSet() (err error) {
	defer r.conn.unreadable(&err)
	if results, ok := r.Rows.(driver.RowsNextResultSet); ok {
		return results.NextResultSet()
	}
	return io.EOF
}

func (c *boundedConn) PrepareContext(ctx context.Context, query string) (_ driver.Stmt, err error) {
	defer c.unreadable(&err)
	return c.mysqlConn.PrepareContext(c.bound(ctx), query)
}

func (c *boundedConn) Ping(ctx context.Context) (err error) {
	defer c.unreadable(&err)
	return c.mysqlConn.Ping(c.bound(ctx))
}

func (c *boundedConn) ResetSession(ctx context.Context) error {
	c.release()
	return c.mysqlConn.ResetSession(ctx)
}

func (c *boundedConn) Close() error {
	c.release()
	return c.mysqlConn.Close()
}

// BeginTx begins a transaction that lasts no longer than ctx, and no longer than
// limit where ctx has no deadline. ErrUnanswered: the server did not answer.
func (c *boundedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (_ driver.Tx, err error) {
	defer c.unreadable(&err)
	bounded := c.bound(ctx)
	_, err = c.mysqlConn.BeginTx(bounded, opts)
	if err = c.answered(bounded, err); err != nil {
		return nil, err
	}
	c.until, _ = bounded.Deadline()
	return &boundedTx{conn: c, ctx: ctx, until: c.until}, nil
}

// boundedTx is a transaction whose end has a deadline.
type boundedTx struct {
	conn  *boundedConn
	ctx   context.Context //nolint:containedctx // driver.Tx commits without one
	until time.Time
}

// Commit sends the commit before the deadline of the transaction, or not at all:
// what was answered too late, its process paused meanwhile, is never committed.
// ErrUnanswered: it was sent, and may have happened. ErrNotSent: it was not.
func (t *boundedTx) Commit() error {
	if err := t.expired(); err != nil {
		_ = t.abandon() // the server rolls back, whenever it sees that
		return fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	ctx, free := Outlasting(t.ctx, t.until.Add(AnswerWithin))
	defer free()
	err := t.end(ctx, "COMMIT")
	if err == nil {
		return nil
	}
	_ = t.abandon() // whatever the server made of it, the transaction ends with its connection
	if _, answered := errors.AsType[*mysql.MySQLError](err); answered {
		return err
	}
	if errors.Is(err, driver.ErrBadConn) { // the driver wrote nothing
		return fmt.Errorf("%w: the connection is closed", ErrNotSent)
	}
	return fmt.Errorf("%w: %w", ErrUnanswered, err)
}

// Rollback rolls back, or closes the connection where that is not answered.
func (t *boundedTx) Rollback() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), rollbackWithin)
	defer cancel()
	err := t.end(ctx, "ROLLBACK")
	if err != nil {
		_ = t.abandon()
	}
	return err
}

// expired returns why a commit is not allowed. It compares the clock, too:
// in a process that was paused the context may not have ended yet.
func (t *boundedTx) expired() error {
	if err := t.ctx.Err(); err != nil {
		return err
	}
	if !time.Now().Before(t.until) {
		return context.DeadlineExceeded
	}
	return nil
}

func (t *boundedTx) end(ctx context.Context, statement string) (err error) {
	defer t.conn.unreadable(&err)
	t.conn.release()
	t.conn.until = time.Time{}
	_, err = t.conn.mysqlConn.ExecContext(ctx, statement, nil)
	return err
}

// abandon closes the connection, so that the server rolls back what is open.
func (t *boundedTx) abandon() error {
	t.conn.until = time.Time{}
	return t.conn.Close()
}

// UncutCommit is a context for one statement that commits by itself. Like that of a commit it
// ends a little after ctx, which has a deadline: the answer may be on its way.
func UncutCommit(ctx context.Context) (context.Context, context.CancelFunc) {
	until, _ := ctx.Deadline()
	return Outlasting(ctx, until.Add(AnswerWithin))
}
