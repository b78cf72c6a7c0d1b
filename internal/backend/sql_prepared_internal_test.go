package backend

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// preparer is a server that notes what it gets: "text: …", "prepare: …" and "prepared: …".
type preparer struct {
	mysqlConn

	got    []string
	answer func(got string) error // nil: it does all
	open   int                    // statements that are prepared
}

func (p *preparer) take(got string) error {
	p.got = append(p.got, got)
	if p.answer == nil {
		return nil
	}
	return p.answer(got)
}

func (p *preparer) ExecContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, p.take("text: " + text)
}

func (p *preparer) QueryContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	return new(found), p.take("text: " + text)
}

func (p *preparer) PrepareContext(_ context.Context, text string) (driver.Stmt, error) {
	if err := p.take("prepare: " + text); err != nil {
		return nil, err
	}
	p.open++
	return &preparedOf{p: p, text: text}, nil
}

// preparedOf is a prepared statement of a preparer.
type preparedOf struct {
	driver.Stmt

	p    *preparer
	text string
}

func (s *preparedOf) ExecContext(context.Context, []driver.NamedValue) (driver.Result, error) {
	return driver.ResultNoRows, s.p.take("prepared: " + s.text)
}

func (s *preparedOf) QueryContext(context.Context, []driver.NamedValue) (driver.Rows, error) {
	return new(found), s.p.take("prepared: " + s.text)
}

func (s *preparedOf) Close() error { s.p.open--; return nil }

// ways are how a statement is sent.
func ways(t *testing.T, c *preparingConn) map[string]func(text string, values ...driver.NamedValue) error {
	return map[string]func(string, ...driver.NamedValue) error{
		"exec": func(text string, values ...driver.NamedValue) error {
			_, err := c.ExecContext(t.Context(), text, values)
			return err
		},
		"query": func(text string, values ...driver.NamedValue) error {
			_, err := c.QueryContext(t.Context(), text, values)
			return err
		},
	}
}

func eachWay(t *testing.T, test func(t *testing.T, p *preparer, send func(string, ...driver.NamedValue) error)) {
	t.Helper()
	for way := range ways(t, nil) {
		t.Run(way, func(t *testing.T) {
			p := new(preparer)
			test(t, p, ways(t, &preparingConn{mysqlConn: p})[way])
		})
	}
}

func (p *preparer) assertGot(t *testing.T, want ...string) {
	t.Helper()
	should.Equal(t, p.got, want, "the server got")
}

var one = driver.NamedValue{Ordinal: 1, Value: int64(1)}

func TestAStatementIsPreparedWhenItComesAgain(t *testing.T) {
	eachWay(t, func(t *testing.T, p *preparer, send func(string, ...driver.NamedValue) error) {
		for _, text := range []string{"INSERT A ?", "INSERT B ?", "INSERT A ?", "INSERT A ?", "INSERT B ?"} {
			must.Do(t, send(text, one))
		}
		p.assertGot(t, "text: INSERT A ?", "text: INSERT B ?", "prepare: INSERT A ?", "prepared: INSERT A ?", "prepared: INSERT A ?", "prepare: INSERT B ?", "prepared: INSERT B ?")
	})
}

// What has no values is nothing to save, other verbs are answered otherwise by some servers, and a long text
// would push out the others.
func TestSomeStatementsAreNeverPrepared(t *testing.T) {
	long := "INSERT " + strings.Repeat("?", maxPrepared/4+1)
	for text, values := range map[string][]driver.NamedValue{"INSERT 1": nil, "CALL p(?)": {one}, "KILL ?": {one}, long: {one}} {
		eachWay(t, func(t *testing.T, p *preparer, send func(string, ...driver.NamedValue) error) {
			for range 3 {
				must.Do(t, send(text, values...))
			}
			p.assertGot(t, "text: "+text, "text: "+text, "text: "+text)
		})
	}
}

// With MariaDB the driver would wait for the rows of a prepared statement for ever.
func TestAnExecOfRowsIsNotPrepared(t *testing.T) {
	p := new(preparer)
	exec := ways(t, &preparingConn{mysqlConn: p})["exec"]
	for range 3 {
		must.Do(t, exec("SELECT ?", one))
	}
	p.assertGot(t, "text: SELECT ?", "text: SELECT ?", "text: SELECT ?")
}

