package backend

import (
	"container/list"
	"context"
	"database/sql/driver"
	"slices"
	"strings"
)

// maxPrepared is the length of all texts that a connection remembers, in bytes. MariaDB takes about
// 150 bytes for each byte of a prepared insert. A text that would push out a quarter of the
// others is not remembered.
const maxPrepared = 48 << 10

// preparingConn has the server prepare what is sent again and again, so that it is parsed once: a third of
// the server's work for the insert of a batch. Because that is a round trip of its own, a text
// is prepared when it comes for the second time while it is remembered. What the server does not prepare
// is sent with its values in the text.
type preparingConn struct {
	mysqlConn

	byText map[string]*list.Element
	recent list.List // of *remembered, the last one that was sent first
	length int       // of all texts
}

// remembered is a text that has been sent.
type remembered struct {
	text    string
	stmt    preparedStmt // nil: not prepared
	refused bool         // it is not to be prepared again
}

// preparedStmt is what go-sql-driver's statement implements.
type preparedStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

func (c *preparingConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	known, err := c.prepared(ctx, text, args, "INSERT", "UPDATE", "DELETE")
	if err != nil {
		return nil, err
	}
	if known != nil {
		result, err := known.stmt.ExecContext(ctx, args)
		if !c.notExecuted(known, err) {
			return result, err
		}
	}
	return c.mysqlConn.ExecContext(ctx, text, args)
}

func (c *preparingConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	known, err := c.prepared(ctx, text, args, "SELECT", "INSERT") // … RETURNING
	if err != nil {
		return nil, err
	}
	if known != nil {
		rows, err := known.stmt.QueryContext(ctx, args)
		if !c.notExecuted(known, err) {
			return rows, err
		}
	}
	return c.mysqlConn.QueryContext(ctx, text, args)
}

// prepared is the prepared statement of a text, or nil: its values are to be sent in the text. Of other verbs than
// these it is always nil. Servers differ in what they prepare of a CALL, a KILL or a SET; and an Exec of a SELECT would
// never end, because MariaDB sends the columns of a prepared statement once, and go-sql-driver 1.10 waits for
// them again. An error is that of the statement: the transaction may have ended with it, so that the text must
// not be sent after it.
func (c *preparingConn) prepared(ctx context.Context, text string, args []driver.NamedValue, verbs ...string) (*remembered, error) {
	verb, _, _ := strings.Cut(text, " ")
	if len(args) == 0 || len(text) > maxPrepared/4 || !slices.Contains(verbs, verb) {
		return nil, nil
	}
	e, ok := c.byText[text]
	if !ok {
		c.remember(text)
		return nil, nil
	}
	c.recent.MoveToFront(e)
	known := e.Value.(*remembered) //nolint:forcetypeassert // there is nothing else
	if known.stmt == nil && !known.refused {
		stmt, err := c.PrepareContext(ctx, text)
		known.stmt, _ = stmt.(preparedStmt)
		known.refused = known.stmt == nil
		if err != nil && !IsMySQL(err, tooManyPrepared, notPreparable) {
			return nil, err
		}
	}
	if known.stmt == nil {
		return nil, nil
	}
	return known, nil
}

// remember remembers a text, and forgets those that have not been sent for the longest time.
func (c *preparingConn) remember(text string) {
	if c.byText == nil {
		c.byText = make(map[string]*list.Element)
	}
	c.byText[text] = c.recent.PushFront(&remembered{text: text})
	for c.length += len(text); c.length > maxPrepared; {
		old := c.recent.Remove(c.recent.Back()).(*remembered) //nolint:forcetypeassert // there is nothing else
		delete(c.byText, old.text)
		c.length -= len(old.text)
		old.close()
	}
}

// notExecuted reports that the server did not execute a statement because it has lost it. It is sent
// as a text from then on.
func (*preparingConn) notExecuted(known *remembered, err error) bool {
	if !IsMySQL(err, unknownPrepared, changedPrepared) {
		return false
	}
	known.close()
	known.stmt, known.refused = nil, true
	return true
}

func (r *remembered) close() {
	if r.stmt != nil {
		_ = r.stmt.Close() // is not answered
	}
}

// The errors after which the text can be sent instead: nothing was executed, and the transaction is open.
const (
	unknownPrepared = 1243 // it is not known: a proxy has another connection to the server
	notPreparable   = 1295
	tooManyPrepared = 1461 // max_prepared_stmt_count
	changedPrepared = 1615 // its tables change, or too few tables stay open
)
