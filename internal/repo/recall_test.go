package repo_test

import (
	"errors"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
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
		must(t, sell(ctx, a.As("sql-conditional"), allocated, "one"))
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
		if audit, err := a.Audit(ctx, allocated); err != nil || !audit.Clean {
			t.Errorf("the audit is %+v (%v)", audit, err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		defer written.Rollback()
		if _, err := written.ExecContext(t.Context(), `UPDATE tb_stock_place SET units = units - 3 WHERE goods_id = 1 AND place = 'elsewhere'`); err != nil {
			t.Fatal(err)
		}
		var filled repo.Allocation
		answered := make(chan error, 1)
		go func() {
			var err error
			filled, err = s.Fill(t.Context(), 1, "elsewhere", 0)
			answered <- err
		}()
		labtest.AwaitRowWait(t, d, "UPDATE tb_stock_place%", answered)
		must(t, written.Commit())
		must(t, <-answered)
		if has, err := s.Allocation(t.Context(), 1, "elsewhere"); err != nil || filled != has {
			t.Errorf("it was filled to %+v, and is %+v (%v)", filled, has, err)
		}
	})
}

// A limit that changes ends the epoch of what was allocated under the limit before.
func TestALimitEndsTheEpochOfAnAllocation(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		a := allocation{Store: labtest.Open(t, d, "replica").As(place), t: t}
		create(t, a.Store, allocated, 10)
		a.step(a.Fill(t.Context(), allocated, place, 0))
		before, err := a.Allocation(t.Context(), allocated, place)
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int64{3, 3, 2, 0} {
			must(t, a.SetLimit(t.Context(), allocated, limit))
			want := before
			if limit != before.PerUser {
				want.Epoch++
				want.PerUser = limit
			}
			after, err := a.Allocation(t.Context(), allocated, place)
			if err != nil || after != want {
				t.Errorf("limited to %d: %+v (%v), want %+v", limit, after, err, want)
			}
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
		read, err := a.Goods(ctx, allocated)
		if err != nil {
			t.Fatal(err)
		}
		a.returned(2, 0, 10)
		for _, strategy := range []string{place, "naive"} {
			err := a.As(strategy).InTxOnce(ctx, func(tx *repo.Tx) error { return tx.SetStock(ctx, read, 0) })
			if !errors.Is(err, repo.ErrRowChanged) {
				t.Errorf("the write by %s ended with %v, want %v", strategy, err, repo.ErrRowChanged)
			}
		}
		a.assert(10, "recall", repo.Allocation{Epoch: 2, Closed: true})
		for name, want := range map[string]bool{place: true, "another": false} {
			if has, err := a.HasAllocations(ctx, name); err != nil || has != want {
				t.Errorf("after its units are back, there are allocations of %s: %v (%v), want %v", name, has, err, want)
			}
		}
	})
}

// What is allocated comes back into the row: it counts for the limit of the stock.
func TestARestockCountsWhatIsAllocated(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		a := allocation{Store: labtest.Open(t, d, "replica").As(place), t: t}
		create(t, a.Store, allocated, 10)
		a.step(a.Fill(t.Context(), allocated, place, 0))
		if _, err := a.Restock(t.Context(), allocated, stock.MaxStock-9, "above"); !errors.Is(err, stock.ErrStockLimit) {
			t.Errorf("above the limit: %v, want %v", err, stock.ErrStockLimit)
		}
		left, err := a.Restock(t.Context(), allocated, stock.MaxStock-10, "full")
		if err != nil || left != stock.MaxStock-10 {
			t.Errorf("restocked to %d (%v)", left, err)
		}
		if _, err := a.Restock(t.Context(), allocated, stock.MaxStock-10, "full"); !errors.Is(err, stock.ErrDuplicateRequest) {
			t.Errorf("the same request id again: %v, want %v", err, stock.ErrDuplicateRequest)
		}
	})
}
