package redis

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// Reentrant counts the holds of an owner in a hash.
func Reentrant() lock.Entry {
	return lock.Entry{
		Name:       "redis-reentrant",
		Family:     lock.FamilyRedis,
		Summary:    "a hash of owner and holds, a watchdog that renews at a third of the TTL, pub/sub to wake one waiter",
		Needs:      []backend.Name{backend.Redis},
		Guarantees: lock.Complete(false),
		Watchdog:   true,
		New: func(d lock.Deps) lock.Locker {
			l := newHashLock("redis-reentrant", d)
			l.acquire = script("token", "reentrant", "reentrant_acquire")
			l.release = script("token", "reentrant", "reentrant_release")
			l.leave = l.release
			return l
		},
	}
}

// hashLock is a lock that Redis keeps as a hash: reentrant, renewed, and with
// a waiter woken by each release. The fair lock differs in its scripts, and in
// the keys that they work on.
type hashLock struct {
	base
	free    string // the channel of releases
	wakeups *wakeups
	// acquire takes the name, release ends a hold, leave takes back what an
	// attempt that was given up may have left, renew prolongs.
	acquire, release, leave, renew *redis.Script
	// queues has waiters stand in a queue in Redis, from which they are dropped when they
	// do not report for as long as patience.
	queues   bool
	patience time.Duration
}

func newHashLock(kind string, d lock.Deps) *hashLock {
	b := newBase(kind, d)
	free := b.deps.KeyPrefix() + ":" + kind + ":free"
	return &hashLock{
		base:     b,
		free:     free,
		wakeups:  newWakeups(d.Redis, free, d.Log),
		renew:    script("reentrant_renew"),
		patience: min(d.TTL, patience),
	}
}

// patience bounds how long a dead waiter delays those behind it in a queue, and a third of
// it is the longest wait between two tries.
const patience = 3 * time.Second

func (l *hashLock) Close() error { return l.wakeups.Close() }

// Acquire waits for its turn, or for a release.
func (l *hashLock) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	a := attempt{hashLock: l, name: name, owner: lock.OwnerOf(ctx), hold: lock.NewOwner()}
	// Most find the name free: they need not be woken.
	if lease, err := a.try(ctx); lease != nil || err != nil {
		return lease, err
	}
	me := l.wakeups.enter(a.key(name), a.hold)
	defer l.wakeups.leave(a.key(name), me)
	for {
		// Only now, when a release wakes us, is it of use to wait for one.
		if lease, err := a.try(ctx); lease != nil || err != nil {
			return lease, err
		}
		if !me.sleep(ctx, l.patience/3) {
			lock.TakeBack(ctx, a.deps.Repeated(a.takeBack))
			return nil, lock.NotAcquired(ctx, server, nil)
		}
	}
}

// sleep waits to be woken, for about d at the longest, and reports whether ctx
// lasted.
func (s *sleeper) sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-s.wake:
		lock.Tell(ctx, lock.Note{At: time.Now(), What: lock.Woken, By: lock.ByPubSub})
		return true
	case <-time.After(d):
		lock.Tell(ctx, lock.Note{At: time.Now(), What: lock.Woken, By: lock.ByTimeout})
		return true
	case <-ctx.Done():
		return false
	}
}

// attempt is one Acquire, and the hold that may come of it.
type attempt struct {
	*hashLock
	name, owner, hold string
}

// keys are those of the name; without a queue there is only the first.
func (a attempt) keys(more ...string) []string {
	keys := append([]string{a.key(a.name)}, more...)
	if a.queues {
		keys = append(keys, a.key(a.name)+":queue", a.key(a.name)+":alive")
	}
	return keys
}

// try takes the name if it is ours to take; no lease and no error: not yet.
func (a attempt) try(ctx context.Context) (lock.Lease, error) {
	grant, err := a.take(ctx, a.acquire, a.name, a.keys(a.counter(a.name)), a.owner, a.hold, a.patience.Milliseconds())
	switch {
	case err != nil:
		abandon(ctx, err, a.deps.Repeated(a.takeBack))
		return nil, lock.Unreachable(server, err)
	case !grant.won():
		return nil, nil
	}
	lock.Tell(ctx, lock.Note{At: grant.asked, What: lock.Placed, Key: a.key(a.name)})
	lease := lock.NewHeld(grant.token, a.deps.Repeated(func(ctx context.Context) error {
		return giveBack(ctx, a.deps.Redis, a.release, a.keys(), a.hold, a.free)
	}))
	a.deps.Keep(lease, grant.asked, func(ctx context.Context) (bool, error) {
		return still(ctx, a.deps.Redis, a.renew, a.keys()[:1], a.hold, a.deps.TTL.Milliseconds())
	})
	return lock.Granted(ctx, lease)
}

// takeBack ends the attempt: no waiter must wait for it.
func (a attempt) takeBack(ctx context.Context) error {
	return a.leave.Run(ctx, a.deps.Redis, a.keys(), a.hold, a.free).Err()
}
