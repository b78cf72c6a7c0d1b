// Package sql has the locks in the rows and named locks of a database.
package sql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

const (
	// waitSlice is how long a server waits for a name before it answers that it
	// is not free yet, so that the waiter can look at its context.
	waitSlice = time.Second
	// answerWithin bounds the answer to a few statements: those that nothing keeps
	// waiting, beside a slice that they may spend waiting for a row.
	answerWithin = waitSlice + 2*time.Second
)

// errSilent tells that the database took statements and did not answer. It
// hides what the driver made of that, lest it be taken for a context's end.
var errSilent = errors.New("no answer in time")

// base is what the locks in SQL share: the connections, and the words in
// which a dialect speaks of the time.
type base struct {
	deps  lock.Deps // not embedded: their Close would be the lock's, and end the clients that all share
	polls *lock.Polling
	words *strings.Replacer
}

// newBase takes its part of the dependencies. In statements {now} is the time
// by the database's clock, {until} the time that lies as many microseconds ahead as its
// parameter says, and {lock} ends a read whose rows are kept from every other writer.
func newBase(d lock.Deps) *base {
	words := strings.NewReplacer(
		`{lock}`, ``,
		`{now}`, `strftime('%Y-%m-%d %H:%M:%f', 'now')`,
		`{until}`, `strftime('%Y-%m-%d %H:%M:%f', 'now', (? / 1e6) || ' seconds')`)
	if d.Dialect == string(backend.MySQL) {
		words = strings.NewReplacer(
			`{lock}`, ` FOR UPDATE`,
			`{now}`, `UTC_TIMESTAMP(6)`,
			`{until}`, `UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND`)
	}
	return &base{d, lock.NewPolling(d.Retry, d.TriedInVain), words}
}

// lifetime is the parameter of {until}: the TTL, and what the database may lose
// by rounding, so that it never lets go before the holder does.
func (b *base) lifetime() int64 { return (b.deps.TTL + time.Millisecond).Microseconds() }

// outcome is what a write has won; a token of 0: nothing.
type outcome struct {
	token uint64
	asked time.Time // just before the write: the database counts the TTL from later
}

func (o outcome) won() bool { return o.token != 0 }

// poll tries to take a name until it is won. Between two tries a waiter locks nothing, and
// holds no connection.
func (b *base) poll(ctx context.Context, name string, try func(context.Context) (outcome, error), hold func(outcome) *lock.Held) (lock.Lease, error) {
	waiter := b.polls.Begin(name)
	defer waiter.End()
	for ctx.Err() == nil {
		grant, err := try(ctx)
		switch {
		case grant.won():
			return lock.Granted(ctx, hold(grant))
		case err != nil && !b.contended(err):
			return nil, lock.NotAcquired(ctx, b.deps.Dialect, err)
		}
		waiter.Pause(ctx)
	}
	return nil, lock.NotAcquired(ctx, b.deps.Dialect, nil)
}

// lease is the lease of a row that a statement prolongs; its first parameter is {until}. One try takes a
// part of the TTL only: the next one has another connection.
func (b *base) lease(grant outcome, release func(context.Context) error, renew string, args ...any) *lock.Held {
	held := lock.NewHeld(grant.token, b.deps.Repeated(release))
	args = append([]any{b.lifetime()}, args...)
	b.deps.Keep(held, grant.asked, func(ctx context.Context) (still bool, err error) {
		ctx, cancel := context.WithTimeout(ctx, min(answerWithin, b.deps.TTL/3))
		defer cancel()
		rows, err := b.exec(ctx, b.deps.DB, renew, args...)
		return rows == 1, err
	})
	return held
}

// runner is a connection, a transaction on one, or the pool.
type runner interface {
	ExecContext(ctx context.Context, statement string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, statement string, args ...any) *sql.Row
}

// exec runs a statement and tells how many rows it wrote.
func (b *base) exec(ctx context.Context, on runner, statement string, args ...any) (rows int64, err error) {
	result, err := on.ExecContext(ctx, b.words.Replace(statement), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query reads one row; sql.ErrNoRows: there is none.
func (b *base) query(ctx context.Context, on runner, statement string, args []any, into ...any) error {
	return on.QueryRowContext(ctx, b.words.Replace(statement), args...).Scan(into...)
}

// run gives do a connection for a few statements, in the course of a wait. To
// wait for the connection is part of it and ends with ctx. The statements are
// not cut off with ctx: the server might carry out what no caller expects any more.
func (b *base) run(ctx context.Context, do func(context.Context, *sql.Conn) error) error {
	conn, err := b.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	return answered(ctx, func(ctx context.Context) error { return do(ctx, conn) })
}

// conn is a connection of the pool. Where all are in use, the wait for one ends
// with ctx. Where one has to be made, it is the server that we wait for.
func (b *base) conn(ctx context.Context) (conn *sql.Conn, err error) {
	if !b.spare(1) {
		return b.deps.DB.Conn(ctx)
	}
	err = answered(ctx, func(ctx context.Context) error {
		conn, err = b.deps.DB.Conn(ctx)
		return err
	})
	return conn, err
}

// spare reports whether n more connections than those in use may be had.
func (b *base) spare(n int) bool {
	stats := b.deps.DB.Stats()
	return stats.MaxOpenConnections == 0 || stats.InUse+n <= stats.MaxOpenConnections
}

// answered runs do and bounds the database's answer.
func answered(ctx context.Context, do func(context.Context) error) error {
	own, end := backend.Uncut(ctx)
	defer end()
	own, cancel := context.WithTimeout(own, answerWithin)
	defer cancel()
	err := do(own)
	if err != nil && own.Err() != nil {
		return fmt.Errorf("%w: %v", errSilent, err) //nolint:errorlint // hides DeadlineExceeded on purpose
	}
	return err
}

// insist runs do in order to give something back: on a context of its own, and
// again where others are in the way.
func (b *base) insist(ctx context.Context, do func(context.Context, *sql.Conn) error) error {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	for {
		err := b.run(own, do)
		if !b.contended(err) || pause.About(own, b.deps.Retry) != nil {
			return err
		}
	}
}

// doubt takes back what a write may have done that failed, and returns the
// failure. Where the wait ended in the midst of it, that is none: the server has
// answered just before, and had it wait for a row.
func (b *base) doubt(ctx context.Context, err error, undo func(context.Context) error) error {
	if err == nil || b.contended(err) {
		return err
	}
	lock.TakeBack(ctx, b.deps.Repeated(undo))
	if ctx.Err() != nil && errors.Is(err, errSilent) {
		return nil
	}
	return err
}

// contended reports whether a statement came to nothing because others were in
// its way. SQLite is a file and never silent: there it was another writer's turn.
func (b *base) contended(err error) bool {
	if errors.Is(err, errSilent) {
		return b.deps.Dialect != string(backend.MySQL)
	}
	fault := backend.FaultOf(err)
	return fault == backend.Locked || fault == backend.Conflict
}

// duplicate reports whether a name was there already.
func duplicate(err error) bool { return backend.FaultOf(err) == backend.Duplicate }
