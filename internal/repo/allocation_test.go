package repo_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// allocation has the steps of one item's allocation, and what the item has after each.
type allocation struct {
	*repo.Store
	t *testing.T
}

const (
	allocated = 1 // the item
	place     = "redis-stock"
)

func (a allocation) assert(row int64, writer string, want repo.Allocation) {
	a.t.Helper()
	item, got, err := a.Reach(a.t.Context(), allocated, place)
	want.GoodsID = allocated
	if err != nil || item.Stock != row || item.Writer != writer || item.Allocated != 0 || got != want {
		a.t.Errorf("the row is %+v and the place %+v (%v), want %d units, last sold by %q, and %+v", item, got, err, row, writer, want)
	}
}

// step fails the test where a step has failed, or has returned another place than is there.
func (a allocation) step(got repo.Allocation, err error) {
	a.t.Helper()
	there, readErr := a.Allocation(a.t.Context(), allocated, place)
	if err != nil || readErr != nil || got != there {
		a.t.Fatalf("%+v is returned (%v), and there is %+v (%v)", got, err, there, readErr)
	}
}

func (a allocation) returned(epoch, pending, want int64) {
	a.t.Helper()
	got, units, err := a.ReturnUnits(a.t.Context(), allocated, place, epoch, pending)
	a.step(got, err)
	if units != want {
		a.t.Errorf("%d units are returned, want %d", units, want)
	}
}

func TestAnAllocationIsOpenedAndClosed(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		a := allocation{Store: labtest.Open(t, d, "replica").As(place), t: t}
		ctx := t.Context()
		create(t, a.As("sql-conditional"), allocated, 10)
		a.step(a.CloseAllocation(ctx, allocated, place)) // there is none
		a.assert(10, "", repo.Allocation{})
		must.Do(t, sell(ctx, a.As("sql-conditional"), allocated, "one"))
		a.step(a.Fill(ctx, allocated, place, 0)) // half of 9, because another strategy sells
		a.assert(4, place, repo.Allocation{Units: 5, Epoch: 1})
		a.returned(1, 0, 0) // it is open
		a.step(a.CloseAllocation(ctx, allocated, place))
		a.step(a.CloseAllocation(ctx, allocated, place))
		a.assert(4, place, repo.Allocation{Units: 5, Epoch: 2, Closed: true})
		a.step(a.Refill(ctx, allocated, place, 5))
		a.assert(4, place, repo.Allocation{Units: 5, Epoch: 6, Closed: true})
		a.returned(5, 0, 0) // another epoch
		a.returned(6, 7, 0)
		a.returned(6, 2, 3)
		a.returned(6, 2, 0)
		a.assert(7, "recall", repo.Allocation{Units: 2, Epoch: 6, Closed: true})
		a.step(a.Fill(ctx, allocated, place, 0))
		a.assert(3, place, repo.Allocation{Units: 6, Epoch: 7})
		a.step(a.Refill(ctx, allocated, place, 0))
		a.assert(0, place, repo.Allocation{Units: 9, Epoch: 8})
		audit := must.Get(a.Audit(ctx, allocated))(t)
		should.Be(t, audit.Clean, true, "the audit is clean", audit)
	})
}

// Orders that are written while an allocation is filled are subtracted from what it is found to
// have: a counter that began with more would sell units that are not there.
func TestAFilledAllocationLacksWhatIsBeingWritten(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As("redis-stock")
		create(t, s, 1, 20)
		before, err := s.Fill(t.Context(), 1, "elsewhere", 0)
		if err != nil || before.Units == 0 {
			t.Fatalf("the allocation is %+v, %v", before, err)
		}
		db, _ := labtest.Connect(t, d)
		defer db.Close() //nolint:errcheck // nothing is lost with it
		written, err := db.BeginTx(t.Context(), nil)
		must.Do(t, err)
		defer written.Rollback()
		must.Get(written.ExecContext(t.Context(), `UPDATE tb_stock_place SET units = units - 3 WHERE goods_id = 1 AND place = 'elsewhere'`))(t)
		var filled repo.Allocation
		answered := make(chan error, 1)
		go func() {
			var err error
			filled, err = s.Fill(t.Context(), 1, "elsewhere", 0)
			answered <- err
		}()
		labtest.AwaitRowWait(t, d, "UPDATE tb_stock_place%", answered)
		must.Do(t, written.Commit())
		must.Do(t, <-answered)
		should.Be(t, filled, must.Get(s.Allocation(t.Context(), 1, "elsewhere"))(t), "it was filled to")
	})
}

