package repo_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// takeUnits sells units from the unit rows of item 1, from a row on.
func takeUnits(t *testing.T, s *repo.Store, units, from int64) (next int64, taken bool) {
	t.Helper()
	must(t, s.InTx(t.Context(), func(tx *repo.Tx) (err error) {
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
			if p != (repo.Pool{Rows: rows, Free: free}) {
				t.Errorf("the pool is %+v, want %d of %d", p, free, rows)
			}
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
	if units, err := s.RecallUnitRows(t.Context(), 1); err != nil || units != 16 {
		t.Errorf("%d units come back (%v), want 16", units, err)
	}
	pool(16, 0, 0)
}

// Units are spread evenly, the first buckets have one more, and what is beyond their number comes off. Names
// that are like those of buckets are not theirs.
func TestUnitsAreSpreadOverBuckets(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r").As(repo.Bucketed)
	create(t, s, 1, 100)
	for _, like := range []string{"bucket", "bucket.", "bucket0", "bucket1/0"} {
		if _, err := s.Restock(t.Context(), 1, 1, like); err != nil {
			t.Fatal(err)
		}
		takeOne(t, s, "another", 1)
		if _, err := s.Fill(t.Context(), 1, like, 0); err != nil {
			t.Fatal(err)
		}
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
		must(t, s.SetLimit(t.Context(), 1, c.limit))
		must(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
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
		must(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
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
			must(t, s.CreateGoods(t.Context(), item+1, 2*units, fmt.Sprint("create ", item)))
			if _, n, err := s.FillPool(t.Context(), item+1, units); err != nil || n != units {
				t.Fatalf("%d unit rows are filled (%v), want %d", n, err, units)
			}
		}
		db, _ := labtest.Connect(t, d)
		defer db.Close() //nolint:errcheck // the test is over
		if _, err := db.ExecContext(t.Context(), `ANALYZE TABLE tb_stock_place, tb_goods_stock`); err != nil {
			t.Fatal(err)
		}
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
	rows, err := db.QueryContext(t.Context(), `EXPLAIN FORMAT=TRADITIONAL `+statement, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err says what went wrong
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(names, "rows")
	if at < 0 {
		t.Fatalf("the plan has no rows: %v", names)
	}
	for rows.Next() {
		cells := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range cells {
			into[i] = &cells[i]
		}
		must(t, rows.Scan(into...))
		if !cells[at].Valid {
			continue // a step without a table
		}
		n, err := strconv.ParseInt(cells[at].String, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += n
	}
	if err := rows.Err(); err != nil || sum == 0 {
		t.Fatalf("the plan reads nothing (%v)", err)
	}
	return sum
}
