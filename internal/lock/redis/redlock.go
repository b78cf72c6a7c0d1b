package redis

import (
	"context"
	"time"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/process"
)

// Redlock takes a majority of independent masters.
func Redlock() lock.Entry {
	return lock.Entry{
		Name:    "redlock",
		Family:  lock.FamilyRedis,
		Summary: "go-redsync on independent masters, more than half of which must agree; the token is the database's",
		Needs:   []backend.Name{backend.Redlock},
		Guarantees: lock.Guarantees{
			ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true, Renews: true,
			Fences: true, ReleasesOnlyItsOwn: true, SignalsLoss: true,
		},
		Watchdog: true,
		New: func(d lock.Deps) lock.Locker {
			d.Retry *= retryMultiplier
			return redlockMany{newBase("redlock", d), process.New()}
		},
	}
}

// redlockMany is redsync on several masters that know nothing of each other.
// They have no counter in common, so that the token is issued elsewhere, once
// the name is ours.
type redlockMany struct {
	base base // not embedded: there is no counter to reseed

	// here lets one waiter of this replica ask at a time. If all of them did, the nodes
	// would be too slow for each, and count as down.
	here *process.Locker
}

func (l redlockMany) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	turn, err := l.here.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	defer turn.Release(ctx) //nolint:errcheck // it cannot fail
	nodes, pools := make([]*redsyncNode, len(l.base.deps.Redlock)), make([]redsyncredis.Pool, len(l.base.deps.Redlock))
	for i, client := range l.base.deps.Redlock {
		node := newNode(client)
		node.setNX = voting(ctx, i, node.setNX)
		nodes[i], pools[i] = node, node
	}
	mutex := newMutex(l.base.key(name), l.base.deps.TTL, pools...)
	asked, err := lockMutex(ctx, backend.Redlock, mutex, l.base.polls.Begin(name), len(nodes), l.base.deps)
	if err != nil {
		return nil, err
	}
	token, err := l.base.deps.NextToken(ctx, name)
	lease := mutexLease(backend.Redlock, mutex, token, asked, l.base.deps, nodes...)
	if err != nil {
		lock.TakeBack(ctx, lease.Release)
		return nil, lock.NotAcquired(ctx, string(backend.Database), err)
	}
	return lock.Granted(ctx, lease)
}

// voting has a node tell its votes. Masters are counted from 1.
func voting(waiter context.Context, i int, ask setNXFunc) setNXFunc {
	return func(ctx context.Context, key, owner string, ttl time.Duration) (bool, error) {
		asked := time.Now()
		won, err := ask(ctx, key, owner, ttl)
		lock.TellVote(waiter, i+1, asked, won, err)
		return won, err
	}
}