// A limit that changes ends the epoch of what was allocated under the limit before.
func TestALimitEndsTheEpochOfAnAllocation(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		a := allocation{Store: labtest.Open(t, d, "replica").As(place), t: t}
		create(t, a.Store, allocated, 10)
		a.step(a.Fill(t.Context(), allocated, place, 0))
		before := must.Get(a.Allocation(t.Context(), allocated, place))(t)
		for _, limit := range []int64{3, 3, 2, 0} {
			must.Do(t, a.SetLimit(t.Context(), allocated, limit))
			want := before
			if limit != before.PerUser {
				want.Epoch++
				want.PerUser = limit
			}
			after := must.Get(a.Allocation(t.Context(), allocated, place))(t)
			should.Be(t, after, want, "limited to", limit)
			before = after
		}
	})
}

// A read that was computed before the units came back is not written.
func TestAWriteFromBeforeARecallIsRejected(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		a := allocation{Store: labtest.Open(t, d, "replica").As(place), t: t}
		ctx := t.Context()
		create(t, a.Store, allocated, 10)
		a.step(a.Fill(ctx, allocated, place, 0))
		a.step(a.CloseAllocation(ctx, allocated, place))
		read := must.Get(a.Goods(ctx, allocated))(t)
		a.returned(2, 0, 10)
		for _, strategy := range []string{place, "naive"} {
			err := a.As(strategy).InTxOnce(ctx, func(tx *repo.Tx) error { return tx.SetStock(ctx, read, 0) })
			should.Fail(t, err, repo.ErrRowChanged, "the write by … ended with", strategy)
		}
		a.assert(10, "recall", repo.Allocation{Epoch: 2, Closed: true})
		for name, want := range map[string]bool{place: true, "another": false} {
			should.Be(t, must.Get(a.HasAllocations(ctx, name))(t), want, "after its units are back, there are allocations of …", name)
		}
	})
}

// What is allocated comes back into the row: it counts for the limit of the stock.
func TestARestockCountsWhatIsAllocated(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		a := allocation{Store: labtest.Open(t, d, "replica").As(place), t: t}
		create(t, a.Store, allocated, 10)
		a.step(a.Fill(t.Context(), allocated, place, 0))
		should.Reject(a.Restock(t.Context(), allocated, stock.MaxStock-9, "above"))(t, stock.ErrStockLimit)
		left := must.Get(a.Restock(t.Context(), allocated, stock.MaxStock-10, "full"))(t)
		should.Be(t, left, stock.MaxStock-10, "restocked to")
		should.Reject(a.Restock(t.Context(), allocated, stock.MaxStock-10, "full"))(t, stock.ErrDuplicateRequest)
	})
}

// A unit that is sold from a bucket while Gather waits for it is in no other allocation: a
// purchase would have it recalled in vain.
func TestUnitsSoldWhileBucketsAreWaitedForAreNotAllocatedElsewhere(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As(repo.Bucketed)
		create(t, s, 1, 10)
		spread := func(tx *repo.Tx) error {
			row, buckets, err := tx.Gather(t.Context(), 1)
			if err != nil {
				return err
			}
			return tx.Spread(t.Context(), row, 10, 0, buckets, 2)
		}
		must.Do(t, s.InTx(t.Context(), spread))
		var row stock.Goods
		var buckets repo.Buckets
		gathered := make(chan error, 1)
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			must.Be(t, must.Get(tx.TakeFromBucket(t.Context(), 1, 0, 1))(t), true, "taken")
			go func() {
				gathered <- s.InTx(t.Context(), func(tx *repo.Tx) (err error) {
					row, buckets, err = tx.Gather(t.Context(), 1)
					return err
				})
			}()
			labtest.AwaitRowWait(t, d, "%bucket/%", gathered)
			return nil
		}))
		must.Do(t, <-gathered)
		if buckets.Sum() != 9 || row.Allocated != 0 {
			t.Errorf("%d units in buckets and %d in other allocations, want 9 and 0", buckets.Sum(), row.Allocated)
		}
	})
}

