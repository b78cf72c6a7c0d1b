package repo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// One buyer has more by the ledger than is counted, and than the limit; another one had
// what is more than the limit now when it was lowered.
func TestAFullAuditFindsBuyersBeyondTheLimit(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 100, PerUser: 3}, "first"))
		sell := func(user string, counted, written int64) {
			must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
				p := stock.Purchase{RequestID: user, UserID: user, Quantity: counted}
				if _, err := tx.CountIn(t.Context(), 1, 3, []stock.Purchase{p}); err != nil {
					return err
				}
				p.Quantity = written
				if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{p}}); err != nil {
					return err
				}
				return errOf(tx.SubtractIfEnough(t.Context(), 1, written))
			}))
		}
		audit := func(want stock.Buyers) {
			a, err := s.AuditInFull(t.Context(), 1)
			if err != nil || a.Buyers == nil || *a.Buyers != want || a.Clean != (want == (stock.Buyers{})) {
				t.Errorf("the audit is %+v, of buyers %+v (%v), want %+v", a, a.Buyers, err, want)
			}
		}
		sell("a", 3, 3)
		audit(stock.Buyers{})
		must.Do(t, s.SetLimit(t.Context(), 1, 2))
		audit(stock.Buyers{})
		must.Do(t, s.SetLimit(t.Context(), 1, 3))
		sell("b", 2, 5)
		audit(stock.Buyers{Miscounted: 1, BeyondLimit: 1})
		sell("c", 5, 5)
		for _, limit := range []int64{3, 4} { // the same again allows nothing, nor does a higher one
			must.Do(t, s.SetLimit(t.Context(), 1, limit))
			audit(stock.Buyers{Miscounted: 1, BeyondLimit: 2})
		}
	})
}

// A lower limit is set, and what a buyer has cannot be allowed any more, because
// another purchase for the buyer comes just then: that is not as if nothing had happened.
func TestALimitThatIsSetHalfwayIsAnUnknownOutcome(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, hasty := labtest.Open(t, d, "r"), impatient(t, d)
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 100, PerUser: 3}, "first"))
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
			return errOf(tx.SubtractIfEnough(t.Context(), 1, 3))
		})
		must.Do(t, err)
		enough := errors.New("nothing is to be written")
		err = buy(1, func(*repo.Tx) error {
			should.Fail(t, hasty.SetLimit(t.Context(), 1, 2), stock.ErrUnknownOutcome)
			if limited, recalled, err := s.Unfinished(t.Context(), 1); err != nil || !limited || recalled {
				t.Errorf("another replica sees that the limit is unfinished: %t, a recall: %t (%v); want the limit alone", limited, recalled, err)
			}
			return enough
		})
		if !errors.Is(err, enough) {
			t.Fatal(err)
		}
		should.Be(t, must.Get(s.Goods(t.Context(), 1))(t).PerUser, 2, "the item is")
		should.Do(t, hasty.SetLimit(t.Context(), 1, 2))
		if limited, _, err := s.Unfinished(t.Context(), 1); err != nil || limited {
			t.Errorf("set again it is unfinished: %t (%v)", limited, err)
		}
		should.Be(t, must.Get(s.AuditUsers(t.Context(), 1))(t), (stock.Buyers{}), "after it was set again the buyers are")
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
func TestNothingIsTakenUnderAnotherLimit(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		units, bucketed := s.As(repo.InUnitRows), s.As(repo.Bucketed)
		create(t, s, 1, 30)
		if _, filled, err := units.FillPool(t.Context(), 1, 10); err != nil || filled != 10 {
			t.Fatalf("%d unit rows (%v), want 10", filled, err)
		}
		must.Do(t, bucketed.InTx(t.Context(), func(tx *repo.Tx) error {
			row, buckets, err := tx.Gather(t.Context(), 1)
			if err != nil {
				return err
			}
			return tx.Spread(t.Context(), row, 10, 10, buckets, 2)
		}))
		must.Do(t, s.SetLimit(t.Context(), 1, 3))
		row := must.Get(s.Goods(t.Context(), 1))(t)
		undone := errors.New("undone")
		for name, take := range takes(t.Context()) {
			for _, limit := range []int64{0, 2, 3} {
				err := s.InTx(t.Context(), func(tx *repo.Tx) error {
					if _, err := tx.CountIn(t.Context(), 1, limit, nil); err != nil {
						return err
					}
					taken := must.Get(take(tx, row))(t)
					should.Be(t, taken, limit == 3, name, "under a limit of", limit, "where it is 3: taken")
					return undone
				})
				should.Fail(t, err, undone, name)
			}
		}
	})
}

