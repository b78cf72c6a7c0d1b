package sourcelock

import (
	"context"
	_ "embed" // for the script
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// The sides of one read-write lock, which readers share and a writer has alone. The sources
// name that of Redisson. None of them is reentrant.
const (
	// ReadWrite is what the history calls it: the two sides exclude each other.
	ReadWrite = "read-write-lock"
	// ReadLock and WriteLock are renewed by a watchdog. New readers come in while a
	// writer waits.
	ReadLock  = "read-lock"
	WriteLock = "write-lock"
	// ReadLockUnrenewed expires after its TTL, and its holder does not learn of it.
	ReadLockUnrenewed = "read-lock-unrenewed"
	// WriteLockAnnounced keeps new readers out from when it is first asked for.
	WriteLockAnnounced = "write-lock-announced"
)

func readWriteLocks() []lock.Entry {
	return []lock.Entry{
		side(ReadLock, "a set of readers with the time at which each expires, renewed", readWrite{take: "read", shared: true, renewed: true}),
		side(ReadLockUnrenewed, "the same, never renewed", readWrite{take: "read", shared: true}),
		side(WriteLock, "a key beside the set, taken where both are empty, renewed", readWrite{take: "write", renewed: true}),
		side(WriteLockAnnounced, "the same; a third key keeps new readers out", readWrite{take: "announce", renewed: true}),
	}
}

func side(name, summary string, l readWrite) lock.Entry {
	e := inKeys(backend.Redis, ReadWrite, summary, l)
	e.Name = name
	return e
}

//go:embed lua/read_write.lua
var readWriteScript string

// readWrite is one side of the lock. It tries again after each pause.
type readWrite struct {
	keys

	take            string // what its script does to acquire
	shared, renewed bool
}

// Mode is how its leases are recorded.
func (l *readWrite) Mode() (kind string, shared bool) { return ReadWrite, l.shared }

// Acquire tries until ctx ends.
func (l *readWrite) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	hold := lock.NewOwner()
	release := func(ctx context.Context) error {
		if held, err := l.run(ctx, "release", name, hold); err != nil || held {
			return err
		}
		return lock.ErrLost
	}
	for {
		asked := time.Now()
		won, err := l.run(ctx, l.take, name, hold)
		switch {
		case err != nil:
			lock.TakeBack(ctx, release)
			return nil, lock.NotAcquired(ctx, string(backend.Redis), err)
		case won:
			lease := lock.NewHeld(0, release)
			if l.renewed {
				lock.Watch(lease, asked, l.deps.TTL, func(ctx context.Context) (bool, error) { return l.run(ctx, "renew", name, hold) })
			}
			return lock.Granted(ctx, lease)
		}
		if pause.About(ctx, l.deps.Retry) != nil {
			lock.TakeBack(ctx, release) // of the announcement
			return nil, lock.NotAcquired(ctx, string(backend.Redis), nil)
		}
	}
}

// run does something of the script for a hold, and reports whether it returned 1.
func (l *readWrite) run(ctx context.Context, act, name, hold string) (bool, error) {
	writer := l.key(name)
	return redis.NewScript(readWriteScript).Run(ctx, l.deps.Redis, []string{writer, writer + ":readers", writer + ":wanted"}, act, hold, l.deps.TTL.Milliseconds()).Bool()
}
