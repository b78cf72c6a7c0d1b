package catalogue

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func insertLock() scenario.Experiment {
	return scenario.Experiment{
		Number: 20, Name: "insert-lock", Title: "A lock that is a row: no expiry, no waiting, no second time",
		Claim:  "A lock that is taken by INSERT under a unique key stays taken when its holder dies, fails at once when it is taken, and locks out its own holder, or with an owner that two threads share lets both in; a job that deletes old rows, a loop, and an owner in the row are the remedies.",
		Source: chapterOne + ", locks in MySQL; " + basicSearch + ", a lock by INSERT in MySQL",
		Fix:    "stocklab demo --strategies sql-insert-lock --replicas 3",
		Parts: []scenario.Part{
			deadInserter("no-reaper", "no contender gets the lock for four times its TTL", checker.Deadlocked(4*time.Second), "STOCKD_LAB_WITHOUT=reaper"),
			remedy(deadInserter("reaper", "the lock is free again one TTL after the crash", checker.Freed(ttl+slack))),
			twoInserters("single-insert", sourcelock.InsertOnce, "the second is rejected at once, and is in no queue", checker.RejectedWithin(500*time.Millisecond)),
			remedy(twoInserters("loop", "sql-insert-lock", "the second has it when the first is done", checker.ExclusiveHolders())),
			sameOwner("no-owner", sourcelock.InsertLoop, "it waits for itself as long as we let it", checker.LockedItselfOut()),
			remedy(sameOwner("owner-and-depth", "sql-insert-lock", "it has the lock twice", checker.Reentered())),
			twoThreads("one-owner", "one owner", map[string]string{"first": "machine", "second": "machine"}, "the row is the second's as well: both hold the lock", checker.Together("first", "second")),
			remedy(twoThreads("an-owner-each", "an owner each", nil, "the second waits", checker.Apart("first", "second"))),
		},
	}
}

// deadInserter has a replica die while it has the row.
func deadInserter(name, expect string, seen checker.Check, env ...string) scenario.Part {
	p := deadHolder("sql-insert-lock", expect, seen)
	p.Name, p.Stage = name, onDatabase(2, append(env, "STOCKD_LOCK_WAIT=1500ms")...)
	return p
}

// twoInserters are two that want the same row.
func twoInserters(name, kind, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: name, Stage: onDatabase(1),
		Does:   "one contender holds a name through " + kind + " for a second, and another asks for it meanwhile",
		Expect: expect,
		Steps:  []scenario.Step{step.AskForTaken(kind, time.Second, scenario.MySQL)},
		Check:  seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}

// twoThreads ask for one row with the same owner, or with different ones.
func twoThreads(name, as string, owners map[string]string, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: "sql-insert-lock", Need: scenario.MySQL, Owners: owners}
	return acted(c, name,
		"two threads with "+as+" ask for a name through sql-insert-lock, the second while the first holds it",
		expect, seen,
		c.Enter("first", "second"), c.Take("first"), c.Ask("second", patience, asks), givenBack(c, "first", "second"))
}

func sameOwner(name, kind, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: name, Stage: onDatabase(1),
		Does:   "one owner takes a name through " + kind + ", and again while it has it, for two seconds at most",
		Expect: expect,
		Steps:  []scenario.Step{step.TakeTwice(kind, 2*time.Second, scenario.MySQL)},
		Check:  seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}

func forUpdate() scenario.Experiment {
	const long = 500 // milliseconds, where a sale that is in the way takes 2,000
	one, other := step.Sale{Strategy: "sql-for-update"}, step.Sale{Strategy: "sql-conditional"}
	oneGrouped, otherGrouped := one, other
	oneGrouped.Group, otherGrouped.Group = true, true
	served := checker.All(checker.AtMost(step.LongestRead, long), checker.Outcomes(history.Sold, 1+drainWaiting))
	return scenario.Experiment{
		Number: 21, Name: "for-update", Title: "Requests that wait for a row exhaust the connection pool",
		Claim:  "A lock by SELECT … FOR UPDATE holds a connection for every waiting request, until the pool is empty.",
		Source: chapterOne + ", the pessimistic lock in MySQL",
		Fix:    "curl -X POST 'http://127.0.0.1:8080/deduct?strategy=sql-for-update&group=true&goods_id=1'",
		Parts: []scenario.Part{
			drain("one-pool", "a read of another item waits until the row is free", checker.AtLeast(step.LongestRead, long), one, other),
			remedy(drain("in-turns", "an item and strategy may use three of four connections, and the read is answered at once", served, one)),
			remedy(drain("own-pool", "the waiting requests use lock.connections, and the read is answered at once", served, step.Sale{Strategy: "sql-row-lock"})),
			remedy(drain("grouped", "one connection an item and strategy serves all waiting requests, and the read is answered at once", served, oneGrouped, otherGrouped)),
		},
	}
}

