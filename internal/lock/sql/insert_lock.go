package sql

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// InsertLock inserts a row with a unique name.
func InsertLock() lock.Entry {
	return lock.Entry{
		Name:       "sql-insert-lock",
		Family:     lock.FamilySQL,
		Summary:    "the owner that inserts the name into a table with a unique key has it; with an owner, a depth and an expiry, and a reaper for the rows of dead holders",
		Needs:      []backend.Name{backend.Database},
		Guarantees: lock.Complete(false),
		Watchdog:   true,
		New:        func(d lock.Deps) lock.Locker { return newInsertLock(d) },
	}
}

// insertLock grants a name to the owner that inserts its row.
type insertLock struct {
	*base
	tokens *Tokens
	host   string
	reaper *reaper // nil: the names of dead holders stay locked
}

func newInsertLock(d lock.Deps) *insertLock {
	b := newBase(d)
	host, err := os.Hostname()
	if err != nil {
		host = "unknown" // it is for people only
	}
	l := &insertLock{base: b, tokens: &Tokens{b}, host: host}
	if !d.Unreaped {
		l.reaper = &reaper{base: b}
		l.reaper.ctx, l.reaper.end = context.WithCancel(context.Background())
	}
	return l
}

func (l *insertLock) Close() error {
	l.reaper.close()
	return nil
}

// record is the row of a name as one Acquire wants it. entry is that Acquire's
// own, whereas an owner may come more than once.
type record struct{ name, owner, entry string }

func (l *insertLock) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	l.reaper.wake()
	r := record{name: name, owner: lock.OwnerOf(ctx), entry: lock.NewOwner()}
	try := func(ctx context.Context) (outcome, error) { return l.try(ctx, r) }
	return l.poll(ctx, name, try, func(grant outcome) *lock.Held { return l.hold(r, grant) })
}

// try takes the name if it is free, or once more if the owner has it.
func (l *insertLock) try(ctx context.Context, r record) (grant outcome, err error) {
	var seen sight
	wrote := false
	err = l.run(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		seen, err = l.look(ctx, conn, r.name)
		switch {
		case err != nil:
			return err
		case !seen.held:
			wrote = true
			grant, err = l.insert(ctx, conn, r)
		case seen.owner == r.owner:
			wrote = true
			grant, err = l.enter(ctx, conn, r, seen)
		}
		return err
	})
	if wrote {
		err = l.doubt(ctx, err, func(ctx context.Context) error { return l.undo(ctx, r, seen) })
	}
	return grant, err
}

// sight is what an Acquire saw of the row.
type sight struct {
	held         bool
	owner, entry string
	token        uint64
}

const lookAtRecord = `SELECT owner, entry, token, expires_at < {now} FROM record_lock WHERE lock_name = ?`

// look reads the row, and has it freed where its time is over.
func (l *insertLock) look(ctx context.Context, conn *sql.Conn, name string) (sight, error) {
	seen := sight{held: true}
	var expired bool
	err := l.query(ctx, conn, lookAtRecord, []any{name}, &seen.owner, &seen.entry, &seen.token, &expired)
	if errors.Is(err, sql.ErrNoRows) {
		return sight{}, nil
	}
	if expired && l.reaper != nil {
		return sight{}, l.reaper.free(ctx, conn, name)
	}
	return seen, err
}

const insertRecord = `INSERT INTO record_lock (lock_name, owner, host, entry, depth, token, expires_at)
	VALUES (?, ?, ?, ?, 1, ?, {until})`

// insert takes a free name. The token is issued in the same transaction, and
// first: inserts queue up for it, and one that finds the name taken rolls its token back.
func (l *insertLock) insert(ctx context.Context, conn *sql.Conn, r record) (grant outcome, err error) {
	err = inTx(ctx, conn, func(tx runner) error {
		token, err := l.tokens.next(ctx, tx, r.name)
		if err != nil {
			return err
		}
		grant = outcome{token, time.Now()}
		_, err = l.exec(ctx, tx, insertRecord, r.name, r.owner, l.host, r.entry, token, l.lifetime())
		return err
	})
	switch {
	case duplicate(err):
		return outcome{}, nil
	case err != nil:
		return outcome{}, err
	default:
		return grant, nil
	}
}

