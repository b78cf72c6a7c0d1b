package experiments

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
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

func insertLock() []Part {
	return []Part{
		deadInserter("no-reaper", checker.Deadlocked(4*time.Second), "STOCKD_LAB_WITHOUT=reaper"),
		asRemedy(deadInserter("reaper", checker.Freed(ttl+slack))),
		twoInserters("single-insert", sourcelock.InsertOnce, checker.RejectedWithin(500*time.Millisecond)),
		asRemedy(twoInserters("loop", "sql-insert-lock", checker.ExclusiveHolders())),
		sameOwner("no-owner", sourcelock.InsertLoop, checker.LockedItselfOut()),
		asRemedy(sameOwner("owner-and-depth", "sql-insert-lock", checker.Reentered())),
		twoThreads("one-owner", "machine", checker.Together("first", "second")),
		asRemedy(twoThreads("an-owner-each", "", checker.Apart("first", "second"))),
	}
}

// deadInserter has a replica die while it has the row.
func deadInserter(name string, seen checker.Check, env ...string) Part {
	p := deadHolder("sql-insert-lock", seen)
	p.Name, p.Stage = name, onDatabase(2, append(env, "STOCKD_LOCK_WAIT=1500ms")...)
	return p
}

// twoInserters are two that want the same row.
func twoInserters(name, kind string, seen checker.Check) Part {
	return newPart(name, onDatabase(1), seen, func(x *Try) {
		first, second := x.contend("first", MySQL).locker(kind), x.contend("second", MySQL).locker(kind)
		lease := x.take(first, x.lockName())
		x.start(func() { x.holdFor(0, second, x.lockName(), time.Second+patience) })
		x.sleep(time.Second)
		x.release(lease)
		x.wait()
	}, Timeline)
}

// twoThreads ask for one row with the same owner, or with different ones.
func twoThreads(name, owner string, seen checker.Check) Part {
	return newPart(name, on(MySQL), seen, func(x *Try) {
		first, second := x.firstAndSecond("sql-insert-lock", MySQL, ttl)
		first.owner, second.owner = owner, owner
		first.acquire()
		second.askAndGoOn(asks)
		x.givenBack(first, second)
	}, Timeline)
}

func sameOwner(name, kind string, seen checker.Check) Part {
	return newPart(name, onDatabase(1), seen, func(x *Try) { x.takeTwice(kind, MySQL) }, Timeline)
}

func forUpdate() []Part {
	one, other := Sale{Strategy: "sql-for-update"}, Sale{Strategy: "sql-conditional"}
	oneGrouped, otherGrouped := one, other
	oneGrouped.Group, otherGrouped.Group = true, true
	const long = 500 // milliseconds, where a sale that is in the way takes 2,000
	served := checker.All(checker.AtMost(longestRead, long), checker.Outcomes(history.Sold, 1+drainWaiting))
	return []Part{
		drain("one-pool", 3, checker.AtLeast(longestRead, long), one, other), // an item may use three
		asRemedy(drain("in-turns", 4, served, one)),
		asRemedy(drain("own-pool", 4, served, Sale{Strategy: "sql-row-lock"})),
		asRemedy(drain("grouped", 4, served, oneGrouped, otherGrouped)),
	}
}

const (
	// drainWaiting is how many wait for the first sale.
	drainWaiting = 12
	longestRead  = "longest_unrelated_read_ms"
)

// drain has a sale take two seconds under its lock, while more wait for the row than the
// replica has connections, and another request reads an idle item.
func drain(name string, connections int, seen checker.Check, sales ...Sale) Part {
	seen = checker.All(seen, checker.Clean())
	return newPart(name, onDatabase(1, fmt.Sprintf("STOCKD_DATABASE_MAX_OPEN=%d", connections), "STOCKD_LOCK_CONNECTIONS=4"), seen, func(x *Try) {
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
			flow.Get(x.Client().Goods(x, idle))(x.Flow)
			longest = max(longest, time.Since(began))
			x.sleep(100 * time.Millisecond)
		}
		x.Figure(longestRead, float64(longest.Microseconds())/1000)
		x.wait()
		x.audit()
	})
}

func optimistic() []Part {
	const one, crowd = "tries_per_sale_at_1", "tries_per_sale_at_64"
	const many = 10 // tries for one sale
	return []Part{
		tries("no-pause", "sql-optimistic", checker.All(checker.AtMost(one, 1.2), checker.AtLeast(crowd, many)), "STOCKD_LAB_WITHOUT=pause"),
		asRemedy(tries("pause", "sql-optimistic", checker.AtMost(crowd, many))),
		asRemedy(tries("conditional", "sql-conditional", checker.AtMost(crowd, 1.2))),
	}
}

