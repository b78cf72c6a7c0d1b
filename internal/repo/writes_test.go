package repo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

const me, other = "me", "other"

// takeOne has a strategy sell a unit from the row.
func takeOne(t *testing.T, s *repo.Store, strategy string, item int64) {
	t.Helper()
	must.Do(t, s.As(strategy).InTx(t.Context(), func(tx *repo.Tx) error {
		_, enough, err := tx.SubtractIfEnough(t.Context(), item, 1)
		if err == nil && !enough {
			err = stock.ErrInsufficientStock
		}
		return err
	}))
}

// written is what a write leaves in the row: a sale, a change beside sales, and a recall.
type written int

const (
	nothing written = iota
	sold
	beside
	recalled
)

// writes are all writes of the row of an item, and some that must not be.
func writes(t *testing.T, s *repo.Store) map[string]struct {
	leaves written
	// prepare comes before the row is read.
	prepare func(item int64)
	do      func(item int64, row stock.Goods) error
} {
	t.Helper()
	type write = struct {
		leaves  written
		prepare func(item int64)
		do      func(item int64, row stock.Goods) error
	}
	ctx, mine := t.Context(), s.As(me)
	in := func(do func(tx *repo.Tx, item int64, row stock.Goods) error) func(int64, stock.Goods) error {
		return func(item int64, row stock.Goods) error {
			return mine.InTx(ctx, func(tx *repo.Tx) error { return do(tx, item, row) })
		}
	}
	none := func(int64) {}
	var number string
	reserve := func(item int64) { number = hold(t, s, item, 1, "") }
	fill := func(item int64) { // and has a unit in the row that can be sold
		_, err := mine.Fill(ctx, item, "place", 0)
		must.Do(t, err)
		_, err = s.Restock(ctx, item, 1, fmt.Sprint("after fill ", item))
		must.Do(t, err)
	}
	closed := func(item int64) { fill(item); _, err := mine.CloseAllocation(ctx, item, "place"); must.Do(t, err) }
	spread := func(tx *repo.Tx, item int64, _ stock.Goods) error {
		row, buckets, err := tx.Gather(ctx, item)
		must.Do(t, err)
		return tx.Spread(ctx, row, 2, row.Stock-2, buckets, 1)
	}
	buckets := func(item int64) { must.Do(t, in(spread)(item, stock.Goods{})) }
	pool := func(item int64) { _, _, err := mine.FillPool(ctx, item, 2); must.Do(t, err) }
	return map[string]write{
		"SetStock": {sold, none, in(func(tx *repo.Tx, _ int64, row stock.Goods) error { return tx.SetStock(ctx, row, 5) })},
		"SetStockIfVersion": {sold, none, in(func(tx *repo.Tx, _ int64, row stock.Goods) error {
			_, err := tx.SetStockIfVersion(ctx, row, 5)
			return err
		})},
		"Subtract": {sold, none, in(func(tx *repo.Tx, _ int64, row stock.Goods) error { return tx.Subtract(ctx, row, 1) })},
		"SubtractIfEnough": {sold, none, in(func(tx *repo.Tx, item int64, _ stock.Goods) error {
			return errOf(tx.SubtractIfEnough(ctx, item, 1))
		})},
		"SubtractEach": {sold, none, in(func(tx *repo.Tx, item int64, _ stock.Goods) error {
			return tx.SubtractEach(ctx, []repo.Units{{GoodsID: item, Units: 1}})
		})},
		"SetStockIfClaimed": {sold, none, func(item int64, row stock.Goods) error {
			claim, err := mine.ClaimFence(ctx, item, 3)
			must.Do(t, err)
			return mine.InTx(ctx, func(tx *repo.Tx) error { return tx.SetStockIfClaimed(ctx, row, 5, claim) })
		}},
		"Spread":   {sold, none, in(spread)},
		"Fill":     {sold, none, func(item int64, _ stock.Goods) error { _, err := mine.Fill(ctx, item, "place", 0); return err }},
		"FillPool": {sold, none, func(item int64, _ stock.Goods) error { return errOf(mine.FillPool(ctx, item, 2)) }},
		"Restock": {beside, none, func(item int64, _ stock.Goods) error {
			_, err := s.Restock(ctx, item, 1, fmt.Sprint("restock ", item))
			return err
		}},
		"SetLimit": {beside, none, func(item int64, _ stock.Goods) error { return s.SetLimit(ctx, item, 3) }},
		"Release":  {beside, reserve, func(int64, stock.Goods) error { return errOf(s.Release(ctx, number)) }},
		"Expire":   {beside, func(item int64) { reserve(item); over(t, s, number) }, func(int64, stock.Goods) error { return errOf(s.Expire(ctx, 1)) }},
		"ReturnUnits": {recalled, closed, func(item int64, _ stock.Goods) error {
			return errOf(s.ReturnUnits(ctx, item, "place", 2, 0))
		}},
		"RecallBuckets":          {recalled, buckets, func(item int64, _ stock.Goods) error { _, err := s.RecallBuckets(ctx, item); return err }},
		"RecallUnitRows":         {recalled, pool, func(item int64, _ stock.Goods) error { _, err := s.RecallUnitRows(ctx, item); return err }},
		"ClaimFence":             {nothing, none, func(item int64, _ stock.Goods) error { _, err := mine.ClaimFence(ctx, item, 1); return err }},
		"CloseAllocation":        {nothing, fill, func(item int64, _ stock.Goods) error { _, err := mine.CloseAllocation(ctx, item, "place"); return err }},
		"SetLimit to the same":   {nothing, none, func(item int64, _ stock.Goods) error { return s.SetLimit(ctx, item, 0) }},
		"RecallBuckets of none":  {nothing, none, func(item int64, _ stock.Goods) error { _, err := s.RecallBuckets(ctx, item); return err }},
		"RecallUnitRows of none": {nothing, none, func(item int64, _ stock.Goods) error { _, err := s.RecallUnitRows(ctx, item); return err }},
		"ReturnUnits of none": {nothing, closed, func(item int64, _ stock.Goods) error {
			return errOf(s.ReturnUnits(ctx, item, "place", 2, 100))
		}},
		"FillPool of one that is full": {nothing, pool, func(item int64, _ stock.Goods) error { return errOf(mine.FillPool(ctx, item, 2)) }},
		"Extend":                       {nothing, reserve, func(int64, stock.Goods) error { _, err := s.Extend(ctx, number, time.Hour, 2*time.Hour); return err }},
	}
}

