// Package sourcelock has locks as the sources first write them, with their known
// failures. Experiments contend for them; no strategy sells through them.
package sourcelock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// The locks.
const (
	// InsertOnce inserts the name once, and gets lock.ErrNotAcquired where it is taken.
	InsertOnce = "plain-insert"
	// InsertLoop inserts it repeatedly. It is not reentrant.
	InsertLoop = "plain-insert-loop"
)

// Registry lists them.
func Registry() []lock.Entry {
	return []lock.Entry{
		{
			Name: InsertOnce, Family: lock.FamilySQL, Needs: []backend.Name{backend.MySQL},
			Summary:    "INSERT of the name into a table with a unique key; a client that finds it taken gives up",
			Guarantees: lock.Guarantees{Exclusive: true, ReleasesOnlyItsOwn: true},
			New:        func(d lock.Deps) lock.Locker { return &insert{Deps: d} },
		},
		{
			Name: InsertLoop, Family: lock.FamilySQL, Needs: []backend.Name{backend.MySQL},
			Summary:    "the same in a loop, without an owner, an expiry and a depth",
			Guarantees: lock.Guarantees{Exclusive: true, ReleasesOnlyItsOwn: true},
			New:        func(d lock.Deps) lock.Locker { return &insert{Deps: d, loop: true} },
		},
	}
}

type insert struct {
	lock.Deps

	loop bool
}

// The table has what the source gives it: a name that is unique, and by whom it
// was inserted, so that no client deletes the row of another.
const (
	createTable = `CREATE TABLE IF NOT EXISTS lab_record_lock (lock_name VARCHAR(255) NOT NULL PRIMARY KEY, uuid VARCHAR(64) NOT NULL)`
	insertName  = `INSERT INTO lab_record_lock (lock_name, uuid) VALUES (?, ?)`
	deleteName  = `DELETE FROM lab_record_lock WHERE lock_name = ? AND uuid = ?`
	dropTable   = `DROP TABLE IF EXISTS lab_record_lock`
)

// Acquire inserts the name.
func (l *insert) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	if _, err := l.DB.ExecContext(ctx, createTable); err != nil {
		return nil, fmt.Errorf("insert %s: %w", name, err)
	}
	row := &lease{db: l.DB, name: name, uuid: rand.Text()}
	row.ctx, row.end = context.WithCancel(context.WithoutCancel(ctx))
	for {
		_, err := l.DB.ExecContext(ctx, insertName, name, row.uuid)
		switch {
		case err == nil:
			return row, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w: %w", lock.ErrNotAcquired, context.Cause(ctx))
		case !isDuplicate(err):
			return nil, fmt.Errorf("insert %s: %w", name, err)
		case !l.loop:
			return nil, fmt.Errorf("%w: %w", lock.ErrNotAcquired, err)
		}
		time.Sleep(l.Retry)
	}
}

// Close removes the table: its locks end with the experiment.
func (l *insert) Close() error {
	_, err := l.DB.ExecContext(context.Background(), dropTable)
	return err
}

func isDuplicate(err error) bool {
	const duplicateEntry = 1062
	answer, ok := errors.AsType[*mysql.MySQLError](err)
	return ok && answer.Number == duplicateEntry
}

// lease is the row of a name. It has no time to live: only its release ends it.
type lease struct {
	db         *sql.DB
	name, uuid string
	ctx        context.Context
	end        context.CancelFunc
}

func (*lease) Token() uint64              { return 0 }
func (l *lease) Context() context.Context { return l.ctx }

// Release deletes the row.
func (l *lease) Release(ctx context.Context) error {
	defer l.end()
	_, err := l.db.ExecContext(ctx, deleteName, l.name, l.uuid)
	return err
}