func TestWhatCannotBePreparedIsSentAsText(t *testing.T) {
	for _, number := range []uint16{tooManyPrepared, notPreparable} {
		eachWay(t, func(t *testing.T, p *preparer, send func(string, ...driver.NamedValue) error) {
			p.answer = func(got string) error {
				if strings.HasPrefix(got, "prepare: ") {
					return fmt.Errorf("refused: %w", &mysql.MySQLError{Number: number})
				}
				return nil
			}
			for range 3 {
				must.Do(t, send("INSERT A ?", one))
			}
			p.assertGot(t, "text: INSERT A ?", "prepare: INSERT A ?", "text: INSERT A ?", "text: INSERT A ?")
		})
	}
}

// The transaction may have ended with the error, as that of a deadlock does: a statement that was sent after it would
// commit by itself.
func TestNothingIsSentAfterAnErrorOfPreparing(t *testing.T) {
	for _, err := range []error{&mysql.MySQLError{Number: mysqlDeadlock}, driver.ErrBadConn, context.DeadlineExceeded} {
		eachWay(t, func(t *testing.T, p *preparer, send func(string, ...driver.NamedValue) error) {
			must.Do(t, send("INSERT A ?", one))
			p.answer = func(string) error { return err }
			should.Fail(t, send("INSERT A ?", one), err, "it is answered with")
			p.answer = nil
			must.Do(t, send("INSERT A ?", one))
			p.assertGot(t, "text: INSERT A ?", "prepare: INSERT A ?", "text: INSERT A ?")
		})
	}
}

func TestAStatementThatTheServerHasLostIsSentAsText(t *testing.T) {
	for _, number := range []uint16{unknownPrepared, changedPrepared} {
		eachWay(t, func(t *testing.T, p *preparer, send func(string, ...driver.NamedValue) error) {
			p.answer = func(got string) error {
				if strings.HasPrefix(got, "prepared: ") {
					return &mysql.MySQLError{Number: number}
				}
				return nil
			}
			for range 3 {
				must.Do(t, send("INSERT A ?", one))
			}
			p.assertGot(t, "text: INSERT A ?", "prepare: INSERT A ?", "prepared: INSERT A ?", "text: INSERT A ?", "text: INSERT A ?")
			should.Be(t, p.open, 0, "statements stay prepared")
		})
	}
}

// Any other error of an execution is the answer: the server may have executed it.
func TestAnErrorOfAnExecutionIsItsAnswer(t *testing.T) {
	eachWay(t, func(t *testing.T, p *preparer, send func(string, ...driver.NamedValue) error) {
		fails := &mysql.MySQLError{Number: mysqlDeadlock}
		p.answer = func(got string) error {
			if strings.HasPrefix(got, "prepared: ") {
				return fails
			}
			return nil
		}
		must.Do(t, send("INSERT A ?", one))
		should.Fail(t, send("INSERT A ?", one), fails)
		p.assertGot(t, "text: INSERT A ?", "prepare: INSERT A ?", "prepared: INSERT A ?")
	})
}

// The texts have a bound together, and those go that were not sent for the longest time.
func TestAConnectionRemembersOnlySoMuch(t *testing.T) {
	p := new(preparer)
	c := &preparingConn{mysqlConn: p}
	send := ways(t, c)["exec"]
	text := func(i int) string { return fmt.Sprintf("INSERT %02d", i) + strings.Repeat("?", maxPrepared/8-9) }
	for i := range 9 { // one more than it remembers
		for range 2 {
			must.Do(t, errors.Join(send(text(i), one), send(text(0), one)))
		}
	}
	if p.open != 8 || c.length > maxPrepared {
		t.Errorf("%d statements stay prepared, with %d bytes, want 8 with %d at most", p.open, c.length, maxPrepared)
	}
	p.got = nil
	must.Do(t, errors.Join(send(text(0), one), send(text(2), one), send(text(1), one)))
	p.assertGot(t, "prepared: "+text(0), "prepared: "+text(2), "text: "+text(1))
}
