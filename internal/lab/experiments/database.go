package experiments

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/pause"
)

// onDatabase is replicas that have nothing but a database with row locks.
func onDatabase(replicas int, env ...string) Stage {
	return Stage{
		Needs: []Need{MySQL}, Replicas: replicas, Lab: true,
		Env: append([]string{"STOCKD_LOCK_TTL=" + ttl.String(), "STOCKD_LOCK_RETRY=10ms"}, env...),
	}
}

func insertLock() Experiment {
	return Experiment{
		Number: 20, Name: "insert-lock", Title: "A lock that is a row: no expiry, no waiting, no second time",
		Claim:  "A lock that is taken by INSERT under a unique key stays taken when its holder dies, fails at once when it is taken, and locks out its own holder, or with an owner that two threads share lets both in; a job that deletes old rows, a loop, and an owner in the row are the remedies.",
		Source: chapterOne + ", locks in MySQL; " + basicSearch + ", a lock by INSERT in MySQL",
		Fix:    "stocklab demo --strategies sql-insert-lock --replicas 3",
		Parts: []Part{
			deadInserter("no-reaper", "no contender gets the lock for four times its TTL", checker.Deadlocked(4*time.Second), "STOCKD_LAB_WITHOUT=reaper"),
			asRemedy(deadInserter("reaper", "the lock is free again one TTL after the crash", checker.Freed(ttl+slack))),
			twoInserters("single-insert", sourcelock.InsertOnce, "the second is rejected at once, and is in no queue", checker.RejectedWithin(500*time.Millisecond)),
			asRemedy(twoInserters("loop", "sql-insert-lock", "the second has it when the first is done", checker.ExclusiveHolders())),
			sameOwner("no-owner", sourcelock.InsertLoop, "it waits for itself as long as we let it", checker.LockedItselfOut()),
			asRemedy(sameOwner("owner-and-depth", "sql-insert-lock", "it has the lock twice", checker.Reentered())),
			twoThreads("one-owner", "one owner", "machine", "the row is the second's as well: both hold the lock", checker.Together("first", "second")),
			asRemedy(twoThreads("an-owner-each", "an owner each", "", "the second waits", checker.Apart("first", "second"))),
		},
	}
}

// deadInserter has a replica die while it has the row.
func deadInserter(name, expect string, seen checker.Check, env ...string) Part {
	p := deadHolder("sql-insert-lock", expect, seen)
	p.Name, p.Stage = name, onDatabase(2, append(env, "STOCKD_LOCK_WAIT=1500ms")...)
	return p
}

// twoInserters are two that want the same row.
func twoInserters(name, kind, expect string, seen checker.Check) Part {
	return Part{
		Name: name, Stage: onDatabase(1),
		Does:   "one contender holds a name through " + kind + " for a second, and another asks for it meanwhile",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			first, second := x.contend("first", MySQL).locker(kind), x.contend("second", MySQL).locker(kind)
			lease := x.take(first, x.lockName())
			x.start(func() { x.holdFor(0, second, x.lockName(), time.Second+patience) })
			x.sleep(time.Second)
			x.release(lease)
			x.wait()
		},
	}
}

// twoThreads ask for one row with the same owner, or with different ones.
func twoThreads(name, as, owner, expect string, seen checker.Check) Part {
	return Part{
		Name: name, Stage: on(MySQL),
		Does:   "two threads with " + as + " ask for a name through sql-insert-lock, the second while the first holds it",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			first, second := x.firstAndSecond("sql-insert-lock", MySQL, ttl)
			first.owner, second.owner = owner, owner
			first.acquire()
			second.askAndGoOn(asks)
			x.givenBack(first, second)
		},
	}
}

func sameOwner(name, kind, expect string, seen checker.Check) Part {
	return Part{
		Name: name, Stage: onDatabase(1),
		Does:   "one owner takes a name through " + kind + ", and again while it has it, for two seconds at most",
		Expect: expect,
		Do:     func(x *Try) { x.takeTwice(kind, MySQL) },
		Check:  seen, Pictures: []Picture{Timeline},
	}
}