const enterRecord = `UPDATE record_lock SET depth = depth + 1, entry = ?, expires_at = {until}
	WHERE lock_name = ? AND owner = ? AND entry = ? AND token = ? AND expires_at > {now}`

// enter counts one more hold of an owner that has the name, if none was counted since the
// look.
func (l *insertLock) enter(ctx context.Context, conn *sql.Conn, r record, seen sight) (outcome, error) {
	asked := time.Now()
	rows, err := l.exec(ctx, conn, enterRecord, r.entry, l.lifetime(), r.name, r.owner, seen.entry, seen.token)
	if err != nil || rows == 0 {
		return outcome{}, err
	}
	return outcome{seen.token, asked}, nil
}

// hold is the lease of one hold; each prolongs the row by itself.
func (l *insertLock) hold(r record, grant outcome) *lock.Held {
	again := false
	release := func(ctx context.Context) error {
		err := l.release(ctx, r, grant.token, again)
		again = true // it may have left: a repetition must not count down another hold of the owner
		return err
	}
	return l.lease(grant, release, renewRecord, r.name, r.owner, grant.token)
}

const (
	renewRecord = `UPDATE record_lock SET expires_at = {until} WHERE lock_name = ? AND owner = ? AND token = ?`

	endRecord = `DELETE FROM record_lock WHERE lock_name = ? AND owner = ? AND token = ? AND entry = ? AND depth = 1`

	leaveRecord = `UPDATE record_lock SET depth = depth - 1, entry = CASE WHEN entry = ? THEN ? ELSE entry END
		WHERE lock_name = ? AND owner = ? AND token = ?`

	undoRecord = `UPDATE record_lock SET depth = depth - CASE WHEN entry = ? THEN 1 ELSE 0 END, entry = ?
		WHERE lock_name = ? AND entry IN (?, ?)`

	clearRecord = `DELETE FROM record_lock WHERE lock_name = ? AND depth = 0`
)

// release ends a hold; the last one frees the name. Mostly there is but one. The entry in the row is that of the
// last hold: its release takes it away.
func (l *insertLock) release(ctx context.Context, r record, token uint64, again bool) error {
	var ended int64
	err := l.insist(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		ended, err = l.exec(ctx, conn, endRecord, r.name, r.owner, token, r.entry)
		if err == nil && ended == 0 {
			leave, args := leaveRecord, []any{r.entry, lock.NewOwner(), r.name, r.owner, token}
			if again {
				leave, args = leaveRecord+` AND entry = ?`, append(args, r.entry)
			}
			ended, err = l.leave(ctx, conn, r.name, leave, args...)
		}
		return err
	})
	return lock.Released(l.deps.Dialect, ended > 0, err)
}

// undo takes back what an Acquire did whose answer was lost. Where it has done
// nothing yet, it never will: the entry that it expects is gone. An insert whose
// commit is still under way is waited for, since it has the row locked.
//
// Where the same owner has been counted once more since, that is not known; then the row
// outlives its last release by a TTL at the most.
func (l *insertLock) undo(ctx context.Context, r record, seen sight) error {
	return l.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		_, err := l.leave(ctx, conn, r.name, undoRecord, r.entry, lock.NewOwner(), r.name, r.entry, seen.entry)
		return err
	})
}

// leave ends one of several holds, and clears the row with the last.
func (l *insertLock) leave(ctx context.Context, conn *sql.Conn, name, statement string, args ...any) (ended int64, err error) {
	err = inTx(ctx, conn, func(tx runner) (err error) {
		if ended, err = l.exec(ctx, tx, statement, args...); err != nil || ended == 0 {
			return err
		}
		_, err = l.exec(ctx, tx, clearRecord, name)
		return err
	})
	if err != nil {
		return 0, err
	}
	return ended, nil
}
