package strategy_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// openUnitRows opens a replica for each size of the pool.
func openUnitRows(t *testing.T, d *servers.Database, pools ...int) bucketShop {
	t.Helper()
	return openShop(t, d, unitRowsOf, pools...)
}

// unitRowsOf is sql-unit as a replica has it that is configured for a pool of so many rows.
func unitRowsOf(t *testing.T, store *repo.Store, pool int) strategy.Strategy {
	t.Helper()
	return entryOf(t, "sql-unit").New(strategy.Deps{Store: store.As("sql-unit"), UnitRows: pool})
}

// pool reads the unit rows of an item.
func (s bucketShop) pool(t *testing.T, goods int64) (p repo.Pool) {
	t.Helper()
	err := s.stores[0].InTx(t.Context(), func(tx *repo.Tx) (err error) {
		p, err = tx.Pool(t.Context(), goods)
		return err
	})
	must.Do(t, err)
	return p
}

func TestAnotherSizeOfThePoolLosesNothing(t *testing.T) { losesNothingByAnotherNumber(t, unitRowsOf) }

// The pool has no more than its bound of the units, so that other strategies find the rest in the
// row. It is filled before it is sold, and has half of what another strategy sells.
func TestThePoolIsFilledFromTheRow(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := openUnitRows(t, d, 8)
		s.create(t, 1, 100)
		for sold, free := range []int64{7, 6, 5, 4, 3, 2, 7, 6, 5, 4, 3, 2, 7, 6} { // the seventh finds a quarter, and fills it
			if !buy(t, s.replicas[0], 1, 1) {
				t.Fatal("rejected")
			}
			row, err := s.stores[0].Goods(t.Context(), 1)
			if p := s.pool(t, 1); err != nil || p.Free != free || p.Rows != 8 || row.Allocated != free || row.Stock != 100-int64(sold)-1-free {
				t.Errorf("after %d sales the pool is %+v, and the row has %d and %d beside it (%v), want %d free", sold+1, p, row.Stock, row.Allocated, err, free)
			}
		}
		s.create(t, 2, 9)
		conditional := entryOf(t, "sql-conditional").New(strategy.Deps{Store: s.stores[0].As("sql-conditional")})
		if !buy(t, conditional, 2, 1) || !buy(t, s.replicas[0], 2, 1) {
			t.Fatal("rejected")
		}
		if row, err := s.stores[0].Goods(t.Context(), 2); err != nil || row.Stock != 4 || row.Allocated != 3 {
			t.Errorf("after another strategy the row has %d, and the pool %d (%v), want 4 and 3", row.Stock, row.Allocated, err)
		}
	})
}

// A replica that finds the pool sold by others fills it and sells from it, also to a buyer of as many
// units as it has rows.
func TestAPoolThatOthersHaveSoldIsFilled(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := openUnitRows(t, d, 8, 8)
		s.create(t, 1, 100)
		for i, sale := range []struct {
			replica     int
			units, free int64
		}{
			{0, 1, 7},
			{1, 1, 6},
			{0, 6, 0}, // the last six
			{1, 1, 7}, // finds none, and fills it
			{0, 8, 7}, // are not in the pool, and are sold from the row
		} {
			if !buy(t, s.replicas[sale.replica], 1, sale.units) {
				t.Fatal("rejected")
			}
			if p := s.pool(t, 1); p.Free != sale.free || p.Rows != 8 {
				t.Errorf("after sale %d the pool is %+v, want %d free of 8 rows", i+1, p, sale.free)
			}
		}
		s.create(t, 2, 100)
		if sold, p := buy(t, s.replicas[0], 2, 8), s.pool(t, 2); !sold || p.Free != 0 || p.Rows != 8 {
			t.Errorf("a buyer of a whole pool leaves %+v (%v), want 8 rows that are sold", p, sold)
		}
	})
}