// The first limit of an item reads its whole ledger, which may take longer than any
// purchase may.
func TestALimitMayTakeLongerThanAPurchase(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		const longest = 300 * time.Millisecond // of a purchase
		s := open(t, d, backend.SQLOptions{MaxOpen: 2, LockWait: 5 * time.Second, ConnectTimeout: time.Second, TxTimeout: longest}, repo.Options{})
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
		should.Do(t, s.SetLimit(t.Context(), 1, 2))
		holder.Wait()
	})
}

// A batch is counted in as a whole, and what each buyer had before is answered. What is not sold is counted
// out again; buyers without a name, and items without a limit, are not counted.
func TestBuyersAreCountedInAndOut(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		must.Do(t, errors.Join(s.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 100, PerUser: 9}, "first"), s.Create(t.Context(), stock.NewItem{GoodsID: 2, Units: 100, PerUser: 9}, "second")))
		by := func(user string, units int64) stock.Purchase { return stock.Purchase{UserID: user, Quantity: units} }
		batch := []stock.Purchase{by("bob", 1), by("ann", 2), by("", 5), by("ann", 4)}
		for _, c := range []struct {
			item, limit int64
			in, out     []stock.Purchase
			before      map[string]int64
			after       string
		}{
			{1, 9, batch, nil, map[string]int64{"ann": 0, "bob": 0}, "[{ann 6 6 0} {bob 1 1 0}]"},
			{1, 9, batch, batch[1:2], map[string]int64{"ann": 6, "bob": 1}, "[{ann 10 10 0} {bob 2 2 0}]"},
			{1, 9, []stock.Purchase{by("bob", 3)}, []stock.Purchase{by("", 7), by("bob", 3)}, map[string]int64{"bob": 2}, "[{ann 10 10 0} {bob 2 2 0}]"},
			{2, 9, batch, batch, map[string]int64{"ann": 0, "bob": 0}, "[{ann 0 0 0} {bob 0 0 0}]"},
			{1, 0, batch, batch, nil, "[{ann 10 10 0} {bob 2 2 0}]"},
			{1, 9, []stock.Purchase{by("", 1)}, nil, nil, "[{ann 10 10 0} {bob 2 2 0}]"},
		} {
			must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
				limit, err := tx.CountIn(t.Context(), c.item, c.limit, c.in)
				if err != nil || limit.PerUser != c.limit || !maps.Equal(limit.Has, c.before) {
					t.Errorf("the buyers of %v had %+v (%v), want %v", c.in, limit, err, c.before)
				}
				return errors.Join(err, tx.CountOut(t.Context(), c.item, c.out))
			}))
			should.Be(t, fmt.Sprint(must.Get(s.UsersAfter(t.Context(), c.item, ""))(t)), c.after, "after … in and … out the buyers of item … are", c.in, c.out, c.item)
		}
		if has, err := s.Has(t.Context(), 1, 0, batch); err != nil || has.PerUser != 0 || has.Has != nil {
			t.Errorf("without a limit the buyers have %+v (%v)", has, err)
		}
		if has, err := s.Has(t.Context(), 1, 9, append(batch, by("eve", 1))); err != nil || has.PerUser != 9 || !maps.Equal(has.Has, map[string]int64{"ann": 10, "bob": 2}) {
			t.Errorf("under the limit they have %+v (%v)", has, err)
		}
	})
}

// However many users an item has, each is on one page, in the order of their names.
func TestUsersArePagedInTheOrderOfTheirNames(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	for item := int64(1); item < 4; item++ {
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: item, Units: 1, PerUser: 9}, fmt.Sprint(item)))
		users := 2 // of the items before and after
		if item == 2 {
			users = repo.UsersAtOnce + 1
		}
		batch := make([]stock.Purchase, 0, users)
		for i := range users {
			batch = append(batch, stock.Purchase{UserID: fmt.Sprintf("%d-%04d", item, i), Quantity: int64(i + 1)})
		}
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			_, err := tx.CountIn(t.Context(), item, 9, batch)
			return err
		}))
	}
	after := ""
	for i, pages := 0, []int{repo.UsersAtOnce, 1, 0}; len(pages) > 0; pages = pages[1:] {
		page := must.Get(s.UsersAfter(t.Context(), 2, after))(t)
		must.Be(t, len(page), pages[0], "the users after", after)
		for _, u := range page {
			must.Be(t, u, (repo.UserUnits{User: fmt.Sprintf("2-%04d", i), Units: int64(i + 1), Beside: int64(i + 1)}), "user", i, "is")
			i, after = i+1, u.User
		}
	}
}