// drainWaiting is how many wait for the first sale.
const drainWaiting = 12

// drain has a sale take two seconds under its lock, while more wait for the row than the
// replica has connections, and another request reads an idle item.
func drain(name, expect string, seen checker.Check, sales ...step.Sale) scenario.Part {
	var crowds []scenario.Step
	strategies := make([]string, 0, len(sales))
	for i, sale := range sales {
		strategies = append(strategies, sale.Strategy)
		sale.Clients = drainWaiting / len(sales)
		sale.First, sale.Requests = 1+i*sale.Clients, sale.Clients
		crowds = append(crowds, step.Sell(sale))
	}
	return scenario.Part{
		Name: name, Stage: onDatabase(1, "STOCKD_DATABASE_MAX_OPEN=4", "STOCKD_LOCK_CONNECTIONS=4"),
		Does: fmt.Sprintf("a sale takes two seconds under its lock; %d wait for it by %s at a replica with database.max_open 4, and an idle item is read",
			drainWaiting, strings.Join(strategies, " and ")),
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.StockAnother(), step.Work(1, 2*time.Second),
			step.Meanwhile(
				step.Buy(sales[0]),
				step.InOrder(step.Reached(1), step.Meanwhile(append(crowds,
					step.InOrder(step.Wait(300*time.Millisecond), step.ReadAnother(10)))...)),
			),
			step.Audit(),
		},
		Check: checker.All(seen, checker.Clean()), Pictures: []scenario.Picture{scenario.Steps, scenario.Bars},
	}
}

func innodbLocks() scenario.Experiment {
	database := scenario.Stage{Needs: []scenario.Need{scenario.MySQL}}
	return scenario.Experiment{
		Number: 22, Name: "innodb-locks", Title: "What one statement locks, by index and isolation, and how two waiters deadlock",
		Claim:  "What DELETE … WHERE id = 10 locks goes from one row to the whole table with the index on id, with the isolation, with the size of the table, and with a row that is deleted already; two who look for a missing row FOR UPDATE, or who wait for one that is deleted, deadlock when both insert it.",
		Source: basicSearch + ", locks in MySQL",
		Parts:  slices.Concat(byIndexAndIsolation(database), deadlocks(database), besideTheRow(database)),
	}
}

// byIndexAndIsolation is what one statement locks.
func byIndexAndIsolation(database scenario.Stage) []scenario.Part {
	return []scenario.Part{{
		Name: "delete", Stage: database,
		Does:   "in eight combinations of index and isolation a DELETE stays open while other connections try every row and every gap",
		Expect: "locked is what the source says, from one row to all rows and gaps",
		Steps:  []scenario.Step{step.ProbeLocks(innodb.Found)}, Check: innodb.AsClaimed(innodb.Found),
		Pictures: []scenario.Picture{scenario.Rows, scenario.Bars},
	}, {
		Name: "missing", Stage: database,
		Does:   "the same with SELECT … FOR UPDATE of a row that is not there",
		Expect: "nothing is locked at READ COMMITTED, and the gap around it, or without an index everything, at REPEATABLE READ",
		Steps:  []scenario.Step{step.ProbeLocks(innodb.Missing)}, Check: innodb.AsClaimed(innodb.Missing),
		Pictures: []scenario.Picture{scenario.Rows, scenario.Bars},
	}, {
		Name: "in-passing", Stage: database,
		Does:   "without an index, at READ COMMITTED, a DELETE comes to a locked row that it does not want",
		Expect: "it waits for that row, although it would let go of it at once",
		Steps:  []scenario.Step{step.PassALockedRow()}, Check: innodb.LocksInPassing(),
	}}
}

