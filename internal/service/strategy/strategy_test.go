package strategy_test

import (
	"os"
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
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

// One replica writes the batches of an item one after the other; several of them do not.
func TestAGroupIsExclusiveInItsReplicaAlone(t *testing.T) {
	for _, c := range []struct {
		guarantees     strategy.Guarantees
		alone, several bool
	}{
		{strategy.Guarantees{}, false, false},
		{strategy.Guarantees{ExclusiveInProcess: true}, true, false},
		{strategy.Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true}, true, true},
	} {
		if one, three := c.guarantees.Exclusive(1), c.guarantees.Exclusive(3); one != c.alone || three != c.several {
			t.Errorf("%+v excludes on one replica: %v, on three: %v", c.guarantees, one, three)
		}
		grouped := c.guarantees.Grouped()
		if one, three := grouped.Exclusive(1), grouped.Exclusive(3); !one || three != c.several {
			t.Errorf("%+v, grouped, excludes on one replica: %v, on three: %v", c.guarantees, one, three)
		}
	}
}

func TestACaveatIsOfItsDatabase(t *testing.T) {
	entry := strategy.Entry{OnSQLite: strategy.Caveat{Words: "slower", Hides: true}}
	should.Be(t, entry.Caveat(repo.SQLite), entry.OnSQLite, "on SQLite it")
	should.Be(t, entry.Caveat(repo.MySQL), strategy.Caveat{}, "on MySQL it")
}

// Without its backend a strategy answers why, however it is asked.
func TestAStrategyWithoutItsBackendSaysWhichIsMissing(t *testing.T) {
	made := strategy.Entry{Needs: []backend.Name{backend.Redis}}.Make(strategy.Deps{})
	_, err := made.Deduct(t.Context(), 1, []stock.Purchase{purchase(1)})
	_, fenced := made.(strategy.Fencer).DeductFenced(t.Context(), 1, []stock.Purchase{purchase(1)}) //nolint:forcetypeassert // a panic fails the test as well
	_, recall := made.(strategy.Allocator).Recall(t.Context(), 1)                                   //nolint:forcetypeassert // the same
	for _, err := range []error{err, fenced, recall} {
		should.Fail(t, err, backend.ErrNotConfigured)
	}
}

// These, and no others, may oversell where a holder loses its lock unnoticed.
func TestWhatIsSafe(t *testing.T) {
	unnoticed := map[string]bool{"redis-setnx": true, "redis-setnx-ttl": true, "redis-setnx-owner": true, "redis-getset": true}
	for _, e := range strategy.Registry() {
		if e.Guarantees.Safe(false) != (e.Guarantees.ExclusiveAcrossReplicas && !unnoticed[e.Name]) || e.Guarantees.Safe(true) != e.Guarantees.ExclusiveAcrossReplicas {
			t.Errorf("%s is safe: %v, and with a fence: %v", e.Name, e.Guarantees.Safe(false), e.Guarantees.Safe(true))
		}
	}
}

// What a lock guarantees is what its strategy does, which can be fenced as well.
func TestAStrategyHasTheGuaranteesOfItsLock(t *testing.T) {
	for _, l := range registry.Locks() {
		e, want := entryOf(t, l.Name), l.Guarantees
		want.Fenceable = true
		if e.Guarantees != want || e.Summary != l.Summary || string(e.Family) != l.Family || !slices.Equal(e.Needs, l.Needs) || e.Watchdog != l.Watchdog || e.OneServer != l.OneServer {
			t.Errorf("the strategy of the lock %+v is %+v", l, e)
		}
	}
}
