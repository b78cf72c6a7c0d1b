package sourcelock

import (
	"context"
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
		side(ReadLock, "a set of readers with the time at which each expires, renewed", readWrite{take: takeRead, shared: true, renewed: true}),
		side(ReadLockUnrenewed, "the same, never renewed", readWrite{take: takeRead, shared: true}),
		side(WriteLock, "a key beside the set, taken where both are empty, renewed", readWrite{take: takeWrite, renewed: true}),
		side(WriteLockAnnounced, "the same; a third key keeps new readers out", readWrite{take: takeAnnounced, renewed: true}),
	}
}

func side(name, summary string, l readWrite) lock.Entry {
	e := inKeys(backend.Redis, ReadWrite, summary, func(k keys) lock.Locker {
		one := l
		one.keys = k
		return &one
	})
	e.Name = name
	return e
}

// Each script gets the keys of the writer, the readers and the announcement, and the id of the
// hold and the TTL in ms. Readers expire one by one, by the clock of Redis: a set has one
// expiry only, and a reader that died must not hide behind those that live.
const (
	readersOfNow = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
`
	addReader = `
redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[2], math.max(ARGV[2], redis.call('PTTL', KEYS[2])))`
	takeRead = readersOfNow + `
if redis.call('EXISTS', KEYS[1], KEYS[3]) > 0 then return 0 end` + addReader + `
return 1`
	takeWrite = readersOfNow + `
if redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`
	takeAnnounced = readersOfNow + `
if redis.call('EXISTS', KEYS[1], KEYS[2]) > 0 then
  redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('DEL', KEYS[3])
return 1`
	renewSide = readersOfNow + `
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return 0 end` + addReader + `
return 1`
	releaseSide = `
local held = redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('GET', KEYS[1]) == ARGV[1] then held = redis.call('DEL', KEYS[1]) end
if redis.call('GET', KEYS[3]) == ARGV[1] then redis.call('DEL', KEYS[3]) end
return held`
)

// readWrite is one side of the lock. It tries again after each pause.
type readWrite struct {
	keys

	take            string
	shared, renewed bool
}

// Mode is how its leases are recorded.
func (l *readWrite) Mode() (kind string, shared bool) { return ReadWrite, l.shared }

// Acquire tries until ctx ends.
func (l *readWrite) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	hold := lock.NewOwner()
	release := func(ctx context.Context) error {
		if held, err := l.run(ctx, releaseSide, name, hold); err != nil || held {
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
				lock.Watch(lease, asked, l.deps.TTL, func(ctx context.Context) (bool, error) { return l.run(ctx, renewSide, name, hold) })
			}
			return lock.Granted(ctx, lease)
		}
		if pause.About(ctx, l.deps.Retry) != nil {
			lock.TakeBack(ctx, release) // of the announcement
			return nil, lock.NotAcquired(ctx, string(backend.Redis), nil)
		}
	}
}

// run runs a script for a hold, and reports whether it returned 1.
func (l *readWrite) run(ctx context.Context, script, name, hold string) (bool, error) {
	writer := l.key(name)
	return redis.NewScript(script).Run(ctx, l.deps.Redis, []string{writer, writer + ":readers", writer + ":wanted"}, hold, l.deps.TTL.Milliseconds()).Bool()
}