func forUpdate() Experiment {
	one, other := Sale{Strategy: "sql-for-update"}, Sale{Strategy: "sql-conditional"}
	oneGrouped, otherGrouped := one, other
	oneGrouped.Group, otherGrouped.Group = true, true
	const long = 500 // milliseconds, where a sale that is in the way takes 2,000
	served := checker.All(checker.AtMost(longestRead, long), checker.Outcomes(history.Sold, 1+drainWaiting))
	return Experiment{
		Number: 21, Name: "for-update", Title: "Requests that wait for a row exhaust the connection pool",
		Claim:  "A lock by SELECT … FOR UPDATE holds a connection for every waiting request, until the pool is empty.",
		Source: chapterOne + ", the pessimistic lock in MySQL",
		Fix:    "curl -X POST 'http://127.0.0.1:8080/deduct?strategy=sql-for-update&group=true&goods_id=1'",
		Parts: []Part{
			drain("one-pool", "a read of another item waits until the row is free", checker.AtLeast(longestRead, long), one, other),
			asRemedy(drain("in-turns", "an item may use three of four connections, and the read is answered at once", served, one)),
			asRemedy(drain("own-pool", "the waiting requests use lock.connections, and the read is answered at once", served, Sale{Strategy: "sql-row-lock"})),
			asRemedy(drain("grouped", "one connection an item and strategy serves all waiting requests, and the read is answered at once", served, oneGrouped, otherGrouped)),
		},
	}
}

const (
	// drainWaiting is how many wait for the first sale.
	drainWaiting = 12
	longestRead  = "longest_unrelated_read_ms"
)

// drain has a sale take two seconds under its lock, while more wait for the row than the
// replica has connections, and another request reads an idle item.
func drain(name, expect string, seen checker.Check, sales ...Sale) Part {
	strategies := make([]string, len(sales))
	for i, sale := range sales {
		strategies[i] = sale.Strategy
	}
	return Part{
		Name: name, Stage: onDatabase(1, "STOCKD_DATABASE_MAX_OPEN=4", "STOCKD_LOCK_CONNECTIONS=4"),
		Does: fmt.Sprintf("a sale takes two seconds under its lock; %d wait for it by %s at a replica with database.max_open 4, and an idle item is read",
			drainWaiting, strings.Join(strategies, " and ")),
		Expect: expect,
		Do: func(x *Try) {
			idle := x.Item + 1<<40
			x.stock(100)
			x.Must(x.Client().CreateGoods(x, idle, 1))
			x.willWork(1, 2*time.Second)
			x.start(func() { x.sell(Sale{Strategy: sales[0].Strategy, Group: sales[0].Group, Requests: 1}) })
			x.awaitFault(1)
			for i, sale := range sales {
				sale.Clients = drainWaiting / len(sales)
				sale.FirstClient, sale.Requests = 1+i*sale.Clients, sale.Clients
				x.start(func() { x.sell(sale) })
			}
			x.sleep(300 * time.Millisecond)
			var longest time.Duration
			for range 10 {
				began := time.Now()
				_, err := x.Client().Goods(x, idle)
				x.Must(err)
				longest = max(longest, time.Since(began))
				x.sleep(100 * time.Millisecond)
			}
			x.Figure(longestRead, float64(longest.Microseconds())/1000)
			x.wait()
			x.audit()
		},
		Check: checker.All(seen, checker.Clean()), Pictures: []Picture{Steps},
	}
}

func optimistic() Experiment {
	const one, crowd = "tries_per_sale_at_1", "tries_per_sale_at_64"
	const many = 10 // tries for one sale
	return Experiment{
		Number: 23, Name: "optimistic", Title: "Optimistic writers try again and again where many want the same row",
		Claim:  "An optimistic lock makes two statements of one, and under load the burden on the database is more than it can bear.",
		Source: chapterOne + ", the optimistic lock in MySQL",
		Fix:    "stockd serve --deduct-strategy sql-conditional",
		Parts: []Part{
			tries("no-pause", "sql-optimistic", "one try a sale for one client, and with 64 clients a try is lost far more often than won",
				checker.All(checker.AtMost(one, 1.2), checker.AtLeast(crowd, many)), "STOCKD_LAB_WITHOUT=pause"),
			asRemedy(tries("pause", "sql-optimistic", "losers pause for longer the more races are lost, and the tries stay few", checker.AtMost(crowd, many))),
			asRemedy(tries("conditional", "sql-conditional", "one statement a sale, however many buy", checker.AtMost(crowd, 1.2))),
		},
	}
}