// A fill goes on when the purchase that began it has left, and one of unknown outcome fails no purchase.
func TestAFillIsThatOfNoPurchase(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		through, proxy := labtest.Through(t, d)
		s := openUnitRows(t, through, 4)
		s.create(t, 1, 10)
		held := proxy.Arm(servers.Rule{Sent: "INSERT INTO tb_stock_place", Do: servers.Hold})
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		left := make(chan error, 1)
		go func() { left <- oneOf(s.replicas[0].Deduct(ctx, 1, []stock.Purchase{purchase(1)})) }()
		labtest.AwaitReached(t, held)
		leave()
		should.Fail(t, <-left, context.Canceled) // the purchase that left
		held.Pass()
		should.Be(t, labtest.Eventually(10*time.Second, func() bool { return s.pool(t, 1).Free == 4 }), true, "the pool is …, want 4 free rows", s.pool(t, 1))
		s.create(t, 2, 10)
		labtest.Lose(proxy, "COMMIT", true) // of the fill
		if !buy(t, s.replicas[0], 2, 1) {
			t.Error("a purchase after a fill of unknown outcome is rejected")
		}
		if a := s.audit(t, 2); !a.Clean || a.Sold != 1 || s.pool(t, 2).Free != 3 {
			t.Errorf("%+v, and the pool is %+v", a, s.pool(t, 2))
		}
	})
}

// What is in unit rows is in stock, and a batch that is larger than the pool is sold from the row,
// or at the tail from both.
func TestABatchIsSoldFromThePoolAndTheRowTogether(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := openUnitRows(t, d, 8)
		s.create(t, 1, 30)
		for i, units := range []int64{1, 9, 17} { // from the pool; from the row; from both
			if !buy(t, s.replicas[0], 1, units) {
				t.Errorf("purchase %d of %d units was rejected", i+1, units)
			}
		}
		if a := s.audit(t, 1); !a.Clean || a.Stock != 3 {
			t.Errorf("%+v, want 3 in stock", a)
		}
		first := purchase(1)
		outcomes, err := s.replicas[0].Deduct(t.Context(), 1, []stock.Purchase{first, purchase(3), purchase(1)})
		if err != nil || outcomes[0].Rejected != nil || !errors.Is(outcomes[1].Rejected, stock.ErrInsufficientStock) || outcomes[2].Rejected != nil {
			t.Errorf("of 1, 3 and 1 units of 3: %+v, %v", outcomes, err)
		}
		must.Get(s.stores[0].Restock(t.Context(), 1, 50, rand.Text()))(t)
		should.Reject(s.replicas[0].Deduct(t.Context(), 1, []stock.Purchase{purchase(50), first}))(t, stock.ErrDuplicateRequest)
		if a := s.audit(t, 1); !a.Clean || a.Stock != 51 {
			t.Errorf("%+v, want 51 in stock", a)
		}
	})
}

// An unsafe strategy has sold more than the row had: no more is sold than is left in all.
func TestUnitRowsMakeUpForARowBelowZero(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := openUnitRows(t, d, 8)
		s.create(t, 1, 10)
		if !buy(t, s.replicas[0], 1, 1) {
			t.Fatal("the first unit is not sold")
		}
		oversell(t, s.stores[0], 5)
		other := unitRowsOf(t, s.stores[0], 2) // three at once are more than its pool
		if !buy(t, other, 1, 3) {
			t.Error("units that are left are not sold")
		}
		if row, err := s.stores[0].Goods(t.Context(), 1); err != nil || row.Stock != 0 || row.Allocated != 1 {
			t.Errorf("the row has %d and the pool %d (%v), want 0 and 1", row.Stock, row.Allocated, err)
		}
	})
}

