package repo_test

import (
	"context"
	"crypto/rand"
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
//
//contract:repo.Store A limit that was set halfway
func TestALimitThatIsSetHalfwayIsAnUnknownOutcome(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, hasty := labtest.Open(t, d, "r"), impatient(t, d)
		if err := s.CreateLimited(t.Context(), 1, 100, 3, "first"); err != nil {
			t.Fatal(err)
		}
		buy := func(units int64, then func(tx *repo.Tx) error) error {
			return s.InTx(t.Context(), func(tx *repo.Tx) error {
				batch := []stock.Purchase{{RequestID: rand.Text(), UserID: "a", Quantity: units}}
				if _, err := tx.CountIn(t.Context(), 1, 3, batch); err != nil {
					return err
				}
				if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: batch}); err != nil {
					return err
				}
				return then(tx)
			})
		}
		err := buy(3, func(tx *repo.Tx) error {
			_, _, err := tx.SubtractIfEnough(t.Context(), 1, 3)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		enough := errors.New("nothing is to be written")
		err = buy(1, func(*repo.Tx) error {
			if err := hasty.SetLimit(t.Context(), 1, 2); !errors.Is(err, stock.ErrUnknownOutcome) {
				t.Errorf("a limit that is set halfway is answered with %v, want %v", err, stock.ErrUnknownOutcome)
			}
			return enough
		})
		if !errors.Is(err, enough) {
			t.Fatal(err)
		}
		if goods, err := s.Goods(t.Context(), 1); err != nil || goods.PerUser != 2 {
			t.Errorf("the item is %+v (%v), want a limit of 2", goods, err)
		}
		if err := hasty.SetLimit(t.Context(), 1, 2); err != nil {
			t.Errorf("setting it again: %v", err)
		}
		if found, err := s.AuditUsers(t.Context(), 1); err != nil || found != (stock.Buyers{}) {
			t.Errorf("after it was set again the buyers are %+v (%v), want none beyond the limit: it was lowered", found, err)
		}
	})
}

// taking takes a unit of item 1, whose row was read.
type taking func(tx *repo.Tx, row stock.Goods) (taken bool, err error)

// takes are all ways to take one, or to be sure that none can be taken.
func takes(ctx context.Context) map[string]taking {
	changed := func(err error) (taken bool, _ error) {
		if errors.Is(err, repo.ErrRowChanged) {
			return false, nil
		}
		return err == nil, err
	}
	return map[string]taking{
		"the row": func(tx *repo.Tx, _ stock.Goods) (bool, error) {
			_, enough, err := tx.SubtractIfEnough(ctx, 1, 1)
			return enough, err
		},
		"the row, as it was read": func(tx *repo.Tx, row stock.Goods) (bool, error) { return changed(tx.Subtract(ctx, row, 1)) },
		"the row, as it was set":  func(tx *repo.Tx, row stock.Goods) (bool, error) { return changed(tx.SetStock(ctx, row, 1)) },
		"the row, under its lock": func(tx *repo.Tx, _ stock.Goods) (bool, error) {
			_, err := tx.GoodsForUpdate(ctx, 1)
			return changed(err)
		},
		"all buckets": func(tx *repo.Tx, _ stock.Goods) (bool, error) {
			_, _, err := tx.Gather(ctx, 1)
			return changed(err)
		},
		"nothing, in a rejection": func(tx *repo.Tx, _ stock.Goods) (bool, error) { return changed(tx.ConfirmLimit(ctx, 1)) },
		"a bucket":                func(tx *repo.Tx, _ stock.Goods) (bool, error) { return tx.TakeFromBucket(ctx, 1, 0, 1) },
		"unit rows": func(tx *repo.Tx, _ stock.Goods) (bool, error) {
			_, taken, err := tx.TakeUnitRows(ctx, 1, 1, 0)
			return taken, err
		},
		"all unit rows": func(tx *repo.Tx, _ stock.Goods) (bool, error) {
			free, err := tx.LockUnitRows(ctx, 1)
			return len(free) > 0, err
		},
	}
}

// A transaction that sells under another limit than the item's takes nothing, from wherever.
//
//contract:repo.Store Once a limit
func TestNothingIsTakenUnderAnotherLimit(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		units, bucketed := s.As(repo.InUnitRows), s.As(repo.Bucketed)
		create(t, s, 1, 30)
		if _, filled, err := units.FillPool(t.Context(), 1, 10); err != nil || filled != 10 {
			t.Fatalf("%d unit rows (%v), want 10", filled, err)
		}
		err := bucketed.InTx(t.Context(), func(tx *repo.Tx) error {
			row, buckets, err := tx.Gather(t.Context(), 1)
			if err != nil {
				return err
			}
			return tx.Spread(t.Context(), row, 10, 10, buckets, 2)
		})
		if err != nil {
			t.Fatal(err)
		}
		read := make(map[int64]stock.Goods) // by limit
		for _, limit := range []int64{0, 3} {
			if err := s.SetLimit(t.Context(), 1, limit); err != nil {
				t.Fatal(err)
			}
			if read[limit], err = s.Goods(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
		}
		undone := errors.New("undone")
		for name, take := range takes(t.Context()) {
			for _, limit := range []int64{0, 2, 3} {
				err := s.InTx(t.Context(), func(tx *repo.Tx) error {
					if _, err := tx.CountIn(t.Context(), 1, limit, nil); err != nil {
						return err
					}
					row := read[0] // as of before the limit
					if limit == 3 {
						row = read[3]
					}
					taken, err := take(tx, row)
					if err != nil || taken != (limit == 3) {
						t.Errorf("%s, under a limit of %d where it is 3: taken %v (%v)", name, limit, taken, err)
					}
					return undone
				})
				if !errors.Is(err, undone) {
					t.Errorf("%s: %v", name, err)
				}
			}
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