// tries counts at three sizes of the crowd how many UPDATEs the database carries out for each sale. A try that finds
// the row changed is an UPDATE of no row.
func tries(name, strategy, expect string, seen checker.Check, env ...string) Part {
	return Part{
		Name: name, Stage: onDatabase(1, append(env, "STOCKD_DATABASE_MAX_OPEN=80")...),
		Does:   "1, 8 and 64 clients buy through " + strategy + ", each for a second and a half; the UPDATEs of the database are counted",
		Expect: expect,
		Do: func(x *Try) {
			x.stock(1_000_000)
			for _, clients := range []int{1, 8, 64} {
				done := x.counted(func() { x.sell(Sale{Strategy: strategy, Clients: clients, Duration: 1500 * time.Millisecond}) })
				if done.sold == 0 {
					x.Must(errors.New("nothing was sold, so that there is nothing to count tries for"))
				}
				x.Figure(fmt.Sprintf("sales_per_s_at_%d", clients), done.sold/done.took.Seconds())
				x.Figure(fmt.Sprintf("tries_per_sale_at_%d", clients), done.updates/done.sold)
			}
			x.audit()
		},
		Check:    checker.All(seen, checker.Reported("tries_per_sale_at_8", "sales_per_s_at_1", "sales_per_s_at_8", "sales_per_s_at_64"), checker.Clean()),
		Pictures: []Picture{Steps},
	}
}

type tally struct {
	took          time.Duration
	updates, sold float64
}

// counted is what the database does while something is done.
func (x *Try) counted(do func()) tally {
	db := x.connection()
	before, begun := x.count(db), time.Now()
	do()
	after := x.count(db)
	return tally{took: time.Since(begun), updates: after.updates - before.updates, sold: after.sold - before.sold}
}

func (x *Try) count(db *sql.DB) (t tally) {
	audit, err := x.Client().AuditNow(x, x.Item)
	x.Must(err)
	var name string
	x.Must(db.QueryRowContext(x, `SHOW GLOBAL STATUS LIKE 'Com_update'`).Scan(&name, &t.updates))
	t.sold = float64(audit.Sold)
	return t
}

// connection is one to the database that only the caller uses, until the end of the try.
func (x *Try) connection() *sql.DB {
	db, _, err := x.Backends.Database.Pool(1, patience)
	x.Must(err)
	x.Later(db.Close)
	return db
}

func noLock() Experiment {
	const lock, none = "redis-reentrant", "sql-conditional"
	lastUnits := func(name, strategy string) Part {
		return Part{
			Name: name, Remedy: true, Stage: shared(Redis),
			Does:   "50 clients buy 700 times from 500 units through " + strategy + ", behind the balancer of three replicas",
			Expect: "exactly 500 are sold, and 200 are rejected as sold out",
			Do:     sellOut(strategy, 500, 700),
			Check:  checker.All(checker.Clean(), checker.SoldOut(500), checker.Outcomes(history.Rejected, 200)),
		}
	}
	return Experiment{
		Number: 26, Name: "no-lock", Title: "The cheapest safe way: does this need a lock at all?",
		Claim:  "An UPDATE that compares and subtracts in one statement needs no lock but the one that the database takes on the row by itself.",
		Source: flashSales + ", a lock by MySQL",
		Fix:    "stockd serve --deduct-strategy sql-conditional",
		Parts: []Part{lastUnits("lock", lock), lastUnits("no-lock", none), {
			Name: "cost", Stage: shared(Redis),
			Does:   "50 clients buy for two seconds through " + lock + ", and for two seconds through " + none,
			Expect: "more sales a second without the lock",
			Do: func(x *Try) {
				x.stock(1_000_000)
				x.sell(Sale{Strategy: lock, Clients: 50, Duration: 2 * time.Second})
				x.sell(Sale{Strategy: none, Clients: 50, Duration: 2 * time.Second})
				x.audit()
			},
			Check: checker.All(checker.Faster(none, lock, 1), checker.Clean()), Tries: 3,
		}},
	}
}

