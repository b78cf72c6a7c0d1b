package strategy_test

import (
	"errors"
	"testing"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

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
	entry := strategy.Entry{Caveats: []strategy.Caveat{{Database: repo.SQLite, Words: "slower", Hides: true}}}
	if got := entry.Caveat(repo.SQLite); got != entry.Caveats[0] {
		t.Errorf("on SQLite it is %+v", got)
	}
	if got := entry.Caveat(repo.MySQL); got != (strategy.Caveat{}) {
		t.Errorf("on MySQL it is %+v, want none", got)
	}
}

// Without its backend a strategy answers why, however it is asked.
func TestAStrategyWithoutItsBackendSaysWhichIsMissing(t *testing.T) {
	made := strategy.Entry{Needs: []backend.Name{backend.Redis}}.Make(strategy.Deps{})
	_, err := made.Deduct(t.Context(), 1, []stock.Purchase{purchase(1)})
	_, fenced := made.(strategy.Fencer).DeductFenced(t.Context(), 1, []stock.Purchase{purchase(1)}) //nolint:forcetypeassert // a panic fails the test as well
	_, recall := made.(strategy.Allocator).Recall(t.Context(), 1)                                   //nolint:forcetypeassert // the same
	for _, err := range []error{err, fenced, recall} {
		if !errors.Is(err, backend.ErrNotConfigured) {
			t.Errorf("%v, want %v", err, backend.ErrNotConfigured)
		}
	}
}
