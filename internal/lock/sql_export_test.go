package lock

import "context"

// InsertLock is sql-insert-lock with what its reaper does by itself.
type InsertLock struct{ *insertLock }

// NewInsertLock makes the insert lock with a reaper, or without.
func NewInsertLock(d Deps, reaping bool) InsertLock {
	d.Unreaped = !reaping
	return InsertLock{newInsertLock(d)}
}

// Reap has the reaper work once.
func (l InsertLock) Reap(ctx context.Context) error {
	_, err := l.reaper.reap(ctx)
	return err
}

// Free has the reaper free one name, as somebody does who has seen its time to
// be over.
func (l InsertLock) Free(ctx context.Context, name string) error {
	return l.reaper.free(ctx, l.db, name)
}
