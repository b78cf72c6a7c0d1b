package strategy_test

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// bucketShop is a number of replicas on one database that sell through buckets, or unit rows.
type bucketShop struct {
	stores   []*repo.Store
	replicas []strategy.Strategy
}

// openBuckets opens a replica for each number of buckets.
func openBuckets(t *testing.T, d *servers.Database, counts ...int) bucketShop {
	t.Helper()
	return openShop(t, d, bucketsOf, counts...)
}

// numbered makes a strategy of so many rows for a replica.
type numbered func(t *testing.T, store *repo.Store, count int) strategy.Strategy

// openShop opens a replica for each number of rows.
func openShop(t *testing.T, d *servers.Database, of numbered, counts ...int) bucketShop {
	t.Helper()
	var s bucketShop
	for i, count := range counts {
		s.stores = append(s.stores, labtest.Open(t, d, fmt.Sprintf("replica-%d", i+1)))
		s.replicas = append(s.replicas, of(t, s.stores[i], count))
	}
	return s
}

// bucketsOf is sql-bucket as a replica has it that is configured for so many.
func bucketsOf(t *testing.T, store *repo.Store, count int) strategy.Strategy {
	t.Helper()
	return entryOf(t, "sql-bucket").New(strategy.Deps{Store: store.As("sql-bucket"), Buckets: count})
}

func (s bucketShop) create(t *testing.T, goods, units int64) {
	t.Helper()
	must.Do(t, s.stores[0].CreateGoods(t.Context(), goods, units, rand.Text()))
}

func (s bucketShop) audit(t *testing.T, goods int64) stock.Audit {
	t.Helper()
	audit := must.Get(s.stores[0].Audit(t.Context(), goods))(t)
	return audit
}

func purchase(units int64) stock.Purchase {
	return stock.Purchase{RequestID: rand.Text(), Quantity: units}
}

// buy buys some units of an item, and reports whether they were sold.
func buy(t *testing.T, s strategy.Strategy, goods, units int64) bool {
	t.Helper()
	outcomes, err := s.Deduct(t.Context(), goods, []stock.Purchase{purchase(units)})
	if err != nil {
		t.Errorf("buy %d: %v", units, err)
		return false
	}
	return outcomes[0].Rejected == nil
}

// crowd has buyers at every replica buy until they are rejected, each of them
// first the largest of the sizes and in the end one by one.
func (s bucketShop) crowd(t *testing.T, goods int64, sizes ...int64) {
	t.Helper()
	var buyers sync.WaitGroup
	for i := range 4 * len(s.replicas) {
		buyers.Go(func() {
			for _, size := range sizes[i%len(sizes):] {
				for buy(t, s.replicas[i%len(s.replicas)], goods, size) {
				}
			}
		})
	}
	buyers.Wait()
}

// wantSoldOut fails where not exactly all units were sold.
func (s bucketShop) wantSoldOut(t *testing.T, goods, units int64) {
	t.Helper()
	if a := s.audit(t, goods); !a.Clean || a.Sold != units || a.Stock != 0 {
		t.Errorf("of %d units %d were sold and %d are left: %+v", units, a.Sold, a.Stock, a)
	}
}

func TestAnotherNumberOfBucketsLosesNothing(t *testing.T) { losesNothingByAnotherNumber(t, bucketsOf) }

// losesNothingByAnotherNumber has replicas that are configured differently sell the same item, and
// be replaced by others in the middle of the sale.
func losesNothingByAnotherNumber(t *testing.T, of numbered) {
	t.Helper()
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := openShop(t, d, of, 16, 3, 7)
		const units = 403
		s.create(t, 1, units)
		for round, counts := range [][]int{{16, 3, 7}, {1, 40, 2}, {5, 5, 5}} {
			var buyers sync.WaitGroup
			for i, count := range counts {
				s.replicas[i] = of(t, s.stores[i], count)
				buyers.Go(func() {
					for range 10 {
						buy(t, s.replicas[i], 1, int64(round+1))
					}
				})
			}
			buyers.Wait()
			a := s.audit(t, 1)
			must.Be(t, a.Clean, true, "it is clean with", counts, a)
		}
		s.crowd(t, 1, 5, 1)
		s.wantSoldOut(t, 1, units)
	})
}

// What is in buckets is in stock: every reader sees one item. Only the other
// strategies do not look there.
func TestBucketsAreOneItem(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := openBuckets(t, d, 8)
		store := s.stores[0]
		s.create(t, 1, 100)
		if !buy(t, s.replicas[0], 1, 1) {
			t.Fatal("rejected")
		}
		for _, units := range []int64{12, 12, 12, 60} { // the last is more than any bucket has
			if !buy(t, s.replicas[0], 1, units) {
				t.Errorf("%d were rejected", units)
			}
		}
		must.Get(store.Restock(t.Context(), 1, 10, rand.Text()))(t)
		goods := must.Get(store.InStock(t.Context(), 1))(t)
		should.Be(t, goods.Stock, 13, "in stock")
		if a := s.audit(t, 1); !a.Clean || a.Stock != 13 {
			t.Errorf("%+v, want 13 in stock", a)
		}
		if !buy(t, s.replicas[0], 1, 3) { // more than any bucket has, and no more than all of them
			t.Error("what is in several buckets was rejected")
		}
		should.Be(t, must.Get(store.Goods(t.Context(), 1))(t).Stock, 10, "the row has")
		outcomes, err := s.replicas[0].Deduct(t.Context(), 1, []stock.Purchase{purchase(8), purchase(8)})
		if err != nil || outcomes[0].Rejected != nil || !errors.Is(outcomes[1].Rejected, stock.ErrInsufficientStock) {
			t.Errorf("of 8 and 8 units of 10: %+v, %v", outcomes, err)
		}
		if a := s.audit(t, 1); !a.Clean || a.Stock != 2 {
			t.Errorf("%+v, want 2 in stock", a)
		}
		outcomes, err = s.replicas[0].Deduct(t.Context(), 1, []stock.Purchase{purchase(2), purchase(1)})
		if err != nil || outcomes[0].Rejected != nil || !errors.Is(outcomes[1].Rejected, stock.ErrInsufficientStock) {
			t.Errorf("of 2 and 1 units of 2: %+v, %v", outcomes, err)
		}
	})
}

