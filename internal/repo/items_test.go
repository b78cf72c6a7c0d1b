package repo_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// createItems makes items 1 to n, with ten units each.
func createItems(t *testing.T, s *repo.Store, n int64) {
	t.Helper()
	for item := range n {
		must(t, s.CreateGoods(t.Context(), item+1, 10, fmt.Sprint("item ", item+1)))
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
		if err != nil {
			t.Fatal(err)
		}
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

// Orders of several items are written together, or none of them: the one whose allocation does
// not cover them is named.
func TestPendingOrdersOfSeveralItemsAreKeptTogether(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As("redis-stock")
		createItems(t, s, 3)
		for item := range int64(3) {
			if _, err := s.Fill(t.Context(), item+1, "elsewhere", 0); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Restock(t.Context(), item+1, 20, fmt.Sprint("more of ", item)); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Fill(t.Context(), item+1, "elsewhere too", 0); err != nil { // which keeps its units
				t.Fatal(err)
			}
		}
		made := 0
		pending := func(item, epoch, units int64) repo.PendingOrder {
			made++
			return repo.PendingOrder{Epoch: epoch, Order: stock.Order{
				ID: fmt.Sprint("number ", made), Kind: stock.Deduction, RequestID: fmt.Sprint("request ", made), GoodsID: item, Quantity: units,
				Strategy: "redis-stock", Replica: "r", CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
			}}
		}
		must(t, s.Keep(t.Context(), "elsewhere", []repo.PendingOrder{pending(2, 1, 3), pending(1, 1, 2), pending(2, 1, 4), pending(3, 1, 10)}))
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
			of, err := s.Allocation(t.Context(), int64(item+1), "elsewhere")
			if err != nil || of.Units != left {
				t.Errorf("the allocation of item %d is %+v, %v; want %d units", item+1, of, err, left)
			}
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
		must(t, s.CreateLimited(t.Context(), 1, 10, 1, "item"))
		if _, err := s.Fill(t.Context(), 1, "elsewhere", 0); err != nil {
			t.Fatal(err)
		}
		for i, earlier := range []bool{true, false} {
			for n, together := range []int{2, 1} { // the third beside what the buyer has
				orders := make([]repo.PendingOrder, 0, together)
				for m := range together {
					orders = append(orders, repo.PendingOrder{Order: stock.Order{
						ID: fmt.Sprint("number ", i, n, m), Kind: stock.Deduction, RequestID: fmt.Sprint("request ", i, n, m), GoodsID: 1, Quantity: 1 + int64(n),
						UserID: fmt.Sprint("buyer ", i), Strategy: "redis-stock", Replica: "r", CreatedAt: time.Now().UTC().Truncate(time.Millisecond),
					}, Epoch: 1, Limited: true, Earlier: earlier})
				}
				must(t, s.Keep(t.Context(), "elsewhere", orders))
				found, err := s.AuditUsers(t.Context(), 1)
				if err != nil || found.Miscounted != 0 || found.BeyondLimit != int64(i) {
					t.Errorf("accepted earlier %v: the audit of buyers is %+v, %v; want %d beyond the limit", earlier, found, err, i)
				}
			}
		}
	})
}

// What was computed from a row under one limit is not written by a transaction that sells under another.
func TestNothingIsWrittenUnderAnotherLimitThanItWasReadWith(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As("naive")
		must(t, s.CreateLimited(t.Context(), 1, 10, 2, "item"))
		row, err := s.Goods(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for name, write := range map[string]func(tx *repo.Tx) error{
			"set":        func(tx *repo.Tx) error { return tx.SetStock(t.Context(), row, 9) },
			"subtracted": func(tx *repo.Tx) error { return tx.Subtract(t.Context(), row, 1) },
		} {
			if err := s.InTxOnce(t.Context(), write); !errors.Is(err, repo.ErrRowChanged) { // its limit is none
				t.Errorf("the stock is %s without the limit of the row: %v", name, err)
			}
		}
		if after, err := s.Goods(t.Context(), 1); err != nil || after.Stock != 10 {
			t.Errorf("the row is %+v, %v", after, err)
		}
	})
}