// The first limit counts what each buyer of the item has bought before, and lets them keep it.
func TestTheFirstLimitCountsWhatWasBoughtBefore(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	createItems(t, s, 3)
	for item := int64(1); item < 4; item++ {
		for i, user := range []string{"ann", "bob", "", "ann"} {
			buy := stock.Purchase{RequestID: fmt.Sprint(item, "-", i), UserID: user, Quantity: int64(i + 1)}
			must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
				_, err := tx.Append(t.Context(), repo.Sale{GoodsID: item, Batch: []stock.Purchase{buy}})
				return err
			}))
		}
	}
	should.Be(t, must.Get(s.AuditUsers(t.Context(), 2))(t), (stock.Buyers{}), "without a limit the audit of buyers is")
	for _, limit := range []int64{2, 0, 3} { // and again, when it was taken away
		must.Do(t, s.SetLimit(t.Context(), 2, limit))
		if limit == 0 {
			continue
		}
		should.Be(t, fmt.Sprint(must.Get(s.UsersAfter(t.Context(), 2, ""))(t)), "[{ann 5 5 0} {bob 2 2 0}]", "limited to …, the buyers have", limit)
		should.Be(t, must.Get(s.AuditUsers(t.Context(), 2))(t), (stock.Buyers{}), "limited to …, the audit of buyers is", limit)
	}
	should.Fail(t, s.SetLimit(t.Context(), 404, 1), stock.ErrUnknownGoods)
}

// An item gets its first limit while units come back that were not counted before: they are counted out all
// the same.
func TestALimitThatComesWhileUnitsComeBackHasThemCountedOut(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, through, proxy := besideAProxy(t, d, 10)
		number := hold(t, s, 1, 2, "ann")
		hold(t, s, 1, 1, "ann")
		write, released := releaseHeld(t, through, proxy, number, "INSERT INTO tb_stock_ledger")
		must.Do(t, s.SetLimit(t.Context(), 1, 5))
		write.Pass()
		must.Do(t, <-released)
		should.Be(t, fmt.Sprint(must.Get(s.UsersAfter(t.Context(), 1, ""))(t)), "[{ann 1 1 2}]", "the buyers have")
		wantOrders(t, s, 0)
	})
}

// Limits of an item that wait for its locked row, or for the locked rows of its buyers, leave connections to others. So do restocks.
func TestALimitOfALockedItemLeavesConnections(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	locking := labtest.Open(t, d, "locking")
	s := open(t, d, backend.SQLOptions{MaxOpen: 4, LockWait: 9 * time.Second, ConnectTimeout: time.Second}, repo.Options{})
	buyer := []stock.Purchase{{RequestID: "first", UserID: "a", Quantity: 2}}
	for i, c := range []struct {
		name   string
		before int64 // the limit
		lock   func(tx *repo.Tx, item int64) error
		change func(item int64, n int) error
		waits  string
	}{
		{
			"first limits behind the row", 0, func(tx *repo.Tx, item int64) error { _, err := tx.GoodsForUpdate(t.Context(), item); return err },
			func(item int64, _ int) error { return s.SetLimit(t.Context(), item, 1) }, "SELECT%",
		},
		{
			"lower limits behind a buyer", 3, func(tx *repo.Tx, item int64) error { _, err := tx.CountIn(t.Context(), item, 3, buyer); return err },
			func(item int64, _ int) error { return s.SetLimit(t.Context(), item, 1) }, "UPDATE tb_stock_user%",
		},
		{
			"restocks behind the row", 0, func(tx *repo.Tx, item int64) error { _, err := tx.GoodsForUpdate(t.Context(), item); return err },
			func(item int64, n int) error {
				_, err := s.Restock(t.Context(), item, 1, fmt.Sprint("restock", n))
				return err
			}, "SELECT%",
		},
	} {
		item, other := int64(2*i+1), int64(2*i+2)
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: item, Units: 20, PerUser: c.before}, fmt.Sprint("item", item)))
		must.Do(t, s.CreateGoods(t.Context(), other, 10, fmt.Sprint("item", other)))
		if c.before > 0 {
			must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error { _, err := tx.CountIn(t.Context(), item, c.before, buyer); return err }))
		}
		answers := make(chan error, 8)
		must.Do(t, locking.InTx(t.Context(), func(tx *repo.Tx) error {
			if err := c.lock(tx, item); err != nil {
				return err
			}
			for n := range cap(answers) {
				go func() { answers <- c.change(item, n) }()
			}
			labtest.AwaitRowWait(t, d, c.waits, answers)
			time.Sleep(100 * time.Millisecond) // for those that would take more connections
			soon, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			should.Fail(t, s.InTx(soon, func(tx *repo.Tx) error { _, err := tx.GoodsForUpdate(soon, other); return err }), nil, "another item waits for them", c.name)
			return nil
		}))
		for range cap(answers) {
			should.Fail(t, <-answers, nil, c.name)
		}
	}
}
