package sql

import (
	"context"

	"github.com/stockd/stockd/internal/lock"
)

// ServerName is an expression for the name of a named lock.
const ServerName = serverName

// InsertLocker is sql-insert-lock with what its reaper does by itself.
type InsertLocker struct{ *insertLock }

// NewInsertLocker makes the insert lock with a reaper, or without.
func NewInsertLocker(d lock.Deps, reaping bool) InsertLocker {
	d.Unreaped = !reaping
	return InsertLocker{newInsertLock(d)}
}

// Reap has the reaper work once.
func (l InsertLocker) Reap(ctx context.Context) error {
	_, err := l.reaper.reap(ctx)
	return err
}

// Rests reports whether no round of the reaper is to come.
func (l InsertLocker) Rests() bool {
	l.reaper.mu.Lock()
	defer l.reaper.mu.Unlock()
	return l.reaper.timer == nil
}

// Free has the reaper free one name, as a waiter does that has seen it
// expire.
func (l InsertLocker) Free(ctx context.Context, name string) error {
	return l.reaper.free(ctx, l.deps.DB, name)
}