// takeUnits sells units from the unit rows of item 1, from a row on.
func takeUnits(t *testing.T, s *repo.Store, units, from int64) (next int64, taken bool) {
	t.Helper()
	must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) (err error) {
		next, taken, err = tx.TakeUnitRows(t.Context(), 1, units, from)
		return err
	}))
	return next, taken
}

// A pool is filled up to its bound when half of it is sold, with half of what another strategy has left; sold
// rows are used again, and a sale goes on after the one before.
func TestAPoolIsFilledAndSold(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r").As(repo.InUnitRows)
	create(t, s, 1, 30)
	takeOne(t, s, "another", 1)
	pool := func(row, free, rows int64) {
		t.Helper()
		goods, err := s.Goods(t.Context(), 1)
		if err != nil || goods.Stock != row || goods.Allocated != free {
			t.Errorf("the row is %+v (%v), want %d units, and %d in unit rows", goods, err, row, free)
		}
		err = s.InTx(t.Context(), func(tx *repo.Tx) error {
			p, err := tx.Pool(t.Context(), 1)
			should.Be(t, p, (repo.Pool{Rows: rows, Free: free}), "the pool")
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	fill := func(most, free, filled int64) {
		t.Helper()
		if f, n, err := s.FillPool(t.Context(), 1, most); err != nil || f != free || n != filled {
			t.Errorf("%d units are filled in, and %d are free (%v), want %d and %d", n, f, err, filled, free)
		}
	}
	take := func(units, from, next int64, taken bool) {
		t.Helper()
		if after, ok := takeUnits(t, s, units, from); ok != taken || after != next {
			t.Errorf("%d units from row %d on: taken %v, and next is %d; want %v, %d", units, from, ok, after, taken, next)
		}
	}
	fill(4, 4, 4)
	pool(25, 4, 4)
	take(2, 1, 3, true)
	take(2, 2, 0, false)
	fill(4, 4, 2) // half of it is sold
	pool(23, 4, 4)
	take(1, 0, 1, true)
	fill(4, 3, 0) // more than half of it is left
	pool(23, 3, 4)
	fill(6, 6, 3) // sold rows first, and new ones
	pool(20, 6, 6)
	take(6, 0, 6, true)
	takeOne(t, s, "another", 1)
	fill(100, 10, 10) // half of 19
	pool(9, 10, 10)
	fill(100, 19, 9)
	pool(0, 19, 19)
	take(3, 16, 19, true)
	fill(100, 16, 0)
	should.Be(t, must.Get(s.RecallUnitRows(t.Context(), 1))(t), 16, "units come back")
	pool(16, 0, 0)
}

// Units are spread evenly, the first buckets have one more, and what is beyond their number comes off. Names
// that are like those of buckets are not theirs.
func TestUnitsAreSpreadOverBuckets(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r").As(repo.Bucketed)
	create(t, s, 1, 100)
	for _, like := range []string{"bucket", "bucket.", "bucket0", "bucket1/0"} {
		must.Get(s.Restock(t.Context(), 1, 1, like))(t)
		takeOne(t, s, "another", 1)
		must.Get(s.Fill(t.Context(), 1, like, 0))(t)
	}
	before, err := s.Goods(t.Context(), 1)
	if err != nil || before.Allocated == 0 {
		t.Fatalf("the row is %+v (%v)", before, err)
	}
	for _, c := range []struct {
		units int64
		count int
		limit int64
		want  string
	}{
		{8, 3, 0, "map[bucket/0:3 bucket/1:3 bucket/2:2]"},
		{5, 3, 2, "map[bucket/0:2 bucket/1:2 bucket/2:1]"},
		{4, 2, 2, "map[bucket/0:2 bucket/1:2]"},
		{0, 1, 0, "map[bucket/0:0]"},
	} {
		must.Do(t, s.SetLimit(t.Context(), 1, c.limit))
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.CountIn(t.Context(), 1, c.limit, nil); err != nil {
				return err
			}
			row, buckets, err := tx.Gather(t.Context(), 1)
			if err != nil {
				return err
			}
			if row.Allocated != before.Allocated || row.Stock+buckets.Sum() != before.Stock {
				t.Errorf("gathered are %+v and %v, want %d in all, and %d allocated", row, buckets, before.Stock, before.Allocated)
			}
			if err := tx.Spread(t.Context(), row, c.units, before.Stock-c.units, buckets, c.count); err != nil {
				return err
			}
			now, err := tx.Buckets(t.Context(), 1)
			if fmt.Sprint(now) != c.want || !now.Has(c.count-1) || now.Has(c.count) || now.Units(0) != (c.units+int64(c.count)-1)/int64(c.count) {
				t.Errorf("%d units over %d buckets are %v, want %s", c.units, c.count, now, c.want)
			}
			taken, err2 := tx.TakeFromBucket(t.Context(), 1, 0, max(1, c.units))
			if taken || err2 != nil {
				t.Errorf("more than there is, is taken from bucket 0: %v (%v)", taken, err2)
			}
			return err
		}))
		if all, err := s.GoodsWithBuckets(t.Context(), 1); err != nil || all.Stock != before.Stock || all.Allocated != before.Allocated {
			t.Errorf("with its buckets the item is %+v (%v), want %d and %d", all, err, before.Stock, before.Allocated)
		}
	}
	limited := func(bucket int, limit int64) (taken bool) {
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			_, err := tx.CountIn(t.Context(), 1, limit, []stock.Purchase{})
			if err == nil {
				taken, err = tx.TakeFromBucket(t.Context(), 1, bucket, 0)
			}
			return err
		}))
		return taken
	}
	if !limited(0, 0) || limited(0, 2) || limited(1, 0) {
		t.Error("a bucket is sold from under another limit, or is there no more")
	}
}