// Each write of the row lifts its version, and each but a sale begins an epoch that has no writer yet. A sale
// does so after another strategy's, and becomes the writer.
func TestEveryWriteOfTheRowSaysWhoWroteIt(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	item := int64(0)
	for name, write := range writes(t, s) {
		for _, writer := range []string{me, other} {
			item++
			must.Do(t, s.CreateGoods(t.Context(), item, 20, t.Name()+name+writer))
			write.prepare(item)
			takeOne(t, s, writer, item)
			before, err := s.Goods(t.Context(), item)
			must.Do(t, err)
			should.Fail(t, write.do(item, before), nil, "… after a sale by …", name, writer)
			after, err := s.Goods(t.Context(), item)
			want := before
			if write.leaves != nothing {
				want.Version++
				want.WriterEpoch++
			}
			want.Writer = map[written]string{nothing: writer, sold: me, beside: "", recalled: "recall"}[write.leaves]
			if write.leaves == sold && writer == me {
				want.WriterEpoch--
			}
			if err != nil || after.Version != want.Version || after.WriterEpoch != want.WriterEpoch || after.Writer != want.Writer {
				t.Errorf("%s after a sale by %s leaves %+v (%v), want version %d, and epoch %d of %q", name, writer, after, err, want.Version, want.WriterEpoch, want.Writer)
			}
		}
	}
}