// tries counts at three sizes of the crowd how many UPDATEs the database carries out for each sale. A try that finds
// the row changed is an UPDATE of no row.
func tries(name, strategy string, seen checker.Check, env ...string) Part {
	seen = checker.All(seen, checker.Reported("tries_per_sale_at_8", "sales_per_s_at_1", "sales_per_s_at_8", "sales_per_s_at_64"), checker.Clean())
	return newPart(name, onDatabase(1, append(env, "STOCKD_DATABASE_MAX_OPEN=80")...), seen, func(x *Try) {
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
	})
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
	audit := flow.Get(x.Client().AuditNow(x, x.Item))(x.Flow)
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

func noLock() []Part {
	const lock, none = "redis-reentrant", "sql-conditional"
	lastUnits := func(name, strategy string) Part {
		seen := checker.All(checker.Clean(), checker.SoldOut(500), checker.Outcomes(history.Rejected, 200))
		return asRemedy(newPart(name, shared(Redis), seen, sellOut(strategy, 500, 700)))
	}
	return []Part{lastUnits("lock", lock), lastUnits("no-lock", none), {
		Name: "cost", Stage: shared(Redis),
		Do: func(x *Try) {
			x.stock(1_000_000)
			x.sell(Sale{Strategy: lock, Clients: 50, Duration: 2 * time.Second})
			x.sell(Sale{Strategy: none, Clients: 50, Duration: 2 * time.Second})
			x.audit()
		},
		Check: checker.All(checker.Faster(none, lock, 1), checker.Clean()),
	}}
}

func twoStrategies() []Part {
	const lock, none = "redis-reentrant", "sql-conditional"
	// both sells through the two at the same time.
	both := func(x *Try, requests int, duration time.Duration) {
		x.start(func() { x.sell(Sale{Strategy: lock, Clients: 4, Requests: requests, Duration: duration}) })
		x.sell(Sale{Strategy: none, Clients: 6, FirstClient: 4, Requests: requests, Duration: duration})
		x.wait()
	}
	stage := shared(MySQL, Redis)
	return []Part{
		newPart("foreign-writer", stage, checker.All(checker.LostUpdates(), checker.Reported("foreign_writes")), func(x *Try) {
			x.stock(100_000)
			db, writes := x.connection(), 0.0
			x.meanwhile(func() { x.sell(Sale{Strategy: none, Clients: 6, Requests: 500}) }, func(context.Context) {
				var left int64
				x.Must(db.QueryRowContext(x, `SELECT stock FROM tb_goods_stock WHERE goods_id = ?`, x.Item).Scan(&left))
				x.Must(pause.For(x, 5*time.Millisecond))
				flow.Get(db.ExecContext(x, `UPDATE tb_goods_stock SET stock = ? WHERE goods_id = ?`, left, x.Item))(x.Flow)
				writes++
			})
			x.Figure("foreign_writes", writes)
			x.audit()
		}),
		asRemedy(newPart("sold-out", stage, checker.All(checker.Clean(), checker.SoldOut(400)), func(x *Try) {
			x.stock(400)
			both(x, 400, 0)
			x.audit()
		})),
		asRemedy(newPart("decided-anew", stage, checker.All(checker.Clean(), checker.AtLeast("decided_anew_per_100_sales", 1)), func(x *Try) {
			x.stock(1_000_000) // it must not sell out, or use a lock in SQL
			done := x.counted(func() { both(x, 0, 2*time.Second) })
			x.Figure("decided_anew_per_100_sales", 100*(done.updates-done.sold)/max(1, done.sold))
			x.audit()
		})),
	}
}

func severalNodes() []Part {
	return []Part{
		onNodes("row-lock", "sql-row-lock", 3, checker.All(checker.Oversold(), checker.LostUpdates())),
		onNodes("named-lock", "sql-named-lock", 3, checker.All(checker.Oversold(), checker.LostUpdates())),
		asRemedy(onNodes("conditional", "sql-conditional", 3, checker.All(checker.Clean(), checker.SoldOut(300)))),
		asRemedy(onNodes("one-node", "sql-row-lock", 1, checker.All(checker.Clean(), checker.SoldOut(300)))),
	}
}

// onNodes sells one item through three replicas that write to so many nodes of a cluster.
func onNodes(name, strategy string, nodes int, seen checker.Check) Part {
	stage := Stage{Replicas: 3, Nodes: nodes, Lab: true, Env: []string{"STOCKD_LAB_WITHOUT=one-server"}}
	return newPart(name, stage, seen, func(x *Try) {
		x.stock(300)
		x.watching(func() { x.sell(Sale{Strategy: strategy, Clients: 12, Requests: 900}) })
		x.audit()
	}, Stock)
}
