package strategy_test

import (
	"os"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/strategytest"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

func TestConformance(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		t.Parallel() // one waits for its disk, another for its turn
		bench := benchOn(labtest.Granted(t, d))
		if d.Driver == backend.SQLite {
			bench.Only, bench.Alone = onSQLite(), true
		}
		bench.Brief = otherLocks()
		strategytest.Run(t, bench)
	})
}

func benchOn(d *servers.Database) strategytest.Bench {
	return strategytest.Bench{
		Open:  func(t *testing.T, replica string) *repo.Store { return labtest.OpenReady(t, d, replica) },
		Locks: func(t *testing.T, needs []backend.Name) lock.Deps { return lab.Locks(t, d, needs...) },
	}
}

// otherLocks are the locks but for one on another server and one in the database, which stand for all in what the lock
// does not decide: TestProveEveryStrategyInFull has all of them.
func otherLocks() (names []string) {
	for _, l := range registry.Locks() {
		if l.Name != "redis-reentrant" && l.Name != "sql-row-lock" {
			names = append(names, l.Name)
		}
	}
	return names
}

// onSQLite are the strategies that sell on SQLite, too. Of those with a lock on another server
// one that is renewed stands for all, since only the lock is different: TestProveEveryStrategyInFull has all.
func onSQLite() (names []string) {
	for _, e := range strategy.Registry() {
		if len(e.Needs) == 0 || e.Family == strategy.Hot || e.Name == "redis-reentrant" {
			names = append(names, e.Name)
		}
	}
	return names
}
