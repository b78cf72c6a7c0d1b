package experiments

import (
	"database/sql"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

func oversell() Experiment {
	return Experiment{
		Number: 1, Name: "oversell", Title: "Read, compare, write back: the item is oversold",
		Claim:  "50 buyers with 100 purchases each, all accepted, leave most of 5,000 units in the row, so that far more can be sold than exist.",
		Source: chapterOne + ", the problem of overselling",
		Fix:    "stocklab demo --strategies naive,sql-conditional",
		Parts: []Part{{
			Name: "naive", Stage: Stage{Replicas: 1},
			Does:   "50 clients buy 5,000 times from 5,000 units on one replica, then 1,000 times more",
			Expect: "every purchase is accepted, units are left in the row all the same, and more is sold than exists",
			Do: func(x *Try) {
				x.stock(5000)
				x.watching(func() {
					x.sell(Sale{Strategy: "naive", Clients: 50, Requests: 5000})
					x.sell(Sale{Strategy: "naive", Clients: 50, Requests: 1000})
				})
				x.audit()
			},
			Check: checker.All(checker.LostUpdates(), checker.Oversold(), checker.NotLinearizable()), Tries: 3, Orders: true,
			Pictures: []Picture{Stock},
		}, {
			Name: "conditional", Remedy: true, Stage: Stage{Replicas: 1},
			Does:   "the same with the comparison in the UPDATE",
			Expect: "5,000 are sold, and 1,000 are rejected as sold out",
			Do: func(x *Try) {
				x.stock(5000)
				x.watching(func() { x.sell(Sale{Strategy: "sql-conditional", Clients: 50, Requests: 6000}) })
				x.audit()
			},
			Check: checker.All(checker.Clean(), checker.SoldOut(5000), checker.Linearizable(), checker.Outcomes(history.Rejected, 1000)), Pictures: []Picture{Stock},
		}},
	}
}

func processMutex() Experiment {
	one := Stage{Replicas: 1}
	return Experiment{
		Number: 2, Name: "process-mutex", Title: "A mutex in the process keeps one replica right, and costs throughput",
		Claim:  "A lock in the process around the deduction ends overselling on one machine, and the throughput falls.",
		Source: chapterOne + ", locks in the process",
		Fix:    "stocklab demo --strategies mutex --replicas 1",
		Parts: []Part{{
			Name: "mutex", Remedy: true, Stage: one,
			Does:   "50 clients buy 3,000 times from 2,500 units through mutex on one replica",
			Expect: "exactly 2,500 are sold, and 500 are rejected as sold out",
			Do:     sellOut("mutex", 2500, 3000),
			Check:  checker.All(checker.Clean(), checker.SoldOut(2500), checker.Outcomes(history.Rejected, 500)),
		}, {
			Name: "cost", Stage: one,
			Does:   "50 clients buy for two seconds without a lock, and for two seconds through mutex",
			Expect: "fewer sales a second under the mutex",
			Do: func(x *Try) {
				x.stock(1_000_000)
				x.sell(Sale{Strategy: "naive", Clients: 50, Duration: 2 * time.Second})
				x.sell(Sale{Strategy: "mutex", Clients: 50, Duration: 2 * time.Second})
			},
			Check: checker.Faster("naive", "mutex", 1), Tries: 3,
		}},
	}
}

func mutexPerRequest() Experiment {
	one := Stage{Replicas: 1}
	return Experiment{
		Number: 3, Name: "mutex-per-request", Title: "A new mutex for each request excludes no other request",
		Claim:  "Where each request gets an object of its own, and with it a lock of its own, the lock fails on one machine already.",
		Source: chapterOne + ", a bean of prototype scope",
		Fix:    "stocklab demo --strategies mutex-per-request,mutex --replicas 1",
		Parts: []Part{{
			Name: "per-request", Stage: one,
			Does:   "50 clients buy 2,500 times from 2,500 units, each purchase under a mutex made for it",
			Expect: "updates are lost",
			Do:     sellOut("mutex-per-request", 2500, 2500),
			Check:  checker.LostUpdates(), Tries: 3, Pictures: []Picture{Timeline},
		}, {
			Name: "one-mutex", Remedy: true, Stage: one,
			Does:   "the same under one mutex for all purchases of the item",
			Expect: "no update is lost",
			Do:     sellOut("mutex", 2500, 2500),
			Check:  checker.All(checker.Clean(), checker.SoldOut(2500)),
		}},
	}
}

func mutexInTransaction() Experiment {
	one := Stage{Replicas: 1, Lab: true, Needs: []Need{MySQL}} // SQLite has no gap between unlock and commit
	return Experiment{
		Number: 4, Name: "mutex-in-transaction", Title: "Unlocked before the commit: the next one reads what is not there yet",
		Claim:  "A lock that is acquired and released in the transaction lets the next request read before the first has committed, at READ COMMITTED and at REPEATABLE READ, which is the default of MySQL.",
		Source: chapterOne + ", locks and transactions",
		Fix:    "stocklab demo --strategies mutex-in-tx,mutex --replicas 1",
		Parts: []Part{{
			Name: "inside", Stage: one,
			Does:   "50 clients buy 2,500 times from 2,500 units; the mutex is given back before the commit",
			Expect: "updates are lost",
			Do:     sellOut("mutex-in-tx", 2500, 2500),
			Check:  checker.LostUpdates(), Tries: 3, Pictures: []Picture{Steps},
		}, {
			Name: "outside", Remedy: true, Stage: one,
			Does:   "the same; the mutex is taken before the transaction and given back after its commit",
			Expect: "no update is lost",
			Do:     sellOut("mutex", 2500, 2500),
			Check:  checker.All(checker.Clean(), checker.SoldOut(2500)), Pictures: []Picture{Steps},
		}, {
			Name: "isolation", Stage: on(MySQL),
			Does:   "two transactions take one of ten units in turn, the second when the first has written and not committed; at READ COMMITTED, and at REPEATABLE READ",
			Expect: "nine are left at both: the second has read what was committed",
			Do:     sellTwice(false), Check: leftAtBoth(9),
		}, {
			Name: "committed", Remedy: true, Stage: on(MySQL),
			Does:   "the same; the second begins to read when the first has committed",
			Expect: "eight are left at both",
			Do:     sellTwice(true), Check: leftAtBoth(8),
		}},
	}
}

// sellTwice has two transactions read and write the stock one after the other, at both levels of isolation.
func sellTwice(commitFirst bool) func(x *Try) {
	return func(x *Try) {
		db := x.probing()
		for name, level := range map[string]sql.IsolationLevel{
			innodb.LeftReadCommitted: sql.LevelReadCommitted, innodb.LeftRepeatableRead: sql.LevelRepeatableRead,
		} {
			left, err := innodb.SellTwice(x, db, level, commitFirst)
			x.Must(err)
			x.Figure(name, float64(left))
		}
	}
}

// leftAtBoth expects so many units at both levels of isolation.
func leftAtBoth(units float64) checker.Check {
	return checker.All(
		checker.AtLeast(innodb.LeftReadCommitted, units), checker.AtMost(innodb.LeftReadCommitted, units),
		checker.AtLeast(innodb.LeftRepeatableRead, units), checker.AtMost(innodb.LeftRepeatableRead, units),
	)
}

func threeReplicas() Experiment {
	e := Experiment{
		Number: 5, Name: "three-replicas", Title: "Behind a balancer each replica has a mutex of its own; a lock outside of them is one for all",
		Claim:  "Three services behind nginx have three locks, which is as good as none; a lock in a system that all of them share is the remedy.",
		Source: chapterOne + ", a cluster behind nginx; " + twoWays + ", the introduction",
		Fix:    "stocklab demo --strategies mutex,redis-reentrant --replicas 3",
		Parts: []Part{{
			Name: "mutex", Stage: shared(),
			Does:   "50 clients buy 2,000 times from 2,000 units through mutex, behind the balancer of three replicas",
			Expect: "updates are lost",
			Do:     sellOut("mutex", 2000, 2000),
			Check:  checker.LostUpdates(), Tries: 3, Pictures: []Picture{Timeline},
		}},
	}
	for _, l := range registry.Locks() {
		if l.Guarantees.ExclusiveAcrossReplicas {
			e.Parts = append(e.Parts, sharedBy(l))
		}
	}
	return e
}

func sharedBy(l lock.Entry) Part {
	p := Part{
		Name: l.Name, Remedy: true, Stage: shared(needsOf(l)...),
		Does:   "24 clients buy 150 times from 100 units through " + l.Name + ", behind the same balancer, for four seconds at most",
		Expect: "exactly 100 are sold, one holder at a time",
		Do: func(x *Try) {
			x.stock(100)
			x.sell(Sale{Strategy: l.Name, Clients: 24, Requests: 150, Duration: 4 * time.Second})
			x.audit()
		},
		Check: checker.All(checker.Clean(), checker.SoldOut(100), checker.ExclusiveHolders()), Pictures: []Picture{Timeline},
	}
	if !l.Guarantees.ReleasesOnlyItsOwn { // experiments 6, 7 and 12 show how these stall
		p.Expect = "what is sold is sold once, one holder at a time; that it gets done is not asked"
		p.Check = checker.All(checker.Clean(), checker.ExclusiveHolders())
	}
	return p
}

func shared(needs ...Need) Stage {
	return Stage{Needs: needs, Replicas: 3, Lab: true, Env: []string{"STOCKD_LOCK_RETRY=5ms", "STOCKD_LOCK_TTL=3s"}}
}

func needsOf(l lock.Entry) []Need {
	needs := make([]Need, 0, len(l.Needs))
	for _, need := range l.Needs {
		needs = append(needs, Need(need))
	}
	return slices.DeleteFunc(needs, func(n Need) bool { return n == "database" })
}