// deadlocks have two insert one row.
func deadlocks(database scenario.Stage) []scenario.Part {
	const rounds = 20
	insert := func(way innodb.Way) []scenario.Step { return []scenario.Step{step.InsertTwice(way, rounds)} }
	return []scenario.Part{{
		Name: "shared-gap", Stage: database,
		Does:   "at REPEATABLE READ two transactions look for a missing row FOR UPDATE, then both insert it, 20 times",
		Expect: "the server ends a deadlock each time",
		Steps:  insert(innodb.Way{Level: sql.LevelRepeatableRead, Look: true}), Check: innodb.OneDeadlockEach(rounds),
	}, {
		Name: "read-committed", Remedy: true, Stage: database,
		Does:   "the same at READ COMMITTED, which locks no gap",
		Expect: "one inserts, the other gets a duplicate key error, and there is no deadlock",
		Steps:  insert(innodb.Way{Level: sql.LevelReadCommitted, Look: true}), Check: innodb.NoDeadlock(rounds),
	}, {
		Name: "insert-only", Remedy: true, Stage: database,
		Does:   "at REPEATABLE READ, but they insert without a look before and leave it to the unique key",
		Expect: "one inserts, the other gets a duplicate key error, and there is no deadlock",
		Steps:  insert(innodb.Way{Level: sql.LevelRepeatableRead}), Check: innodb.NoDeadlock(rounds),
	}, {
		Name: "insert-and-delete", Stage: database,
		Does:   "a row under a unique key is a lock; two wait to insert it while its holder has deleted it and not committed, ten times",
		Expect: "at the commit both get a shared lock of the deleted row, and the server ends a deadlock each time",
		Steps:  []scenario.Step{step.HandOver(innodb.InsertAndDelete(), rounds/2)}, Check: innodb.OneDeadlockEach(rounds / 2),
	}, {
		Name: "row-stays", Remedy: true, Stage: database,
		Does:   "the same, but the row stays, and an UPDATE takes it and gives it back",
		Expect: "one gets it, the other finds it taken, and there is no deadlock",
		Steps:  []scenario.Step{step.HandOver(innodb.UpdateAndUpdate(), rounds/2)}, Check: innodb.NoDeadlock(rounds / 2),
	}}
}

// besideTheRow is what a DELETE locks beside its row.
func besideTheRow(database scenario.Stage) []scenario.Part {
	return []scenario.Part{{
		Name: "small-table", Stage: database,
		Does:   "at REPEATABLE READ a DELETE by an index finds 40 of 42 rows, and other connections try the two that it does not want",
		Expect: "the optimizer passes the index over and reads all: both are locked",
		Steps:  []scenario.Step{step.LockOthers(false)}, Check: checker.AtLeast(innodb.OthersLocked, 2),
	}, {
		Name: "large-table", Remedy: true, Stage: database,
		Does:   "the same with 1,000 more rows of another number",
		Expect: "the index is used, and both are free",
		Steps:  []scenario.Step{step.LockOthers(true)}, Check: checker.AtMost(innodb.OthersLocked, 0),
	}, {
		Name: "deleted-row", Stage: database,
		Does:   "at REPEATABLE READ a DELETE by a unique index finds its row deleted, and still in the index, because a third may read it",
		Expect: "it locks the gap below as well: another connection cannot insert there",
		Steps:  []scenario.Step{step.LockGap(innodb.Unique)}, Check: checker.AtLeast(innodb.GapLocked, 1),
	}, {
		Name: "by-primary-key", Remedy: true, Stage: database,
		Does:   "the same by the primary key",
		Expect: "it locks the row alone",
		Steps:  []scenario.Step{step.LockGap(innodb.Primary)}, Check: checker.AtMost(innodb.GapLocked, 0),
	}}
}