// What was computed from a read is written where nothing has come between but sales by the same strategy,
// and where a version is compared or a claim is the last, as these say.
func TestAWriteComputedFromAReadNoticesWhatCameBetween(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	ctx, mine := t.Context(), s.As(me)
	restock := func(item int64) {
		must.Get(s.Restock(ctx, item, 1, fmt.Sprint("between ", item)))(t)
	}
	by := func(strategy string) func(int64) { return func(item int64) { takeOne(t, s, strategy, item) } }
	item := int64(0)
	for _, c := range []struct {
		name           string
		before, then   func(item int64)
		same, computed bool // what a write of the version, and one of the same epoch, do
	}{
		{"nothing", by(me), func(int64) {}, true, true},
		{"nothing, after another strategy", by(other), func(int64) {}, true, true},
		{"a sale by the same", by(me), by(me), false, true},
		{"a first sale by the same", func(int64) {}, by(me), false, true},
		{"a first sale by another", func(int64) {}, by(other), false, false},
		{"a sale by another", by(me), by(other), false, false},
		{"another's, and one by the same", by(me), func(item int64) { by(other)(item); by(me)(item) }, false, false},
		{"a restock", by(me), restock, false, false},
		{"a restock, and a sale by the same", by(me), func(item int64) { restock(item); by(me)(item) }, false, false},
	} {
		writes := map[string]func(tx *repo.Tx, row stock.Goods, claim repo.Claim) (written bool, err error){
			"SetStock": func(tx *repo.Tx, row stock.Goods, _ repo.Claim) (bool, error) {
				err := tx.SetStock(ctx, row, 3)
				return err == nil, err
			},
			"Subtract": func(tx *repo.Tx, row stock.Goods, _ repo.Claim) (bool, error) {
				err := tx.Subtract(ctx, row, 1)
				return err == nil, err
			},
			"SetStockIfClaimed": func(tx *repo.Tx, row stock.Goods, claim repo.Claim) (bool, error) {
				err := tx.SetStockIfClaimed(ctx, row, 3, claim)
				return err == nil, err
			},
			"SetStockIfVersion": func(tx *repo.Tx, row stock.Goods, _ repo.Claim) (bool, error) {
				return tx.SetStockIfVersion(ctx, row, 3)
			},
		}
		for name, write := range writes {
			item++
			must.Do(t, s.CreateGoods(ctx, item, 20, t.Name()+c.name+name))
			c.before(item)
			claim, err := mine.ClaimFence(ctx, item, 1)
			must.Do(t, err)
			read, err := s.Goods(ctx, item)
			must.Do(t, err)
			c.then(item)
			was, err := s.Goods(ctx, item)
			must.Do(t, err)
			want, wantErr, left := c.computed, error(nil), int64(3)
			if name == "SetStockIfVersion" {
				want = c.same
			} else if !want {
				wantErr = repo.ErrRowChanged
			}
			if name == "Subtract" {
				left = was.Stock - 1
			}
			if !want {
				left = was.Stock
			}
			var ok bool
			err = mine.InTxOnce(ctx, func(tx *repo.Tx) (err error) {
				ok, err = write(tx, read, claim)
				return err
			})
			if ok != want || !errors.Is(err, wantErr) || errors.Is(err, stock.ErrFenced) {
				t.Errorf("%s after %s: written %v (%v), want %v (%v)", name, c.name, ok, err, want, wantErr)
			}
			should.Be(t, must.Get(s.Goods(ctx, item))(t).Stock, left, "… after … leaves", name, c.name)
		}
	}
}

func TestATokenOfAnUnknownItemIsNotFenced(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r").As(me)
	create(t, s, 1, 10)
	if _, err := s.ClaimFence(t.Context(), 404, 1); !errors.Is(err, stock.ErrUnknownGoods) || errors.Is(err, stock.ErrFenced) {
		t.Errorf("a claim of an item that is not there: %v", err)
	}
	claim := must.Get(s.ClaimFence(t.Context(), 1, 7))(t)
	must.Be(t, claim.Token, 7, "the claim is", claim)
	for strategy, want := range map[string]uint64{me: 7, other: 0, "a": 0, "z": 0} {
		should.Be(t, must.Get(s.As(strategy).Fence(t.Context(), 1))(t), want, "the token of … is", strategy)
	}
}

// Rows that are alike in all but their items are written one at a time.
func TestAWriteIsOfItsRowAlone(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r").As(me)
	ctx, want := t.Context(), []int64{10, 10, 10, 10, 10, 10, 10}
	createItems(t, s, int64(len(want)))
	for i, write := range []func(tx *repo.Tx, row stock.Goods) error{
		func(tx *repo.Tx, row stock.Goods) error { return tx.SetStock(ctx, row, 1) },
		func(tx *repo.Tx, row stock.Goods) error { return tx.Subtract(ctx, row, 8) },
		func(tx *repo.Tx, row stock.Goods) error { _, err := tx.SetStockIfVersion(ctx, row, 3); return err },
		func(tx *repo.Tx, row stock.Goods) error { return errOf(tx.SubtractIfEnough(ctx, row.ID, 6)) },
		func(tx *repo.Tx, row stock.Goods) error {
			return tx.SubtractEach(ctx, []repo.Units{{GoodsID: row.ID, Units: 5}})
		},
	} {
		want[i+1] = int64(i + 1) // others are before and behind it
		row := must.Get(s.Goods(ctx, int64(i+2)))(t)
		must.Do(t, s.InTx(ctx, func(tx *repo.Tx) error { return write(tx, row) }))
		for item, left := range want {
			should.Be(t, must.Get(s.Goods(ctx, int64(item+1)))(t).Stock, left, "after the write of item … item … is", i+2, item+1)
		}
	}
}

