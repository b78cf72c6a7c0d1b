package strategy

import (
	"context"
	"log/slog"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/nearest"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/stock"
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
		list = append(list, ofLock(l))
	}
	return list
}

// CheckNames returns an error for the names that are not strategies.
func CheckNames(names ...string) error {
	entries := Registry()
	known := make([]string, len(entries))
	for i, entry := range entries {
		known[i] = entry.Name
	}
	return nearest.Check("a strategy", known, names...)
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
		sqlProcedure(),
		sqlOptimistic(),
		sqlForUpdate(),
		sqlBucket(),
		sqlUnit(),
		redisGetSet(),
		redisGetSetLocked(),
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
	// UnitRows is the largest pool of sql-unit, 1 to repo.MaxUnitRows.
	UnitRows int
	// RedisStock is how redis-stock sells; its Replica is the store's. Its Prefix also begins
	// the keys of the other strategies that keep a copy of the stock in Redis.
	RedisStock redisstock.Options
	// GetSetLock is the lock of redis-get-set-locked; that constant where it is empty.
	GetSetLock string
	// Observe returns the observer of a strategy; it may be nil.
	Observe func(strategy string) Observer
	// Changes has what is changed of items in the background; it may be nil.
	Changes *background.Changes
	// Failpoints are those of an experiment; mostly nil.
	Failpoints Failpoints
}

// Entry describes one strategy and makes it.
type Entry struct {
	// Name is what ?strategy= takes.
	Name   string
	Family Family
	// Summary is one line for people.
	Summary string
	// Needs are the backends without which it cannot work, beside the database.
	Needs []backend.Name
	// MinRedis is the oldest version of Redis on which it works, such as 6.2; empty: any.
	MinRedis string
	// Allocates declares that the strategy keeps units of an item outside of its row, and is
	// an Allocator. The conformance suite then sells the last of them, and recalls them.
	Allocates bool
	// SeveralItems declares that it writes purchases of several items in one transaction: it is a
	// Joiner, or redis-stock, whose consumers do.
	SeveralItems bool
	// Together: purchases that wait for an item are sold together without group=true as well.
	// That is for a strategy whose purchases share nothing but the call of a server: they gain by
	// it and lose nothing.
	Together bool
	// Guarantees are its guarantees. The conformance suite proves them, and shows the damage
	// behind each exclusion that is missing.
	Guarantees Guarantees
	// Watchdog: it guarantees Renews only where lock.Deps do not say Unrenewed.
	Watchdog bool
	// OneServer: it guarantees exclusion only where all replicas write to one database server.
	OneServer bool
	// NotOnShards is why it does not sell on the shards of Vitess; empty: nothing is known against it.
	NotOnShards string
	// Damage is what happens where exclusion is not guaranteed, or what the strategy does
	// all the same.
	Damage Damage
	// OnSQLite is how the strategy behaves differently there.
	OnSQLite Caveat
	// New makes the strategy for one replica that has what the strategy needs. What it
	// makes may be an io.Closer; then it is closed with the replica.
	New func(Deps) Strategy
}

// Make makes the strategy, or one that only returns which backend is not configured.
func (e Entry) Make(d Deps) Strategy {
	if err := d.Lock.HasAll(e.Needs); err != nil {
		return unavailable{err}
	}
	return e.New(d)
}

// unavailable is a strategy whose backend is not configured.
type unavailable struct{ reason error }

func (u unavailable) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, u.reason
}

func (u unavailable) DeductFenced(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, u.reason
}

// Recall returns why it cannot recall what another replica has allocated.
func (u unavailable) Recall(context.Context, int64) (stock.Recalled, error) {
	return stock.Recalled{}, u.reason
}

// Family groups strategies by what excludes concurrent purchases.
type Family string

// The families that are no locks of the lock package; those have theirs from
// there.
const (
	None    Family = "none"
	Process Family = "process"
	SQL     Family = "sql"
	Hot     Family = "hot"
)

// Damage is what a strategy does to the stock, or to its buyers.
type Damage string

// The damages.
const (
	// LostUpdates: of two purchases that read the same stock, one overwrites the other.
	// More is sold than there was, and the row never goes below zero.
	LostUpdates Damage = "lost updates"
	// BelowZero: every update counts, and together they take more than there
	// was. It shows only where there are more buyers than units.
	BelowZero Damage = "stock below zero"
	// Undersells: no unit is oversold, but purchases are rejected while stock is left,
	// and the units of a replica that dies are gone until the next restock.
	Undersells Damage = "undersells"
)

// Guarantees are those of a lock: a strategy that sells under one has its guarantees.
type Guarantees = lock.Guarantees

// Caveat says how a strategy behaves differently on a database.
type Caveat struct {
	Words string
	// Hides: the damage that the strategy demonstrates cannot be seen on this database.
	Hides bool
}

// Caveat is the entry's caveat on a database; without one it is the zero Caveat.
func (e Entry) Caveat(database string) Caveat {
	if database == repo.SQLite {
		return e.OnSQLite
	}
	return Caveat{}
}
