package sql

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// VersionLock updates a row with an expiry where its version is unchanged.
func VersionLock() lock.Entry {
	return lock.Entry{
		Name:       "sql-version-lock",
		Family:     lock.FamilySQL,
		Summary:    "compare-and-set of a version in the name's row, with an owner and an expiry; the version is the token",
		Needs:      []backend.Name{backend.Database},
		Guarantees: lock.Complete(false),
		Watchdog:   true,
		New:        func(d lock.Deps) lock.Locker { return lock.NewReentrant(versionLock{newBase(d)}) },
	}
}

// versionLock grants a name to the owner that increments the version that it has read.
type versionLock struct{ *base }

func (l versionLock) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	owner := lock.NewOwner()
	try := func(ctx context.Context) (outcome, error) { return l.try(ctx, name, owner) }
	return l.poll(ctx, name, try, func(grant outcome) *lock.Held {
		release := func(ctx context.Context) error { return l.release(ctx, name, owner, grant.token) }
		return l.lease(grant, release, renewVersion, name, owner, grant.token)
	})
}

const (
	lookAtVersion = `SELECT version, owner = '' OR expires_at < {now} FROM distribute_lock
		WHERE lock_name = ? AND kind = 'version'`

	insertVersion = `INSERT INTO distribute_lock (lock_name, kind, version) VALUES (?, 'version', ?)`

	takeVersion = `UPDATE distribute_lock SET owner = ?, version = version + 1, expires_at = {until}
		WHERE lock_name = ? AND kind = 'version' AND version = ? AND (owner = '' OR expires_at < {now})`
)

func (l versionLock) try(ctx context.Context, name, owner string) (grant outcome, err error) {
	var seen uint64
	wrote := false
	err = l.run(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		seen, wrote, err = l.look(ctx, conn, name)
		if err != nil || !wrote {
			return err
		}
		asked := time.Now()
		rows, err := l.exec(ctx, conn, takeVersion, owner, l.lifetime(), name, seen)
		if err == nil && rows == 1 {
			grant = outcome{seen + 1, asked}
		}
		return err
	})
	if wrote {
		err = l.doubt(ctx, err, func(ctx context.Context) error { return l.undo(ctx, name, owner, seen) })
	}
	return grant, err
}

// look reads the row, and makes it where the name is new: above the floor, because a
// version is a token (see Tokens).
func (l versionLock) look(ctx context.Context, conn *sql.Conn, name string) (version uint64, free bool, err error) {
	err = l.query(ctx, conn, lookAtVersion, []any{name}, &version, &free)
	if !errors.Is(err, sql.ErrNoRows) {
		return version, free, err
	}
	err = inTx(ctx, conn, func(tx runner) (err error) {
		if version, err = l.holdFloor(ctx, tx); err != nil {
			return err
		}
		_, err = l.exec(ctx, tx, insertVersion, name, version)
		return err
	})
	if duplicate(err) {
		return 0, false, nil // another one was faster
	}
	return version, err == nil, err
}

const (
	renewVersion = `UPDATE distribute_lock SET expires_at = {until}
		WHERE lock_name = ? AND kind = 'version' AND owner = ? AND version = ?`

	releaseVersion = `UPDATE distribute_lock SET owner = ''
		WHERE lock_name = ? AND kind = 'version' AND owner = ? AND version = ?`

	undoVersion = `UPDATE distribute_lock SET owner = '', version = version + 1
		WHERE lock_name = ? AND kind = 'version' AND (owner = ? OR version = ? AND (owner = '' OR expires_at < {now}))`
)

func (l versionLock) release(ctx context.Context, name, owner string, version uint64) error {
	var rows int64
	err := l.insist(ctx, func(ctx context.Context, conn *sql.Conn) (err error) {
		rows, err = l.exec(ctx, conn, releaseVersion, name, owner, version)
		return err
	})
	return lock.Released(l.deps.Dialect, rows > 0, err)
}

// undo takes back what an Acquire did whose answer was lost; its owner is its
// own. Where it has done nothing yet, it never will: the version that it expects
// is gone.
func (l versionLock) undo(ctx context.Context, name, owner string, seen uint64) error {
	return l.run(ctx, func(ctx context.Context, conn *sql.Conn) error {
		_, err := l.exec(ctx, conn, undoVersion, name, owner, seen)
		return err
	})
}