// createItems makes items 1 to n, with ten units each.
func createItems(t *testing.T, s *repo.Store, n int64) {
	t.Helper()
	for item := range n {
		must.Do(t, s.CreateGoods(t.Context(), item+1, 10, fmt.Sprint("item ", item+1)))
	}
}

// The rows of a small table that are not asked for stay free, those that are locked are left out,
// and those that were read are kept from every other writer.
func TestFreeRowsAreLockedAndNoOthers(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As("sql-conditional")
		createItems(t, s, 5)
		free := func(ctx context.Context, tx *repo.Tx, items ...int64) map[int64]stock.Goods {
			rows, err := tx.FreeGoods(ctx, items)
			if err != nil {
				t.Error(err)
			}
			return rows
		}
		err := s.InTx(t.Context(), func(tx *repo.Tx) error {
			if rows := free(t.Context(), tx, 4, 2, 404); len(rows) != 2 || rows[2].Stock != 10 || rows[4].ID != 4 {
				t.Errorf("the rows are %+v, want 2 and 4", rows)
			}
			beside, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			return s.InTx(beside, func(other *repo.Tx) error {
				if rows := free(beside, other, 1, 2, 3, 4, 5); len(rows) != 3 || rows[1].ID != 1 || rows[3].ID != 3 || rows[5].ID != 5 {
					t.Errorf("the rows beside are %+v, want 1, 3 and 5", rows)
				}
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestUnitsOfSeveralItemsAreSubtractedFromEach(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As("sql-conditional")
		createItems(t, s, 4)
		err := s.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.FreeGoods(t.Context(), []int64{1, 2, 3}); err != nil {
				return err
			}
			return tx.SubtractEach(t.Context(), []repo.Units{{GoodsID: 3, Units: 10}, {GoodsID: 1, Units: 4}})
		})
		must.Do(t, err)
		for item, left := range []int64{6, 10, 0, 10} {
			row, err := s.Goods(t.Context(), int64(item+1))
			written := left < 10
			if err != nil || row.Stock != left || (row.Version > 0) != written || written != (row.Writer == "sql-conditional") {
				t.Errorf("item %d is %+v, %v; want %d left", item+1, row, err, left)
			}
		}
		err = s.InTx(t.Context(), func(tx *repo.Tx) error {
			return tx.SubtractEach(t.Context(), []repo.Units{{GoodsID: 1, Units: 1}, {GoodsID: 404, Units: 1}})
		})
		if row, _ := s.Goods(t.Context(), 1); !errors.Is(err, repo.ErrRowChanged) || row.Stock != 6 {
			t.Errorf("with an item that does not exist: %v, and %+v", err, row)
		}
	})
}

// A counter of tokens that was lost gives one again: the last holder to claim it may write,
// and the one before may not. Each row is one claim after the other.
func TestTheLastClaimMayWrite(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "replica")
		create(t, s, 1, 10)
		write := func(strategy string, claim repo.Claim) error {
			read := must.Get(s.Goods(t.Context(), 1))(t)
			return s.As(strategy).InTx(t.Context(), func(tx *repo.Tx) error {
				return tx.SetStockIfClaimed(t.Context(), read, read.Stock-1, claim)
			})
		}
		var before repo.Claim
		writer := ""
		for _, c := range []struct {
			strategy string
			token    uint64
			want     error
		}{
			{"redis-lua", 5, nil},
			{"redis-lua", 5, nil},
			{"redis-lua", 4, stock.ErrFenced},
			{"redis-lua", 6, nil},
			{"etcd", 2, nil},
			{"etcd", 1, stock.ErrFenced},
			{"redis-lua", 1, nil},
		} {
			claim, err := s.As(c.strategy).ClaimFence(t.Context(), 1, c.token)
			should.Fail(t, err, c.want, "token", c.token, "of", c.strategy)
			if err != nil {
				continue
			}
			if writer != "" {
				should.Fail(t, write(writer, before), stock.ErrFenced, "the holder before token … of … writes", c.token, c.strategy)
			}
			should.Fail(t, write(c.strategy, claim), nil, "token … of … does not write", c.token, c.strategy)
			before, writer = claim, c.strategy
		}
	})
}
