package redis

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// Redsync is go-redsync on one Redis.
func Redsync() lock.Entry {
	return lock.Entry{
		Name:    "redsync",
		Family:  lock.FamilyRedis,
		Summary: "go-redsync on one node, with renewal, a signal of the loss and a fencing token around it",
		Needs:   []backend.Name{backend.Redis},
		Guarantees: lock.Guarantees{
			ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true, Renews: true,
			Fences: true, ReleasesOnlyItsOwn: true, SignalsLoss: true,
		},
		Watchdog: true,
		New: func(d lock.Deps) lock.Locker {
			d.Retry *= retryMultiplier
			return redsyncOne{newBase("redsync", d), script("token", "acquire"), script("release")}
		},
	}
}

// redsyncOne is redsync on one node. There the token comes in the round trip
// that takes the name: with the library's SETNX, in one transaction.
type redsyncOne struct {
	base
	acquire, release *redis.Script
}

func (l redsyncOne) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	var token uint64
	node := newNode(l.deps.Redis)
	node.setNX = func(ctx context.Context, key, owner string, _ time.Duration) (bool, error) {
		grant, err := l.set(ctx, name, key, owner)
		token = grant.token
		return grant.won(), err
	}
	mutex := newMutex(l.key(name), l.deps.TTL, node)
	asked, err := lockMutex(ctx, backend.Redis, mutex, l.polls.Begin(name), 1, l.deps)
	if err != nil {
		return nil, err
	}
	return lock.Granted(ctx, mutexLease(backend.Redis, mutex, token, asked, l.deps))
}

// set takes the name by SETNX and counts the try. A script would count the holds
// alone, and costs Redis several times as much; that numbers are left out does
// tokens no harm. Where Redis has lost the counter, the script takes over, which
// asks for a floor before it grants anything.
func (l redsyncOne) set(ctx context.Context, name, key, owner string) (outcome, error) {
	ctx, answered := backend.Uncut(ctx)
	defer answered()
	var won *redis.BoolCmd
	var count *redis.IntCmd
	_, err := l.deps.Redis.TxPipelined(ctx, func(tx redis.Pipeliner) error {
		won = tx.SetNX(ctx, key, owner, l.deps.TTL)
		count = tx.Incr(ctx, l.counter(name))
		tx.PExpire(ctx, l.counter(name), tokenLife)
		return nil
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded): // of one round trip, and no end of the waiting
		return outcome{}, backend.ErrUnanswered
	case err != nil || !won.Val():
		return outcome{}, err
	case count.Val() >= minToken:
		return outcome{status: taken, token: uint64(count.Val())}, nil //nolint:gosec // it is above minToken
	}
	if err := giveBack(ctx, l.deps.Redis, l.release, []string{key}, owner); err != nil {
		return outcome{}, err
	}
	return l.take(ctx, l.acquire, name, []string{key, l.counter(name)}, owner)
}

// minToken is below every token that was ever given: counters begin at the
// microseconds of a clock. A counter that is below it has been lost; see
// lua/token.lua.
const minToken = 1e15

// redsyncNode is a node of one mutex. It remembers whether it has nothing of this mutex.
type redsyncNode struct {
	redsyncredis.Pool
	setNX setNXFunc
	// A node that failed once may have granted the name, or may do so yet. What it rejects
	// the name for later may be that grant. redsync asks a node one thing at a time.
	unsure, rejected bool
	// silent: it did not answer the last Eval, which may be a renewal beside the release.
	silent atomic.Bool
}

type setNXFunc func(ctx context.Context, key, owner string, ttl time.Duration) (bool, error)

func newNode(client redis.UniversalClient) *redsyncNode {
	return &redsyncNode{
		Pool: goredis.NewPool(client),
		setNX: func(ctx context.Context, key, owner string, ttl time.Duration) (bool, error) {
			return client.SetNX(ctx, key, owner, ttl).Result()
		},
	}
}

// Get returns a connection for one round trip.
func (n *redsyncNode) Get(ctx context.Context) (redsyncredis.Conn, error) {
	conn, err := n.Pool.Get(ctx)
	if err != nil {
		return nil, err
	}
	return redsyncConn{Conn: conn, node: n, ctx: ctx}, nil
}

type redsyncConn struct {
	redsyncredis.Conn
	node *redsyncNode
	ctx  context.Context
}

// SetNX takes the name for an owner.
func (c redsyncConn) SetNX(key, owner string, ttl time.Duration) (bool, error) {
	won, err := c.node.setNX(c.ctx, key, owner, ttl)
	c.node.unsure = c.node.unsure || err != nil
	c.node.rejected = !won && !c.node.unsure
	return won, err
}

// Eval gives back or prolongs. After each try that failed, redsync takes back
// what it may have taken from every node: from one that rejected, that is nothing.
func (c redsyncConn) Eval(s *redsyncredis.Script, keysAndArgs ...any) (any, error) {
	if c.node.rejected {
		return int64(0), nil
	}
	answer, err := c.Conn.Eval(s, keysAndArgs...)
	c.node.silent.Store(err != nil)
	return answer, err
}

