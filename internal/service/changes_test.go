package service_test

import (
	"context"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// A limit that goes on without its request is shown in progress, then as failed until it is made again, here or by
// another replica, which cannot know of either.
func TestALimitInTheBackgroundIsShown(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	locking := labtest.Open(t, d, "locking")
	s, other := open(t, d, 1), open(t, d, 1)
	s.create(t, 1, 10)
	state := func(of shop) string {
		changes := must.Get(of.inventory.Item(t.Context(), 1))(t).Changes
		if len(changes) == 0 {
			return ""
		}
		if c := changes[0]; len(changes) > 1 || c.Kind != stock.ChangeOfLimit || c.PerUser != 2 || c.Since.IsZero() || (c.Err != nil) != (c.State == stock.ChangeFailed) {
			t.Errorf("it has %+v, want a limit of 2", changes)
		}
		return changes[0].State
	}
	failed := func() bool { return state(s) == stock.ChangeFailed }
	fail := func() {
		must.Do(t, locking.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.GoodsForUpdate(t.Context(), 1); err != nil {
				return err
			}
			soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if _, err := s.inventory.SetLimit(soon, 1, 2); err == nil {
				t.Error("a limit of a locked item is set")
			}
			if got, elsewhere := state(s), state(other); got != stock.ChangeInProgress || elsewhere != "" {
				t.Errorf("it is %q, and %q at another replica; want it in progress here", got, elsewhere)
			}
			should.Be(t, labtest.Eventually(20*time.Second, failed), true, "it is …, want it failed", state(s))
			return nil
		}))
	}
	fail()
	if !failed() {
		t.Error("the failure is forgotten")
	}
	must.Get(s.inventory.SetLimit(t.Context(), 1, 2))(t)
	should.Be(t, state(s), "", "made again it is")
	if _, err := s.inventory.SetLimit(t.Context(), 1, 0); err != nil {
		t.Error(err)
	}
	fail()
	must.Get(other.inventory.SetLimit(t.Context(), 1, 2))(t)
	should.Be(t, state(s), "", "made by another replica it is")
}