// What a replica asks all the time does not read the unit rows of every item.
func TestAnAllocationIsLookedForWithoutReadingEveryUnitRow(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As(repo.InUnitRows)
		const items, units = 3, 400
		for item := range int64(items) {
			must.Do(t, s.CreateGoods(t.Context(), item+1, 2*units, fmt.Sprint("create ", item)))
			if _, n, err := s.FillPool(t.Context(), item+1, units); err != nil || n != units {
				t.Fatalf("%d unit rows are filled (%v), want %d", n, err, units)
			}
		}
		db, _ := labtest.Connect(t, d)
		defer db.Close() //nolint:errcheck // the test is over
		must.Get(db.ExecContext(t.Context(), `ANALYZE TABLE tb_stock_place, tb_goods_stock`))(t)
		for name, statement := range repo.LooksForAllocation() {
			if read := plannedRows(t, db, statement, "redis-stock"); read > 10*items {
				t.Errorf("%s plans to read %d rows where there are %d items", name, read, items)
			}
		}
	})
}

// plannedRows adds up the rows that a server means to read for a statement.
func plannedRows(t *testing.T, db *sql.DB, statement string, args ...any) (sum int64) {
	t.Helper()
	names, rows, err := servers.Rows(t.Context(), db, `EXPLAIN FORMAT=TRADITIONAL `+statement, args...)
	must.Do(t, err)
	at := slices.Index(names, "rows")
	if at < 0 {
		t.Fatalf("the plan has no rows: %v", names)
	}
	for _, row := range rows {
		if row[at] != "" { // a step without a table
			sum += must.Get(strconv.ParseInt(row[at], 10, 64))(t)
		}
	}
	if sum == 0 {
		t.Fatal("the plan reads nothing")
	}
	return sum
}

