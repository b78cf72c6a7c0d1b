package repo_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// One buyer has more by the ledger than is counted, and than the limit; another one had
// what is more than the limit now when it was lowered.
func TestAFullAuditFindsBuyersBeyondTheLimit(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		if err := s.CreateLimited(t.Context(), 1, 100, 3, "first"); err != nil {
			t.Fatal(err)
		}
		sell := func(user string, counted, written int64) {
			err := s.InTx(t.Context(), func(tx *repo.Tx) error {
				p := stock.Purchase{RequestID: user, UserID: user, Quantity: counted}
				if _, err := tx.CountIn(t.Context(), 1, 3, []stock.Purchase{p}); err != nil {
					return err
				}
				p.Quantity = written
				if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{p}}); err != nil {
					return err
				}
				_, _, err := tx.SubtractIfEnough(t.Context(), 1, written)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		audit := func(want stock.Buyers) {
			a, err := s.AuditInFull(t.Context(), 1)
			if err != nil || a.Buyers == nil || *a.Buyers != want || a.Clean != (want == (stock.Buyers{})) {
				t.Errorf("the audit is %+v, of buyers %+v (%v), want %+v", a, a.Buyers, err, want)
			}
		}
		sell("a", 3, 3)
		audit(stock.Buyers{})
		if err := s.SetLimit(t.Context(), 1, 2); err != nil {
			t.Fatal(err)
		}
		audit(stock.Buyers{})
		if err := s.SetLimit(t.Context(), 1, 3); err != nil {
			t.Fatal(err)
		}
		sell("b", 2, 5)
		audit(stock.Buyers{Miscounted: 1, BeyondLimit: 1})
	})
}

// A lower limit is set, and what a buyer has cannot be allowed any more, because
// another purchase for the buyer comes just then: that is not as if nothing had happened.
func TestALimitThatIsSetHalfwayIsAnUnknownOutcome(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, hasty := labtest.Open(t, d, "r"), impatient(t, d)
		if err := s.CreateLimited(t.Context(), 1, 100, 3, "first"); err != nil {
			t.Fatal(err)
		}
		enough := errors.New("nothing is to be written")
		counts := func(units int64, meanwhile error, do func()) {
			err := s.InTx(t.Context(), func(tx *repo.Tx) error {
				if _, err := tx.CountIn(t.Context(), 1, 3, []stock.Purchase{{UserID: "a", Quantity: units}}); err != nil {
					return err
				}
				do()
				return meanwhile
			})
			if !errors.Is(err, meanwhile) {
				t.Fatal(err)
			}
		}
		counts(3, nil, func() {})
		counts(1, enough, func() {
			if err := hasty.SetLimit(t.Context(), 1, 2); !errors.Is(err, stock.ErrUnknownOutcome) {
				t.Errorf("a limit that is set halfway is answered with %v, want %v", err, stock.ErrUnknownOutcome)
			}
		})
		if goods, err := s.Goods(t.Context(), 1); err != nil || goods.PerUser != 2 {
			t.Errorf("the item is %+v (%v), want a limit of 2", goods, err)
		}
		if err := hasty.SetLimit(t.Context(), 1, 2); err != nil {
			t.Errorf("setting it again: %v", err)
		}
	})
}

// The first limit of an item reads its whole ledger, which may take longer than any
// purchase may.
func TestALimitMayTakeLongerThanAPurchase(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		const longest = 300 * time.Millisecond // of a purchase
		s, err := repo.Open(t.Context(), backend.SQLOptions{
			Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 2, LockWait: 5 * time.Second, ConnectTimeout: time.Second,
			TxTimeout: longest,
		}, repo.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() }) //nolint:errcheck // the test is over
		other := labtest.Open(t, d, "other")
		create(t, other, 1, 10)
		locked := make(chan struct{})
		var holder sync.WaitGroup
		holder.Go(func() {
			if err := other.InTx(t.Context(), func(tx *repo.Tx) error {
				_, err := tx.GoodsForUpdate(t.Context(), 1)
				close(locked)
				time.Sleep(3 * longest)
				return err
			}); err != nil {
				t.Error(err)
			}
		})
		<-locked
		if err := s.SetLimit(t.Context(), 1, 2); err != nil {
			t.Errorf("the limit is answered with %v", err)
		}
		holder.Wait()
	})
}