// newMutex is a mutex of redsync over some nodes. It has its value from the start: what it
// may have left is taken back also where it was never locked.
func newMutex(key string, ttl time.Duration, nodes ...redsyncredis.Pool) *redsync.Mutex {
	owner := lock.NewOwner()
	return redsync.New(nodes...).NewMutex(key,
		redsync.WithExpiry(ttl),
		redsync.WithValue(owner),
		redsync.WithGenValueFunc(func() (string, error) { return owner, nil }),
		redsync.WithTimeoutFactor(nodeTimeout(ttl, len(nodes))))
}

// nodeWithin bounds the round trip to one of several nodes; one that is slower is
// counted as down for this try, and the others are asked.
const nodeWithin = 500 * time.Millisecond

// nodeTimeout is that bound as redsync wants it: a part of the TTL, and never
// so large a part that nothing of the TTL is left. Beside a single node there is no
// other to ask: it is waited for as long.
func nodeTimeout(ttl time.Duration, nodes int) float64 {
	const most = 1.0 / 3
	if nodes == 1 {
		return most
	}
	return min(most, nodeWithin.Seconds()/ttl.Seconds())
}

// retryMultiplier is how many times lock.retry the longest pause takes on the average: with
// the default, 150 ms, as in the library itself. More frequent tries delay the holder.
const retryMultiplier = 3

// lockMutex tries until the mutex is ours, with pauses that differ, so that
// contenders who split the vote do not split it again. redsync's own loop drops
// the cause when ctx ends, and does not tell a name that is taken from nodes
// that are down. What redsync takes back ends with the try, and a grant may reach
// a node later: a failure takes it back once more, by its value.
func lockMutex(ctx context.Context, on backend.Name, m *redsync.Mutex, waiter *lock.Poller, nodes int, deps lock.Deps) (asked time.Time, err error) {
	defer waiter.End()
	takeBack := takeBackOf(m)
	for {
		asked = time.Now()
		asking, answered := backend.Uncut(ctx)
		err = m.TryLockContext(asking)
		answered()
		switch {
		case err == nil:
			lock.Tell(ctx, lock.Note{At: asked, What: lock.Placed, Key: m.Name()})
			return asked, nil
		case noQuorum(err, nodes):
			if !errors.Is(err, backend.ErrNotConnected) {
				takeBack = deps.Repeated(takeBack)
			}
			go lock.TakeBack(ctx, takeBack) // the caller need not wait for an unresponsive server
			return asked, lock.Unreachable(string(on), err)
		case !waiter.Pause(ctx):
			go lock.TakeBack(ctx, takeBack) // a node that rejected the name is not asked
			return asked, lock.NotAcquired(ctx, string(on), nil)
		}
	}
}

// takeBackOf takes back at every node what it may have granted. A majority that says so is not enough: the name
// would stay with the others for the rest of the TTL.
func takeBackOf(m *redsync.Mutex, nodes ...*redsyncNode) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := m.UnlockContext(ctx); failedNodes(err) > 0 {
			return err
		}
		if slices.ContainsFunc(nodes, (*redsyncNode).isSilent) {
			return backend.ErrUnanswered
		}
		return nil
	}
}

func (n *redsyncNode) isSilent() bool { return n.silent.Load() }

// noQuorum reports whether so many nodes failed that the others cannot grant
// anything, however free the name is.
func noQuorum(err error, nodes int) bool {
	return failedNodes(err) > nodes-(nodes/2+1)
}

// failedNodes counts the nodes in an error of redsync that failed, rather than
// said that the name is taken.
func failedNodes(err error) int {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		n := 0
		for _, e := range joined.Unwrap() {
			n += failedNodes(e)
		}
		return n
	}
	if _, failed := errors.AsType[*redsync.RedisError](err); failed {
		return 1
	}
	return 0
}

// mutexLease is the lease of a mutex that is ours: kept, and ended when that
// fails. nodes are those of several of which a majority is enough: the others are asked again in the background.
func mutexLease(on backend.Name, m *redsync.Mutex, token uint64, asked time.Time, deps lock.Deps, nodes ...*redsyncNode) lock.Lease {
	lease := lock.NewHeld(token, deps.Repeated(func(ctx context.Context) error {
		ours, err := m.UnlockContext(ctx)
		if ours && slices.ContainsFunc(nodes, (*redsyncNode).isSilent) {
			go lock.TakeBack(ctx, deps.Repeated(takeBackOf(m, nodes...)))
		}
		if ours || isTaken(err) {
			err = nil
		}
		return lock.Released(string(on), ours, err)
	}))
	deps.Keep(lease, asked, func(ctx context.Context) (bool, error) {
		ours, err := m.ExtendContext(ctx)
		if isTaken(err) {
			return false, nil
		}
		return ours, err
	})
	return lease
}

// isTaken reports whether the nodes answered, and said that the name is not
// ours any more.
func isTaken(err error) bool {
	_, byMost := errors.AsType[*redsync.ErrTaken](err)
	_, byOne := errors.AsType[*redsync.ErrNodeTaken](err)
	return failedNodes(err) == 0 && (byMost || byOne || errors.Is(err, redsync.ErrLockAlreadyExpired))
}