// Orders of several items are written together, or none of them: the one whose allocation does
// not cover them is named.
func TestPendingOrdersOfSeveralItemsAreKeptTogether(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As("redis-stock")
		createItems(t, s, 3)
		for item := range int64(3) {
			must.Get(s.Fill(t.Context(), item+1, "elsewhere", 0))(t)
			must.Get(s.Restock(t.Context(), item+1, 20, fmt.Sprint("more of ", item)))(t)
			must.Get(s.Fill(t.Context(), item+1, "elsewhere too", 0))(t) // which keeps its units
		}
		made := 0
		pending := func(item, epoch, units int64) repo.PendingOrder {
			made++
			return repo.PendingOrder{Epoch: epoch, Order: stock.Order{
				ID: fmt.Sprint("number ", made), Kind: stock.Deduction, RequestID: fmt.Sprint("request ", made), GoodsID: item, Quantity: units,
				Strategy: "redis-stock", Replica: "r", CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
			}}
		}
		must.Do(t, s.Keep(t.Context(), "elsewhere", []repo.PendingOrder{pending(2, 1, 3), pending(1, 1, 2), pending(2, 1, 4), pending(3, 1, 10)}))
		for _, wrong := range []struct {
			orders []repo.PendingOrder
			want   repo.StaleError
		}{
			{[]repo.PendingOrder{pending(1, 1, 1), pending(2, 1, 4)}, repo.StaleError{GoodsID: 2, Epoch: 1}},                       // has 3
			{[]repo.PendingOrder{pending(1, 1, 1), pending(3, 1, 1)}, repo.StaleError{GoodsID: 3, Epoch: 1}},                       // has none
			{[]repo.PendingOrder{pending(1, 2, 1), pending(2, 1, 1)}, repo.StaleError{GoodsID: 1, Epoch: 2}},                       // of an epoch to come
			{[]repo.PendingOrder{pending(1, 1, 1), pending(1, 0, 1)}, repo.StaleError{GoodsID: 1, Epoch: 0}},                       // of two epochs
			{[]repo.PendingOrder{pending(1, 1, 1), pending(2, 1, 1), pending(404, 1, 1)}, repo.StaleError{GoodsID: 404, Epoch: 1}}, // there is none
		} {
			err := s.Keep(t.Context(), "elsewhere", wrong.orders)
			if stale, ok := errors.AsType[*repo.StaleError](err); !ok || *stale != wrong.want {
				t.Errorf("%+v ends with %v, want %+v", wrong.orders, err, wrong.want)
			}
		}
		for item, left := range []int64{8, 3, 0} {
			of := must.Get(s.Allocation(t.Context(), int64(item+1), "elsewhere"))(t)
			should.Be(t, of.Units, left, "the allocation of item", item+1, "is", of)
			if audit, err := s.Audit(t.Context(), int64(item+1)); err != nil || !audit.Clean || audit.Sold != 10-left {
				t.Errorf("the audit of item %d is %+v, %v; want %d sold", item+1, audit, err, 10-left)
			}
		}
	})
}

// Orders that were accepted under an earlier limit are within the present one, and others are not.
func TestPendingOrdersOfAnEarlierLimitAreAllowed(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As("redis-stock")
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 10, PerUser: 1}, "item"))
		must.Get(s.Fill(t.Context(), 1, "elsewhere", 0))(t)
		for i, earlier := range []bool{true, false} {
			for n, together := range []int{2, 1} { // the third beside what the buyer has
				orders := make([]repo.PendingOrder, 0, together)
				for m := range together {
					orders = append(orders, repo.PendingOrder{Order: stock.Order{
						ID: fmt.Sprint("number ", i, n, m), Kind: stock.Deduction, RequestID: fmt.Sprint("request ", i, n, m), GoodsID: 1, Quantity: 1 + int64(n),
						UserID: fmt.Sprint("buyer ", i), Strategy: "redis-stock", Replica: "r", CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
					}, Epoch: 1, Limited: true, Earlier: earlier})
				}
				must.Do(t, s.Keep(t.Context(), "elsewhere", orders))
				found, err := s.AuditUsers(t.Context(), 1)
				if err != nil || found.Miscounted != 0 || found.BeyondLimit != int64(i) {
					t.Errorf("accepted earlier %v: the audit of buyers is %+v, %v; want %d beyond the limit", earlier, found, err, i)
				}
			}
		}
	})
}
