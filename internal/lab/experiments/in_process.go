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

func oversell() []Part {
	return []Part{{
		Name: "naive", Stage: Stage{Replicas: 1},
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
		Do: func(x *Try) {
			x.stock(5000)
			x.watching(func() { x.sell(Sale{Strategy: "sql-conditional", Clients: 50, Requests: 6000}) })
			x.audit()
		},
		Check: checker.All(checker.Clean(), checker.SoldOut(5000), checker.Linearizable(), checker.Outcomes(history.Rejected, 1000)), Pictures: []Picture{Stock},
	}}
}

func processMutex() []Part {
	one := Stage{Replicas: 1}
	return []Part{{
		Name: "mutex", Remedy: true, Stage: one,
		Do:    sellOut("mutex", 2500, 3000),
		Check: checker.All(checker.Clean(), checker.SoldOut(2500), checker.Outcomes(history.Rejected, 500)),
	}, {
		Name: "cost", Stage: one,
		Do: func(x *Try) {
			x.stock(1_000_000)
			x.sell(Sale{Strategy: "naive", Clients: 50, Duration: 2 * time.Second})
			x.sell(Sale{Strategy: "mutex", Clients: 50, Duration: 2 * time.Second})
		},
		Check: checker.Faster("naive", "mutex", 1), Tries: 3,
	}}
}

func mutexPerRequest() []Part {
	one := Stage{Replicas: 1}
	return []Part{{
		Name: "per-request", Stage: one,
		Do:    sellOut("mutex-per-request", 2500, 2500),
		Check: checker.LostUpdates(), Tries: 3, Pictures: []Picture{Timeline},
	}, {
		Name: "one-mutex", Remedy: true, Stage: one,
		Do:    sellOut("mutex", 2500, 2500),
		Check: checker.All(checker.Clean(), checker.SoldOut(2500)),
	}}
}

func mutexInTransaction() []Part {
	one := Stage{Replicas: 1, Lab: true, Needs: []Need{MySQL}} // SQLite has no gap between unlock and commit
	return []Part{{
		Name: "inside", Stage: one,
		Do:    sellOut("mutex-in-tx", 2500, 2500),
		Check: checker.LostUpdates(), Tries: 3, Pictures: []Picture{Steps},
	}, {
		Name: "outside", Remedy: true, Stage: one,
		Do:    sellOut("mutex", 2500, 2500),
		Check: checker.All(checker.Clean(), checker.SoldOut(2500)), Pictures: []Picture{Steps},
	}, {
		Name: "isolation", Stage: on(MySQL),
		Do: sellTwice(false), Check: leftAtBoth(9),
	}, {
		Name: "committed", Remedy: true, Stage: on(MySQL),
		Do: sellTwice(true), Check: leftAtBoth(8),
	}}
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

func threeReplicas() []Part {
	parts := []Part{{
		Name: "mutex", Stage: shared(),
		Do:    sellOut("mutex", 2000, 2000),
		Check: checker.LostUpdates(), Tries: 3, Pictures: []Picture{Timeline},
	}}
	for _, l := range registry.Locks() {
		if l.Guarantees.ExclusiveAcrossReplicas {
			parts = append(parts, sharedBy(l))
		}
	}
	return parts
}

func sharedBy(l lock.Entry) Part {
	p := Part{
		Name: l.Name, Remedy: true, Stage: shared(needsOf(l)...),
		Do: func(x *Try) {
			x.stock(100)
			x.sell(Sale{Strategy: l.Name, Clients: 24, Requests: 150, Duration: 4 * time.Second})
			x.audit()
		},
		Check: checker.All(checker.Clean(), checker.SoldOut(100), checker.ExclusiveHolders()), Pictures: []Picture{Timeline},
	}
	if !l.Guarantees.ReleasesOnlyItsOwn { // experiments 6, 7 and 12 show how these stall
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