func twoStrategies() Experiment {
	const lock, none = "redis-reentrant", "sql-conditional"
	// both sells through the two at the same time.
	both := func(x *Try, requests int, duration time.Duration) {
		x.start(func() { x.sell(Sale{Strategy: lock, Clients: 4, Requests: requests, Duration: duration}) })
		x.sell(Sale{Strategy: none, Clients: 6, FirstClient: 4, Requests: requests, Duration: duration})
		x.wait()
	}
	stage := shared(MySQL, Redis)
	return Experiment{
		Number: 27, Name: "two-strategies", Title: "A lock excludes only its own users: two strategies, and a foreign writer, on one item",
		Claim:  "A strategy that reads, computes and writes back under a lock overwrites what others write without the lock, unless its write compares with what was read.",
		Source: "measured here",
		Fix:    "stockd serve --deduct-strategy sql-conditional",
		Parts: []Part{{
			Name: "foreign-writer", Stage: stage,
			Does:   "six clients buy through " + none + ", while an application beside stockd reads the row, works for 5 ms and writes what it has read, without comparing",
			Expect: "sales are overwritten, and the audit finds it",
			Do: func(x *Try) {
				x.stock(100_000)
				db, writes := x.connection(), 0.0
				x.meanwhile(func() { x.sell(Sale{Strategy: none, Clients: 6, Requests: 500}) }, func(context.Context) {
					var left int64
					x.Must(db.QueryRowContext(x, `SELECT stock FROM tb_goods_stock WHERE goods_id = ?`, x.Item).Scan(&left))
					x.Must(pause.For(x, 5*time.Millisecond))
					_, err := db.ExecContext(x, `UPDATE tb_goods_stock SET stock = ? WHERE goods_id = ?`, left, x.Item)
					x.Must(err)
					writes++
				})
				x.Figure("foreign_writes", writes)
				x.audit()
			},
			Check: checker.All(checker.LostUpdates(), checker.Reported("foreign_writes")), Tries: 3,
		}, {
			Name: "sold-out", Remedy: true, Stage: stage,
			Does:   "four clients buy through " + lock + " and six through " + none + ", 400 times each from 400 units",
			Expect: "exactly 400 are sold",
			Do: func(x *Try) {
				x.stock(400)
				both(x, 400, 0)
				x.audit()
			},
			Check: checker.All(checker.Clean(), checker.SoldOut(400)),
		}, {
			Name: "decided-anew", Remedy: true, Stage: stage,
			Does:   "the same clients buy for two seconds from more than they can buy, and the UPDATEs of the database are counted",
			Expect: "no update is lost: a purchase that finds the row changed is decided anew",
			Do: func(x *Try) { // it must not sell out, or use a lock in SQL
				x.stock(1_000_000)
				done := x.counted(func() { both(x, 0, 2*time.Second) })
				x.Figure("decided_anew_per_100_sales", 100*(done.updates-done.sold)/max(1, done.sold))
				x.audit()
			},
			Check: checker.All(checker.Clean(), checker.AtLeast("decided_anew_per_100_sales", 1)),
		}},
	}
}

func severalNodes() Experiment {
	return Experiment{
		Number: 37, Name: "several-nodes", Title: "A lock in a database of several writing nodes is a lock of one node",
		Claim: "A row that is locked, or a name that is taken with GET_LOCK, on one node of a cluster excludes no holder on another node: " +
			"replicas that write to different nodes oversell. A statement that compares and writes stays exact, because the nodes compare what they commit; so does a lock where all replicas write to one node.",
		Source: "measured here; the documentation of Galera and of Group Replication says that such locks are not replicated",
		Fix:    "stocklab demo --strategies sql-conditional --replicas 3",
		Parts: []Part{
			onNodes("row-lock", "sql-row-lock", 3, "more is sold than exists: each node grants the lock by itself", checker.All(checker.Oversold(), checker.LostUpdates())),
			onNodes("named-lock", "sql-named-lock", 3, "more is sold than exists: a name is taken on one node", checker.All(checker.Oversold(), checker.LostUpdates())),
			asRemedy(onNodes("conditional", "sql-conditional", 3, "exactly 300 are sold", checker.All(checker.Clean(), checker.SoldOut(300)))),
			asRemedy(onNodes("one-node", "sql-row-lock", 1, "exactly 300 are sold: all wait for the lock of the one node", checker.All(checker.Clean(), checker.SoldOut(300)))),
		},
	}
}

// onNodes sells one item through three replicas that write to so many nodes of a cluster.
func onNodes(name, strategy string, nodes int, expect string, seen checker.Check) Part {
	where := "each to a node of its own"
	if nodes == 1 {
		where = "all to one node"
	}
	return Part{
		Name: name, Stage: Stage{Replicas: 3, Nodes: nodes, Lab: true, Env: []string{"STOCKD_LAB_WITHOUT=one-server"}},
		Does:   fmt.Sprintf("three replicas write to a Galera cluster of three nodes, %s; 12 clients buy 900 times from 300 units through %s", where, strategy),
		Expect: expect, Check: seen, Tries: 3, Pictures: []Picture{Stock},
		Do: func(x *Try) {
			x.stock(300)
			x.watching(func() { x.sell(Sale{Strategy: strategy, Clients: 12, Requests: 900}) })
			x.audit()
		},
	}
}