func optimistic() scenario.Experiment {
	const one, crowd = "tries_per_sale_at_1", "tries_per_sale_at_64"
	const many = 10 // tries for one sale
	return scenario.Experiment{
		Number: 23, Name: "optimistic", Title: "Optimistic writers try again and again where many want the same row",
		Claim:  "An optimistic lock makes two statements of one, and under load the burden on the database is more than it can bear.",
		Source: chapterOne + ", the optimistic lock in MySQL",
		Fix:    "stockd serve --deduct-strategy sql-conditional",
		Parts: []scenario.Part{
			tries("no-pause", "sql-optimistic", "one try a sale for one client, and with 64 clients a try is lost far more often than won",
				checker.All(checker.AtMost(one, 1.2), checker.AtLeast(crowd, many)), "STOCKD_LAB_WITHOUT=pause"),
			remedy(tries("pause", "sql-optimistic", "losers pause for longer the more races are lost, and the tries stay few", checker.AtMost(crowd, many))),
			remedy(tries("conditional", "sql-conditional", "one statement a sale, however many buy", checker.AtMost(crowd, 1.2))),
		},
	}
}

// tries counts what a sale costs at three sizes of the crowd.
func tries(name, strategy, expect string, seen checker.Check, env ...string) scenario.Part {
	sell := func(clients int) scenario.Step {
		return step.CountTries(step.Sale{Strategy: strategy, Clients: clients, Duration: 1500 * time.Millisecond})
	}
	return scenario.Part{
		Name: name, Stage: onDatabase(1, append(env, "STOCKD_DATABASE_MAX_OPEN=80")...),
		Does:   "1, 8 and 64 clients buy through " + strategy + ", each for a second and a half; the UPDATEs of the database are counted",
		Expect: expect,
		Steps:  []scenario.Step{step.Stock(1_000_000), sell(1), sell(8), sell(64), step.Audit()},
		Check:  checker.All(seen, checker.Reported("tries_per_sale_at_8", "sales_per_s_at_1", "sales_per_s_at_8", "sales_per_s_at_64"), checker.Clean()), Pictures: []scenario.Picture{scenario.Steps, scenario.Bars},
	}
}

func noLock() scenario.Experiment {
	const lock, none = "redis-reentrant", "sql-conditional"
	return scenario.Experiment{
		Number: 26, Name: "no-lock", Title: "The cheapest safe way: does this need a lock at all?",
		Claim:  "An UPDATE that compares and subtracts in one statement needs no lock but the one that the database takes on the row by itself.",
		Source: flashSales + ", a lock by MySQL",
		Fix:    "stockd serve --deduct-strategy sql-conditional",
		Parts: []scenario.Part{
			remedy(lastUnits("lock", lock)),
			remedy(lastUnits("no-lock", none)),
			{
				Name: "cost", Stage: withLock(),
				Does:   "50 clients buy for two seconds through " + lock + ", and for two seconds through " + none,
				Expect: "more sales a second without the lock",
				Steps: []scenario.Step{
					step.Stock(1_000_000),
					step.Sell(step.Sale{Strategy: lock, Clients: 50, Duration: 2 * time.Second}),
					step.Sell(step.Sale{Strategy: none, Clients: 50, Duration: 2 * time.Second}),
					step.Audit(),
				},
				Check: checker.All(checker.Faster(none, lock, 1), checker.Clean()), Tries: 3, Pictures: []scenario.Picture{scenario.Bars},
			},
		},
	}
}

func withLock() scenario.Stage { return shared(scenario.Redis) }

func lastUnits(name, strategy string) scenario.Part {
	return scenario.Part{
		Name: name, Stage: withLock(),
		Does:   "50 clients buy 700 times from 500 units through " + strategy + ", behind the balancer of three replicas",
		Expect: "exactly 500 are sold, and 200 are rejected as sold out",
		Steps:  sellOut(strategy, 500, 700),
		Check:  checker.All(checker.Clean(), checker.SoldOut(500), checker.Outcomes(history.Rejected, 200)),
	}
}

