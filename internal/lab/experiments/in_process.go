package experiments

import (
	"database/sql"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

func oversell() []Part {
	naive := newPart("naive", Stage{Replicas: 1}, checker.All(checker.LostUpdates(), checker.Oversold(), checker.NotLinearizable()), func(x *Try) {
		x.stock(5000)
		x.watching(func() {
			x.sell(Sale{Strategy: "naive", Clients: 50, Requests: 5000})
			x.sell(Sale{Strategy: "naive", Clients: 50, Requests: 1000})
		})
		x.audit()
	}, Stock)
	naive.Orders = true
	sold := checker.All(checker.Clean(), checker.SoldOut(5000), checker.Linearizable(), checker.Outcomes(history.Rejected, 1000))
	conditional := newPart("conditional", Stage{Replicas: 1}, sold, func(x *Try) {
		x.stock(5000)
		x.watching(func() { x.sell(Sale{Strategy: "sql-conditional", Clients: 50, Requests: 6000}) })
		x.audit()
	}, Stock)
	return []Part{naive, asRemedy(conditional)}
}

func processMutex() []Part {
	one, sold := Stage{Replicas: 1}, checker.All(checker.Clean(), checker.SoldOut(2500), checker.Outcomes(history.Rejected, 500))
	return []Part{
		asRemedy(newPart("mutex", one, sold, sellOut("mutex", 2500, 3000))),
		newPart("cost", one, checker.Faster("naive", "mutex", 1), func(x *Try) {
			x.stock(1_000_000)
			x.sell(Sale{Strategy: "naive", Clients: 50, Duration: 2 * time.Second})
			x.sell(Sale{Strategy: "mutex", Clients: 50, Duration: 2 * time.Second})
		}),
	}
}

func mutexPerRequest() []Part {
	one := Stage{Replicas: 1}
	return []Part{
		newPart("per-request", one, checker.LostUpdates(), sellOut("mutex-per-request", 2500, 2500)),
		asRemedy(newPart("one-mutex", one, checker.All(checker.Clean(), checker.SoldOut(2500)), sellOut("mutex", 2500, 2500))),
	}
}

func mutexInTransaction() []Part {
	one := Stage{Replicas: 1, Lab: true, Needs: []Need{MySQL}} // SQLite has no gap between unlock and commit
	return []Part{
		newPart("inside", one, checker.LostUpdates(), sellOut("mutex-in-tx", 2500, 2500)),
		asRemedy(newPart("outside", one, checker.All(checker.Clean(), checker.SoldOut(2500)), sellOut("mutex", 2500, 2500))),
		newPart("isolation", on(MySQL), leftAtBoth(9), sellTwice(false)),
		asRemedy(newPart("committed", on(MySQL), leftAtBoth(8), sellTwice(true))),
	}
}

// sellTwice has two transactions read and write the stock one after the other, at both levels of isolation.
func sellTwice(commitFirst bool) func(x *Try) {
	return func(x *Try) {
		db := x.probing()
		for name, level := range map[string]sql.IsolationLevel{
			innodb.LeftReadCommitted: sql.LevelReadCommitted, innodb.LeftRepeatableRead: sql.LevelRepeatableRead,
		} {
			x.Figure(name, float64(innodb.SellTwice(x.Flow, db, level, commitFirst)))
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
	parts := []Part{
		newPart("mutex", shared(), checker.LostUpdates(), sellOut("mutex", 2000, 2000)),
	}
	for _, l := range registry.Locks() {
		if l.Guarantees.ExclusiveAcrossReplicas {
			parts = append(parts, asRemedy(sharedBy(l)))
		}
	}
	return parts
}

func sharedBy(l lock.Entry) Part {
	seen, limit := checker.All(checker.Clean(), checker.SoldOut(100), checker.ExclusiveHolders()), 20*time.Second
	if !l.Guarantees.ReleasesOnlyItsOwn { // experiments 6, 7 and 12 show how these stall
		seen, limit = checker.All(checker.Clean(), checker.ExclusiveHolders()), 4*time.Second
	}
	return newPart(l.Name, shared(needsOf(l)...), seen, func(x *Try) {
		x.stock(100)
		x.sell(Sale{Strategy: l.Name, Clients: 24, Requests: 150, Duration: limit})
		x.audit()
	}, Timeline)
}

func shared(needs ...Need) Stage {
	return Stage{Needs: needs, Replicas: 3, Lab: true, Env: []string{"STOCKD_LOCK_RETRY=5ms", "STOCKD_LOCK_TTL=3s"}}
}

func needsOf(l lock.Entry) []Need {
	needs := make([]Need, 0, len(l.Needs))
	for _, need := range l.Needs {
		if need != "database" {
			needs = append(needs, Need(need))
		}
	}
	return needs
}
