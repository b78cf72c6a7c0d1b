package strategy

import (
	"log/slog"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/hot"
)

// Registry lists every strategy, in the order in which they are shown: each entry answers
// a question that the one before it leaves open. The router, GET /strategies, the demo, the
// benchmark and the conformance suite range over it; a new strategy is its own file and
// one line in lockless, or, where it is a lock, in registry.Locks.
func Registry() []Entry {
	locks := registry.Locks()
	list := make([]Entry, 0, len(locks)+len(lockless()))
	list = append(list, lockless()...)
	for _, l := range locks {
		list = append(list, locked(l))
	}
	return list
}

// lockless are the strategies that need no lock outside of their replica.
func lockless() []Entry {
	return []Entry{
		naive(),
		naiveDecrement(),
		mutex(),
		mutexPerRequest(),
		mutexInTx(),
		channel(),
		sqlConditional(),
		sqlOptimistic(),
		sqlForUpdate(),
		sqlBucket(),
		redisDecr(),
		redisList(),
		redisStock(),
	}
}

// Deps is what strategies are made of.
type Deps struct {
	// Store writes the ledger in the strategy's name.
	Store *repo.Store
	// LockWait bounds the wait for a lock.
	LockWait time.Duration
	// Lock is what the locks are made of; its Floor is each strategy's own.
	Lock lock.Deps
	// Retry bounds the tries of optimistic writers.
	Retry Retry
	// Log has the panics that do not end the replica; nil: slog's default.
	Log *slog.Logger
	// Group bounds the queues of group=true, which any strategy can have.
	Group Group
	// Buckets is the number of rows that sql-bucket splits a stock over.
	Buckets int
	// Hot is how redis-stock sells; its Replica is the store's. Its Prefix also begins
	// the keys of redis-decr and redis-list.
	Hot hot.Options
	// Observe returns the observer of a strategy; it may be nil.
	Observe func(strategy string) Observer
	// Failpoints are those of an experiment; mostly nil.
	Failpoints Failpoints
}

// lacks returns why the first of the backends that are not configured is missing.
func (d Deps) lacks(needs []backend.Name) error {
	for _, need := range needs {
		if err := d.Lock.Has(need); err != nil {
			return err
		}
	}
	return nil
}
