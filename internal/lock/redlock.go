package lock

import (
	"context"
	"net/url"

	redsyncredis "github.com/go-redsync/redsync/v4/redis"
)

func redlock() Entry {
	return Entry{
		Name:    "redlock",
		Family:  FamilyRedis,
		Summary: "go-redsync on independent masters, more than half of which must agree; the token is the database's",
		Needs:   []Backend{Redlock},
		Claims: Claims{
			Exclusive: true, SurvivesCrash: true, Renews: true,
			Fences: true, ReleasesOnlyItsOwn: true, SignalsLoss: true,
		},
		New: func(d Deps) Locker {
			return redlockMany{deps: d, here: NewProcess(), polls: newPolling(calm*d.Retry, d.TriedInVain)}
		},
	}
}

// redlockMany is redsync on several masters that know nothing of each other.
// They have no counter in common, so that the token is issued elsewhere, once
// the name is ours.
//
// The dependencies are not embedded: their Close would be the lock's, and end
// the clients that every lock of the replica shares.
type redlockMany struct {
	deps Deps
	// here lets one who waits in this replica ask at a time. If all of them did,
	// the nodes would be too slow for each, and count as down.
	here  *Process
	polls *polling
}

func (l redlockMany) Acquire(ctx context.Context, name string) (Lease, error) {
	turn, err := l.here.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	defer turn.Release(ctx) //nolint:errcheck // it cannot fail
	nodes := make([]redsyncredis.Pool, len(l.deps.Redlock))
	for i, client := range l.deps.Redlock {
		nodes[i] = newNode(client)
	}
	mutex := newMutex("stockd:{"+url.PathEscape(name)+"}:redlock", l.deps.TTL, nodes...)
	asked, err := lockMutex(ctx, Redlock, mutex, l.polls.begin(name), len(nodes))
	if err != nil {
		return nil, err
	}
	token, err := l.deps.issue(ctx, name)
	lease := mutexLease(Redlock, mutex, token, asked, l.deps.TTL)
	if err != nil {
		takeBack(ctx, lease.Release)
		return nil, notAcquired(ctx, string(Database), err)
	}
	return granted(ctx, lease)
}
