package sourcelock

import (
	"context"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// Redlock as the source writes it down, step by step: one master after the other is asked,
// and nothing is renewed.
const (
	// QuorumInTime is the whole of it.
	QuorumInTime = "redlock-in-time"
	// QuorumUntimed counts the votes, and not the time that they took.
	QuorumUntimed = "redlock-untimed"
	// QuorumAcknowledged releases only where the answer to its SET was yes.
	QuorumAcknowledged = "redlock-acknowledged"
	// InStep has no random delay: a client that fails tries again after a pause that is always the same.
	InStep = "redlock-in-step"
)

func onMasters() []lock.Entry {
	return []lock.Entry{
		inKeys(backend.Redlock, QuorumInTime, "more than half of the masters, in less than the TTL; released on all", quorum{timed: true}),
		inKeys(backend.Redlock, QuorumUntimed, "more than half of the masters, however long that took", quorum{}),
		inKeys(backend.Redlock, QuorumAcknowledged, "more than half of the masters; released where they agreed", quorum{timed: true, acknowledged: true}),
		inKeys(backend.Redlock, InStep, "redsync's, with the same pause between all tries", inStep{}),
	}
}

// quorum tries again after each pause.
type quorum struct {
	keys

	timed, acknowledged bool
}

// Acquire tries until ctx ends.
func (l *quorum) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	key, owner := l.key(name), lock.NewOwner()
	for {
		asked := time.Now()
		agreed := l.ask(ctx, key, owner)
		taken := l.deps.Redlock
		if l.acknowledged {
			taken = agreed
		}
		release := func(ctx context.Context) error { giveBackOn(ctx, taken, key, owner); return nil }
		if !l.timed {
			asked = time.Now() // it takes the key for as young as its grant
		}
		if len(agreed) > len(l.deps.Redlock)/2 && time.Since(asked) < l.deps.TTL {
			lease := lock.NewHeld(0, release)
			lock.Expire(lease, asked, l.deps.TTL)
			return lock.Granted(ctx, lease)
		}
		lock.TakeBack(ctx, release)
		if pause.For(ctx, l.deps.Retry) != nil {
			return nil, lock.NotAcquired(ctx, string(backend.Redlock), nil)
		}
	}
}

// ask asks one master after the other, and returns those that have agreed. One that does
// not answer is passed over.
func (l *quorum) ask(ctx context.Context, key, owner string) (agreed []redis.UniversalClient) {
	for i, master := range l.deps.Redlock {
		asked := time.Now()
		won, err := master.SetNX(ctx, key, owner, l.deps.TTL).Result()
		if err == nil && won {
			agreed = append(agreed, master)
		}
		lock.TellVote(ctx, i+1, asked, won, err)
	}
	return agreed
}

const deleteOwn = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])`

// giveBackOn goes on where a master does not answer: its key expires.
func giveBackOn(ctx context.Context, masters []redis.UniversalClient, key, owner string) {
	for _, master := range masters {
		_ = master.Eval(ctx, deleteOwn, []string{key}, owner).Err()
	}
}

type inStep struct{ keys }

// Acquire tries until ctx ends.
func (l inStep) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	pools := make([]redsyncredis.Pool, len(l.deps.Redlock))
	for i, master := range l.deps.Redlock {
		pools[i] = goredis.NewPool(master)
	}
	const expiry, tries = 10 * time.Second, 1 << 20 // more than an experiment has time for
	mutex := redsync.New(pools...).NewMutex(l.key(name), redsync.WithExpiry(expiry), redsync.WithTries(tries), redsync.WithRetryDelay(l.deps.Retry))
	if err := mutex.LockContext(ctx); err != nil {
		if ctx.Err() != nil {
			err = nil // redsync's own does not name it
		}
		return nil, lock.NotAcquired(ctx, string(backend.Redlock), err)
	}
	// The masters have no common counter, and a loss is not reported.
	return lock.NewHeld(0, func(ctx context.Context) error {
		_, err := mutex.UnlockContext(ctx)
		return err
	}), nil
}