// A bucket that is too empty is replaced by another one, and nothing is gathered before none has
// enough.
func TestUnitsAreTakenFromAnyBucketThatHasEnough(t *testing.T) {
	s := openBuckets(t, lab.Database(t, servers.SQLite), 4)
	for goods := int64(1); goods <= 4; goods++ { // each begins with another bucket
		s.create(t, goods, 41)
		buy(t, s.replicas[0], goods, 1) // 10 in each bucket
		for i, c := range []struct {
			units int64
			fits  bool
		}{{1, true}, {10, true}, {10, true}, {10, true}, {10, false}, {9, true}, {1, false}} {
			if err := strategy.TakeFromBucket(t.Context(), s.replicas[0], goods, c.units); (err == nil) != c.fits {
				t.Errorf("item %d, purchase %d of %d units: %v, want that a bucket has enough: %v", goods, i, c.units, err, c.fits)
			}
		}
	}
}

func TestReplicasBeginWithDifferentBuckets(t *testing.T) {
	s := openBuckets(t, lab.Database(t, servers.SQLite), 4, 4)
	s.create(t, 1, 41)
	buy(t, s.replicas[0], 1, 1)
	s.replicas[0] = bucketsOf(t, s.stores[0], 4)
	for _, replica := range s.replicas {
		should.Do(t, strategy.TakeFromBucket(t.Context(), replica, 1, 5))
	}
	err := s.stores[0].InTx(t.Context(), func(tx *repo.Tx) error {
		buckets, err := tx.Buckets(t.Context(), 1)
		if least := slices.Min(slices.Collect(maps.Values(buckets))); least != 5 || buckets.Sum() != 30 {
			t.Errorf("two replicas took 5 of 10 units from %v, want a bucket for each", buckets)
		}
		return err
	})
	should.Do(t, err)
}

// Where a batch is served from all buckets together, a request id that is taken
// still undoes all of it.
func TestADuplicateUndoesACollection(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := openBuckets(t, d, 8)
		s.create(t, 1, 100)
		first := purchase(1)
		must.Get(s.replicas[0].Deduct(t.Context(), 1, []stock.Purchase{first}))(t)
		_, err := s.replicas[0].Deduct(t.Context(), 1, []stock.Purchase{purchase(90), first})
		should.Fail(t, err, stock.ErrDuplicateRequest)
		if a := s.audit(t, 1); !a.Clean || a.Stock != 99 || a.Orders != 1 {
			t.Errorf("%+v, want 99 in stock and one order", a)
		}
	})
}

// oversell subtracts units of item 1 as an unsafe strategy does, however few there are.
func oversell(t *testing.T, store *repo.Store, units int64) {
	t.Helper()
	read, err := store.Goods(t.Context(), 1)
	must.Do(t, err)
	err = store.As("naive").InTx(t.Context(), func(tx *repo.Tx) error { return tx.Subtract(t.Context(), read, units) })
	must.Do(t, err)
}

// An unsafe strategy has sold more than the row had: the buckets get no more than is left
// in all.
func TestBucketsMakeUpForARowBelowZero(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := openBuckets(t, d, 2, 3)
		s.create(t, 1, 10)
		if !buy(t, s.replicas[0], 1, 1) {
			t.Fatal("the first unit is not sold")
		}
		oversell(t, s.stores[0], 5)
		for range 3 { // each replica has another number of buckets, and one of three is missing
			if !buy(t, s.replicas[1], 1, 1) {
				t.Error("a unit that is left is not sold")
			}
		}
		if row, err := s.stores[0].Goods(t.Context(), 1); err != nil || row.Stock != 0 || row.Allocated != 1 {
			t.Errorf("the row has %d and the buckets %d (%v), want 0 and 1", row.Stock, row.Allocated, err)
		}
	})
}

// A purchase may need more than the buckets and their share of the row: then the row keeps no more than
// is left, and no bucket goes below zero.
func TestAPurchaseOfAlmostAllLeavesNoBucketBelowZero(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := openBuckets(t, d, 4)
		other := entryOf(t, "sql-conditional").New(strategy.Deps{Store: s.stores[0].As("sql-conditional")})
		const units = 12
		for taken := int64(1); taken < units; taken++ {
			s.create(t, taken, units)
			if !buy(t, other, taken, 1) || !buy(t, s.replicas[0], taken, taken) {
				t.Fatalf("%d of %d units are not sold", taken, units)
			}
			row, err := s.stores[0].Goods(t.Context(), taken)
			if left := units - 1 - taken; err != nil || row.Stock < 0 || row.Allocated < 0 || row.Stock+row.Allocated != left {
				t.Errorf("after a purchase of %d the row has %d and the buckets %d (%v), want %d in all", taken, row.Stock, row.Allocated, err, left)
			}
		}
	})
}