// The tail without its remedy: the last units are kept by a transaction that rolls back, and until
// then they look sold. No other row is kept, and none is waited for.
func TestUnitRowsThatAreKeptLookSold(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openUnitRows(t, d, 4)
		s.create(t, 1, 5)
		if !buy(t, s.replicas[0], 1, 1) {
			t.Fatal("rejected")
		}
		store, undone := s.stores[0], errors.New("undone")
		take := func(units int64, then func() error) error {
			return store.InTx(t.Context(), func(tx *repo.Tx) error {
				_, taken, err := tx.TakeUnitRows(t.Context(), 1, units, 0)
				if err == nil && !taken {
					err = errSold
				}
				if err == nil {
					err = then()
				}
				return err
			})
		}
		row, err := store.Goods(t.Context(), 1)
		if err != nil || row.Stock != 1 || row.Allocated != 3 {
			t.Fatalf("the row has %d and the pool %d (%v), want 1 and 3", row.Stock, row.Allocated, err)
		}
		err = take(2, func() error {
			return errors.Join(undone, take(1, func() error {
				should.Fail(t, take(1, func() error { return nil }), errSold) // a unit while all are kept
				should.Be(t, must.Get(store.InStock(t.Context(), 1))(t).Stock, 4, "in stock")
				return undone
			}))
		})
		if !errors.Is(err, undone) || errors.Is(err, errSold) {
			t.Fatalf("two transactions that take 2 and 1 of 3 units: %v", err)
		}
		should.Do(t, take(3, func() error { return nil })) // after the rollbacks
	})
}

var errSold = errors.New("they look sold")

// held holds the first sale after its statements and before its commit.
type held struct {
	first   sync.Once
	reached chan struct{}
	release chan struct{}
}

func (*held) Record(_ string, l lock.Locker) lock.Locker { return l }

func (h *held) Between(ctx context.Context, _ string, _ int64) context.Context {
	h.first.Do(func() {
		close(h.reached)
		<-h.release
	})
	return ctx
}

// The remedy of the tail: a purchase that finds the last units kept waits until they are sold or
// free again, and is rejected only if they are sold.
func TestTheLastUnitsAreWaitedFor(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		for goods, rollsBack := range []bool{false, true} {
			t.Run(fmt.Sprintf("rolled back %t", rollsBack), func(t *testing.T) { assertWaits(t, d, int64(goods+1), rollsBack) })
		}
	})
}

func assertWaits(t *testing.T, d *servers.Database, goods int64, rollsBack bool) {
	t.Helper()
	s := openUnitRows(t, d, 4)
	s.create(t, goods, 2)
	if !buy(t, s.replicas[0], goods, 1) { // the other unit is in the pool
		t.Fatal("rejected")
	}
	holder := func(f strategy.Failpoints) strategy.Strategy {
		return entryOf(t, "sql-unit").New(strategy.Deps{Store: s.stores[0].As("sql-unit"), UnitRows: 4, Failpoints: f})
	}
	first, second := meet(t, d, goods, rollsBack, holder, "%unit0%", func() error {
		return oneOf(s.replicas[0].Deduct(t.Context(), goods, []stock.Purchase{purchase(1)}))
	})
	if rollsBack != (second == nil) || !rollsBack && !errors.Is(second, stock.ErrInsufficientStock) {
		t.Errorf("the second purchase got %v", second)
	}
	should.Be(t, rollsBack, first != nil, "the first purchase got", first)
	s.wantSoldOut(t, goods, 2)
}

// meet has a purchase of a unit by a strategy held before its commit until another one waits for a row, by a statement
// that is like a pattern. The first is rolled back then, or goes on.
func meet(
	t *testing.T, d *servers.Database, goods int64, rollsBack bool, of func(strategy.Failpoints) strategy.Strategy, like string, other func() error,
) (first, second error) {
	t.Helper()
	h := &held{reached: make(chan struct{}), release: make(chan struct{})}
	holder := of(h)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var both sync.WaitGroup
	both.Go(func() { first = oneOf(holder.Deduct(ctx, goods, []stock.Purchase{purchase(1)})) })
	<-h.reached
	answered := make(chan error, 1)
	both.Go(func() { answered <- other() })
	labtest.AwaitRowWait(t, d, like, answered)
	if rollsBack {
		leave()
	}
	close(h.release)
	both.Wait()
	return first, <-answered
}
