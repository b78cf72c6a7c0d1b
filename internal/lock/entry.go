package lock

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/backend"
)

// Entry describes one lock and makes it.
type Entry struct {
	Name string
	// Family is one of the families below.
	Family string
	// Summary is one line for people.
	Summary string
	// Needs are the backends without which it cannot work.
	Needs []backend.Name
	// Guarantees are proved by locktest, and so is the failure without each that is not
	// given.
	Guarantees Guarantees
	// Watchdog: its leases are renewed by Deps.Keep, which can leave that out. Other locks
	// have no renewal, or live in a session.
	Watchdog bool
	// OneServer: each database server has names of its own, so that holders exclude each other only
	// where all replicas write to the same one.
	OneServer bool
	// New makes the lock for one replica. It does not wait for a backend. What
	// it makes may be an io.Closer; then it is closed with the replica.
	New func(Deps) Locker
}

// The families of locks.
const (
	FamilySQL       = "sql lock"
	FamilyRedis     = "redis"
	FamilyZooKeeper = "zookeeper"
	FamilyEtcd      = "etcd"
)

// Guarantees are the properties that locktest tests.
type Guarantees struct {
	// Exclusive: two never hold a name at once, in one process or in many, as
	// long as no lease runs out.
	Exclusive bool
	// SurvivesCrash: the name of a holder that died is free within the TTL.
	SurvivesCrash bool
	// Renews: the lease is prolonged for as long as its holder lives.
	Renews bool
	// Reentrant: the owner may take the name again, and gives it back as often.
	Reentrant bool
	// Fair: the name is granted in the order of arrival.
	Fair bool
	// Fences: the token grows strictly with each holder.
	Fences bool
	// ReleasesOnlyItsOwn: a holder that was too late never frees a name that is
	// another's by now.
	ReleasesOnlyItsOwn bool
	// SignalsLoss: the lease's context ends within the TTL where the backend
	// took the name.
	SignalsLoss bool
}

// Deps is what locks are made of. Those clients that are nil are not
// configured; a lock that needs one is not made.
type Deps struct {
	*backend.Clients

	// TTL is how long a name stays taken when its holder falls silent: the
	// expiry of a key, the timeout of a session, the time to live of a lease.
	// At least 1 s for ZooKeeper and etcd, which count in ticks and seconds.
	TTL time.Duration
	// Unrenewed has those locks that have a watchdog grant explicit leases: each ends one
	// TTL after the grant, however long its holder works.
	Unrenewed bool
	// Retry is the longest pause between two tries where nothing tells that the
	// name is free, jittered by half (see polling); elsewhere the fallback of the
	// waiting.
	Retry time.Duration
	// Floor is the highest token that the store behind the lock has seen of a
	// name: tokens begin again above it after their counter was lost. Nil: 0.
	Floor func(ctx context.Context, name string) (uint64, error)
	// Issue counts holders for those locks whose backend cannot. Nil: they give
	// no token.
	Issue func(ctx context.Context, name string) (uint64, error)
	// Now is the clock of redis-getset, which writes it into Redis. Nil:
	// time.Now.
	Now func() time.Time
	// TriedInVain is called after each try that found the name taken, by those locks
	// that try again; nil: they are not counted.
	TriedInVain func()
	// Unreaped has sql-insert-lock leave the names of dead holders locked, and NodeLocks has an
	// Entry with OneServer used where several servers take writes: both are for experiments.
	Unreaped, NodeLocks bool
}

// Clock is the clock of the locks that write it into their backend.
func (d Deps) Clock() func() time.Time {
	if d.Now == nil {
		return time.Now
	}
	return d.Now
}

// NextToken is the next token of a name, or 0 where no Issue is given.
func (d Deps) NextToken(ctx context.Context, name string) (uint64, error) {
	if d.Issue == nil {
		return 0, nil
	}
	return d.Issue(ctx, name)
}