func twoStrategies() scenario.Experiment {
	const lock, none = "redis-reentrant", "sql-conditional"
	together := func(requests int, duration time.Duration) scenario.Step {
		return step.Meanwhile(
			step.Sell(step.Sale{Strategy: lock, Clients: 4, Requests: requests, Duration: duration}),
			step.Sell(step.Sale{Strategy: none, Clients: 6, First: 4, Requests: requests, Duration: duration}),
		)
	}
	stage := shared(scenario.MySQL, scenario.Redis)
	return scenario.Experiment{
		Number: 27, Name: "two-strategies", Title: "A lock excludes only its own users: two strategies, and a foreign writer, on one item",
		Claim:  "A strategy that reads, computes and writes back under a lock overwrites what others write without the lock, unless its write compares with what was read.",
		Source: "measured here",
		Fix:    "stockd serve --deduct-strategy sql-conditional",
		Parts: []scenario.Part{
			{
				Name: "foreign-writer", Stage: stage,
				Does:   "six clients buy through " + none + ", while an application beside stockd reads the row, works for 5 ms and writes what it has read, without comparing",
				Expect: "sales are overwritten, and the audit finds it",
				Steps: []scenario.Step{
					step.Stock(100_000),
					step.WriteAside(5*time.Millisecond, step.Sell(step.Sale{Strategy: none, Clients: 6, Requests: 500})),
					step.Audit(),
				},
				Check: checker.All(checker.LostUpdates(), checker.Reported(step.OverwrittenBy)), Tries: 3, Pictures: []scenario.Picture{scenario.Bars},
			},
			remedy(scenario.Part{
				Name: "sold-out", Stage: stage,
				Does:   "four clients buy through " + lock + " and six through " + none + ", 400 times each from 400 units",
				Expect: "exactly 400 are sold",
				Steps:  []scenario.Step{step.Stock(400), together(400, 0), step.Audit()},
				Check:  checker.All(checker.Clean(), checker.SoldOut(400)), Pictures: []scenario.Picture{scenario.Bars},
			}),
			remedy(scenario.Part{
				Name: "decided-anew", Stage: stage,
				Does:   "the same clients buy for two seconds from more than they can buy, and the UPDATEs of the database are counted",
				Expect: "no update is lost: a purchase that finds the row changed is decided anew",
				Steps:  []scenario.Step{step.Stock(1_000_000), step.CountDecidedAnew(together(0, 2*time.Second)), step.Audit()},
				Check:  checker.All(checker.Clean(), checker.AtLeast(step.DecidedAnew, 1)), Pictures: []scenario.Picture{scenario.Bars},
			}),
		},
	}
}

func severalNodes() scenario.Experiment {
	return scenario.Experiment{
		Number: 37, Name: "several-nodes", Title: "A lock in a database of several writing nodes is a lock of one node",
		Claim: "A row that is locked, or a name that is taken with GET_LOCK, on one node of a cluster excludes no holder on another node: " +
			"replicas that write to different nodes oversell. A statement that compares and writes stays exact, because the nodes compare what they commit; so does a lock where all replicas write to one node.",
		Source: "measured here; the documentation of Galera and of Group Replication says that such locks are not replicated",
		Fix:    "stocklab demo --strategies sql-conditional --replicas 3",
		Parts: []scenario.Part{
			onNodes("row-lock", "sql-row-lock", 3, "more is sold than exists: each node grants the lock by itself", checker.All(checker.Oversold(), checker.LostUpdates())),
			onNodes("named-lock", "sql-named-lock", 3, "more is sold than exists: a name is taken on one node", checker.All(checker.Oversold(), checker.LostUpdates())),
			remedy(onNodes("conditional", "sql-conditional", 3, "exactly 300 are sold", checker.All(checker.Clean(), checker.SoldOut(300)))),
			remedy(onNodes("one-node", "sql-row-lock", 1, "exactly 300 are sold: all wait for the lock of the one node", checker.All(checker.Clean(), checker.SoldOut(300)))),
		},
	}
}

// onNodes sells one item through three replicas that write to so many nodes of a cluster.
func onNodes(name, strategy string, nodes int, expect string, seen checker.Check) scenario.Part {
	where := "each to a node of its own"
	if nodes == 1 {
		where = "all to one node"
	}
	return scenario.Part{
		Name: name, Stage: scenario.Stage{Replicas: 3, Nodes: nodes, Lab: true, Env: []string{"STOCKD_LAB_WITHOUT=one-server"}},
		Does:   fmt.Sprintf("three replicas write to a Galera cluster of three nodes, %s; 12 clients buy 900 times from 300 units through %s", where, strategy),
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(300),
			step.Watching(100*time.Millisecond, step.Sell(step.Sale{Strategy: strategy, Clients: 12, Requests: 900})),
			step.Audit(),
		},
		Check: seen, Tries: 3, Pictures: []scenario.Picture{scenario.Stock},
	}
}
