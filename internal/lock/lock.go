// Package lock holds the locks of stockd behind one contract: a Locker grants
// a name to one holder at a time, as far as its backend can, and a Lease is
// the name held. Each lock is one file and one line in the registry, and
// locktest tests each of them against the contract and its guarantees.
package lock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

// The kinds of failure of a lock. A failure of the backend itself is a
// *stock.BackendError.
var (
	// ErrNotAcquired tells that the name was not granted. It comes together
	// with the cause: the context's error, or the backend's.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLost tells that the name is no longer ours, or may not be.
	ErrLost = errors.New("lock lost")
)

// Locker grants a name to one holder at a time.
//
//  1. Acquire returns a lease, or an error that is ErrNotAcquired and the
//     cause: a context's end is never mistaken for a failure of the backend,
//     nor the other way round.
//  2. Acquire waits until the name is ours, and returns soon after ctx ends, however
//     many others are waiting.
//  3. An Acquire that fails leaves nothing behind: no node, key, row,
//     connection or goroutine, and no other Acquire waits because of it. What cannot be
//     taken back, because the backend is out of reach, frees itself within the
//     TTL.
//  4. Waiting is by notification where the backend has one, and never without
//     a bounded fallback. A waiter does not spin.
//  5. A Locker may be used from any number of goroutines; two of them exclude
//     each other as two processes do, unless the contexts that they give carry
//     the same owner and the lock is reentrant.
//
// Locks that are here to show how locks fail meet their guarantees only.
type Locker interface {
	Acquire(ctx context.Context, name string) (Lease, error)
}

// Lease is a name held.
//
//  1. Its methods may be called from any goroutine, also after the loss and
//     after the release.
//  2. The lease does not end with the context that Acquire was given: a
//     cancelled request still has to let go.
//  3. A lease that the backend took, or may have taken, ends its Context with
//     ErrLost as the cause, within the TTL; then Release answers ErrLost and
//     touches nothing that may belong to another.
//  4. Releasing twice is harmless: the second Release answers nil.
type Lease interface {
	// Token grows strictly with each holder of the name; 0 where the lock
	// cannot give one.
	Token() uint64
	// Context ends with the lease, by its release or by its loss.
	Context() context.Context
	// Release gives the name up: the next waiter is granted it. ErrLost: the name
	// was lost before.
	Release(ctx context.Context) error
}

// While returns the context of the work under a lease. Call stop when it is done.
//
//  1. It ends with ctx or with the lease, whichever ends first, and keeps the cause.
func While(ctx context.Context, lease Lease) (work context.Context, stop func()) {
	work, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(lease.Context(), func() {
		cancel(context.Cause(lease.Context()))
	})
	return work, func() {
		unlink()
		cancel(context.Canceled)
	}
}

// NotAcquired is the error of an Acquire. A request that was sent within the wait is
// awaited, so that a backend may also fail after ctx has ended.
//
//  1. It is the end of ctx where nothing else is known to have ended the Acquire, and the
//     backend's failure otherwise. A cancelled caller gets only its own error.
func NotAcquired(ctx context.Context, server string, err error) error {
	ended := ctx.Err()
	if ended != nil && (err == nil || errors.Is(ended, context.Canceled) || errors.Is(err, ended) || errors.Is(err, context.Cause(ctx))) {
		return fmt.Errorf("%w: %w", ErrNotAcquired, context.Cause(ctx))
	}
	return Unreachable(server, err)
}

// Unreachable is the error of an Acquire whose backend failed. An error that
// names its backend already, such as that of the store that knows the floor of
// the tokens, keeps the name.
func Unreachable(server string, err error) error {
	if _, named := errors.AsType[*stock.BackendError](err); !named {
		err = backend.Failure(server, err)
	}
	return fmt.Errorf("%w: %w", ErrNotAcquired, err)
}

// Released is the error of a Release: its backend failed, or the name was not ours any more.
func Released(server string, ours bool, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("release lock: %w", backend.Failure(server, err))
	case !ours:
		return ErrLost
	default:
		return nil
	}
}

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
	// NotOnShards is why it does not lock on the shards of Vitess; empty: nothing is known against it.
	NotOnShards string
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

// Guarantees are the properties of a lock, which locktest tests, and of the strategy that sells under it,
// which strategytest does.
type Guarantees struct {
	// ExclusiveInProcess: two never hold a name at once in one replica, as long as no lease runs out, so that
	// concurrent purchases there never oversell.
	ExclusiveInProcess bool `json:"exclusive_in_process"`
	// ExclusiveAcrossReplicas: nor do two in any number of replicas.
	ExclusiveAcrossReplicas bool `json:"exclusive_across_replicas"`
	// SurvivesCrash: the name of a holder that died is free within the TTL.
	SurvivesCrash bool `json:"survives_crashed_holder"`
	// Renews: the lease is prolonged for as long as its holder lives.
	Renews bool `json:"renews"`
	// Reentrant: the owner may take the name again, and gives it back as often.
	Reentrant bool `json:"reentrant"`
	// Fair: the name is granted in the order of arrival.
	Fair bool `json:"fair"`
	// Fences: the token grows strictly with each holder.
	Fences bool `json:"fencing_token"`
	// ReleasesOnlyItsOwn: a holder that was too late never frees a name that is another's by now.
	ReleasesOnlyItsOwn bool `json:"releases_only_its_own"`
	// SignalsLoss: the lease's context ends within the TTL where the backend took the name.
	SignalsLoss bool `json:"signals_loss"`
	// Fenceable is of strategies alone: fence=true has the store check a token before the read and at
	// the write; the database issues it where the lock gives none.
	Fenceable bool `json:"fenceable"`
}

// Complete are all the guarantees of a lock, with the order of arrival where it is fair.
func Complete(fair bool) Guarantees {
	return Guarantees{
		ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true, Renews: true, Reentrant: true, Fair: fair,
		Fences: true, ReleasesOnlyItsOwn: true, SignalsLoss: true,
	}
}

// Exclusive reports whether the strategy guarantees a consistent ledger on so many replicas.
func (c Guarantees) Exclusive(replicas int) bool {
	if replicas > 1 {
		return c.ExclusiveAcrossReplicas
	}
	return c.ExclusiveInProcess
}

// Safe reports whether the strategy never oversells on any number of replicas, also where
// a purchase takes longer than expected. A lock ends while the work of a slow holder
// goes on: a holder that is notified of the loss does not write, and one that is not
// overwrites what was sold meanwhile, unless the store checks its token. What has no
// lock has nothing to lose; a strategy has one where it can be fenced.
func (c Guarantees) Safe(fenced bool) bool {
	return c.ExclusiveAcrossReplicas && (!c.Fenceable || c.SignalsLoss || fenced)
}

// Grouped are the guarantees with grouped requests: a replica writes the batches of an
// item one after the other, whatever its strategy.
func (c Guarantees) Grouped() Guarantees {
	c.ExclusiveInProcess = true
	return c
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
	// Log has what the locks cannot do as they should; nil: slog's default.
	Log *slog.Logger
	// Releases repeats what a backend did not answer; nil: a release is tried once.
	Releases *Releases
	// TriedInVain is called after each try that found the name taken, by those locks
	// that try again; nil: they are not counted.
	TriedInVain func()
	// Unreaped has sql-insert-lock leave the names of dead holders locked, and NodeLocks has an
	// Entry with OneServer used where several servers take writes: both are for experiments.
	Unreaped, NodeLocks bool
}

// Close ends the repeated releases, and then the clients.
func (d Deps) Close() error {
	if d.Releases != nil {
		d.Releases.Close()
	}
	return d.Clients.Close()
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
