package repo_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// full is an item that has everything that an item can have.
type full struct {
	*repo.Store
	t  *testing.T
	id int64
	// order was sold to ann, and held, paid, late and later are reservations of hers.
	order                   stock.Order
	held, paid, late, later string
	copies                  int
}

const (
	perUser = 20 // the limit of a full item
	inRedis = "redis-stock"
)

func newFull(t *testing.T, s *repo.Store, id int64) *full {
	t.Helper()
	f := &full{Store: s, t: t, id: id}
	own := stock.Choice{Strategy: "mutex", Group: new(true), Fence: new(false), MaxQuantity: new(int64(7))}
	must.Do(f.t, s.Create(t.Context(), stock.NewItem{GoodsID: id, Units: 100, PerUser: perUser, Choice: own}, fmt.Sprint("created-", id)))
	f.order = f.sell("ann", 2, func(ctx context.Context, tx *repo.Tx, _ stock.Goods) error {
		return errOf(tx.SubtractIfEnough(ctx, id, 2))
	})
	for _, number := range []*string{&f.held, &f.paid, &f.late, &f.later} {
		*number = hold(t, s, id, 1, "ann")
	}
	f.under(repo.Bucketed, func(ctx context.Context, tx *repo.Tx) error {
		row, buckets, err := tx.Gather(ctx, id)
		must.Do(f.t, err)
		return tx.Spread(ctx, row, 10, row.Stock-10, buckets, 2)
	})
	_, _, err := s.As(repo.InUnitRows).FillPool(t.Context(), id, 4)
	must.Do(f.t, err)
	_, err = s.As(inRedis).Fill(t.Context(), id, inRedis, 0)
	must.Do(f.t, err)
	_, err = s.As("etcd").ClaimFence(t.Context(), id, uint64(id))
	must.Do(f.t, err)
	return f
}

// under runs a transaction of a strategy under the limit of the item.
func (f *full) under(strategy string, do func(context.Context, *repo.Tx) error) {
	f.t.Helper()
	must.Do(f.t, f.As(strategy).InTx(f.t.Context(), func(tx *repo.Tx) error {
		if _, err := tx.CountIn(f.t.Context(), f.id, perUser, nil); err != nil {
			return err
		}
		return do(f.t.Context(), tx)
	}))
}

// sell sells units to a buyer that are taken from somewhere.
func (f *full) sell(buyer string, units int64, take func(context.Context, *repo.Tx, stock.Goods) error) (order stock.Order) {
	f.t.Helper()
	f.copies++
	batch := []stock.Purchase{{RequestID: fmt.Sprintf("%d-%d", f.id, f.copies), Quantity: units, UserID: buyer}}
	must.Do(f.t, f.InTx(f.t.Context(), func(tx *repo.Tx) error {
		row := must.Get(tx.Goods(f.t.Context(), f.id))(f.t)
		if _, err := tx.CountIn(f.t.Context(), f.id, perUser, batch); err != nil {
			return err
		}
		orders := must.Get(tx.Append(f.t.Context(), repo.Sale{GoodsID: f.id, Batch: batch}))(f.t)
		order = orders[0]
		return take(f.t.Context(), tx, row)
	}))
	return order
}

// pending is an order that was accepted elsewhere.
func (f *full) pending(units int64) repo.PendingOrder {
	f.copies++
	key := fmt.Sprintf("pending-%d-%d", f.id, f.copies)
	of := must.Get(f.Allocation(f.t.Context(), f.id, inRedis))(f.t)
	return repo.PendingOrder{Epoch: of.Epoch, Limited: true, Order: stock.Order{
		ID: key, Kind: stock.Deduction, RequestID: key, GoodsID: f.id, Quantity: units, UserID: key, Strategy: inRedis, CreatedAt: time.Now().UTC(),
	}}
}

// figures are what is read of an item, but for its ids and times.
func (f *full) figures() string {
	ctx := f.t.Context()
	row := must.Get(f.Goods(ctx, f.id))(f.t)
	all := must.Get(f.InStock(ctx, f.id))(f.t)
	bucketed := must.Get(f.GoodsWithBuckets(ctx, f.id))(f.t)
	inRows := must.Get(f.GoodsWithUnitRows(ctx, f.id))(f.t)
	reach, in, err := f.Reach(ctx, f.id, inRedis)
	must.Do(f.t, err)
	names := must.Get(f.Allocators(ctx, f.id))(f.t)
	slices.Sort(names)
	audit := must.Get(f.AuditInFull(ctx, f.id))(f.t)
	buyers := must.Get(f.UsersAfter(ctx, f.id, ""))(f.t)
	has := must.Get(f.Has(ctx, f.id, perUser, []stock.Purchase{{UserID: "ann"}, {UserID: "bob"}}))(f.t)
	fence := must.Get(f.As("etcd").Fence(ctx, f.id))(f.t)
	page, _, err := f.OrdersAfter(ctx, f.id, 0, 100, stock.Steps()...)
	must.Do(f.t, err)
	steps := make([]string, len(page))
	for i, o := range page {
		steps[i] = fmt.Sprint(i+1, o.Kind, o.Quantity)
	}
	return fmt.Sprintf("row %d+%d, in stock %d+%d, with buckets %d+%d, with unit rows %d+%d, reach %d+%d and %d of limit %d, %v, "+
		"audit %d of %d, %d orders, %d held, %d returned, clean %v, buyers %v %v %v, fence %d, %v",
		row.Stock, row.Allocated, all.Stock, all.Allocated, bucketed.Stock, bucketed.Allocated, inRows.Stock, inRows.Allocated,
		reach.Stock, reach.Allocated, in.Units, in.PerUser, names, audit.Sold, audit.Initial, audit.Orders, audit.Held, audit.Returned, audit.Clean,
		*audit.Buyers, buyers, has.Has, fence-uint64(f.id), steps)
}

// Three items have the same. Each is read as if it were alone.
func TestAnItemIsReadAsIfItWereAlone(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	const want = "row 40+54, in stock 94+0, with buckets 50+44, with unit rows 44+50, reach 40+14 and 40 of limit 20, " +
		"[redis-stock sql-bucket sql-unit], audit 2 of 100, 1 orders, 4 held, 0 returned, clean true, buyers {0 0} [{ann 6 6 0}] map[ann:6], fence 0, " +
		"[1deduct2 2hold1 3hold1 4hold1 5hold1]"
	items := []*full{newFull(t, s, 1), newFull(t, s, 2), newFull(t, s, 3)}
	for range 2 { // and again, when it is settled
		for _, item := range items {
			should.Be(t, item.figures(), want, "item", item.id)
		}
		must.Do(t, settleNow(t, s))
	}
	list, err := s.Allocations(t.Context(), inRedis)
	if want := "[{1 40 1 0 20 false} {2 40 1 0 20 false} {3 40 1 0 20 false}]"; err != nil || fmt.Sprint(list) != want {
		t.Errorf("the allocations are %v (%v), want %s", list, err, want)
	}
	if there, err := s.Existing(t.Context(), 3, 404, 1); err != nil || !maps.Equal(there, map[int64]bool{1: true, 3: true}) {
		t.Errorf("of items 1, 3 and 404 there are %v (%v)", there, err)
	}
}

// Whatever is done to the second of three items, the first and the third have every row as before, and
// the second has lost and gained no unit beside its ledger.
func TestWhatIsDoneToOneItemLeavesTheOthersAlone(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	first, item, third := newFull(t, s, 1), newFull(t, s, 2), newFull(t, s, 3)
	others := func() (rows []string) {
		for _, other := range []*full{first, third} {
			of := must.Get(s.RowsOf(t.Context(), other.id))(t)
			rows = append(rows, of...)
		}
		return rows
	}
	before := others()
	for _, step := range item.steps() {
		step.do()
		should.Equal(t, before, others(), step.name, "the other items")
		if audit, err := s.AuditInFull(t.Context(), item.id); err != nil || !audit.Clean {
			t.Fatalf("after %s the audit is %+v, of buyers %+v (%v)", step.name, audit, audit.Buyers, err)
		}
	}
	for _, of := range []string{"elsewhere", inRedis} {
		should.Be(t, must.Get(s.HasAllocations(t.Context(), of))(t), of == inRedis, "there are allocations …", of)
	}
}

type step struct {
	name string
	do   func()
}

// steps are all that can be done to an item, and end with all of its units in its row.
func (f *full) steps() []step {
	return slices.Concat(f.sales(), f.reservations(), f.administration(), f.recalls())
}

// sales take a unit from everywhere, in every way.
func (f *full) sales() []step {
	from := func(take func(ctx context.Context, tx *repo.Tx, row stock.Goods) error) func() {
		return func() { f.sell(fmt.Sprint("buyer ", f.copies), 1, take) }
	}
	return []step{
		{"SetStock", from(func(ctx context.Context, tx *repo.Tx, row stock.Goods) error {
			return tx.SetStock(ctx, row, row.Stock-1)
		})},
		{"SetStockIfVersion", from(func(ctx context.Context, tx *repo.Tx, row stock.Goods) error {
			_, err := tx.SetStockIfVersion(ctx, row, row.Stock-1)
			return err
		})},
		{"Subtract", from(func(ctx context.Context, tx *repo.Tx, row stock.Goods) error { return tx.Subtract(ctx, row, 1) })},
		{"SubtractIfEnough", from(func(ctx context.Context, tx *repo.Tx, row stock.Goods) error {
			left, _, err := tx.SubtractIfEnough(ctx, f.id, 1)
			if left != row.Stock-1 {
				f.t.Errorf("of %d units %d are left", row.Stock, left)
			}
			return err
		})},
		{"SubtractEach", from(func(ctx context.Context, tx *repo.Tx, _ stock.Goods) error {
			return tx.SubtractEach(ctx, []repo.Units{{GoodsID: f.id, Units: 1}})
		})},
		{"TakeFromBucket", from(func(ctx context.Context, tx *repo.Tx, _ stock.Goods) error {
			_, err := tx.TakeFromBucket(ctx, f.id, 0, 1)
			return err
		})},
		{"TakeUnitRows", from(func(ctx context.Context, tx *repo.Tx, _ stock.Goods) error {
			return errOf(tx.TakeUnitRows(ctx, f.id, 1, 0))
		})},
		{"CountOut", func() {
			f.under("", func(ctx context.Context, tx *repo.Tx) error {
				batch := []stock.Purchase{{Quantity: 1, UserID: "ann"}}
				_, err := tx.CountIn(ctx, f.id, perUser, batch)
				must.Do(f.t, err)
				return tx.CountOut(ctx, f.id, batch)
			})
		}},
		{"Keep", func() { must.Do(f.t, f.Keep(f.t.Context(), inRedis, []repo.PendingOrder{f.pending(2)})) }},
		{"SetStockIfClaimed", func() {
			claim := must.Get(f.As("etcd").ClaimFence(f.t.Context(), f.id, 9))(f.t)
			f.under("etcd", func(ctx context.Context, tx *repo.Tx) error {
				row, err := tx.Goods(ctx, f.id)
				must.Do(f.t, err)
				return tx.SetStockIfClaimed(ctx, row, row.Stock, claim)
			})
		}},
	}
}

func (f *full) reservations() []step {
	ctx := f.t.Context()
	back := func(number string, units, want int64) {
		f.copies++
		returned := must.Get(f.GiveBack(ctx, number, units, stock.ReturnKey.Of(fmt.Sprint(f.copies)), false))(f.t)
		if returned.Quantity != want {
			f.t.Errorf("%d units of order %s come back, want %d", returned.Quantity, number, want)
		}
	}
	return []step{
		{"Extend", func() { _, err := f.Extend(ctx, f.held, 2*time.Hour, 3*time.Hour); must.Do(f.t, err) }},
		{"Release", func() { _, _, err := f.Release(ctx, f.held); must.Do(f.t, err) }},
		{"Confirm", func() { _, _, err := confirm(f.t, f.Store, f.paid, "paid"); must.Do(f.t, err) }},
		{"Return", func() { back(f.order.ID, 1, 1); back(f.paid, 0, 1); back(f.order.ID, 0, 1) }},
		{"Expire", func() {
			over(f.t, f.Store, f.late)
			over(f.t, f.Store, f.later)
			if ended, units, err := f.Expire(ctx, 10); err != nil || ended != 2 || len(units) != 1 || units[f.id].Units != 2 {
				f.t.Errorf("%d are ended, and %v units come back (%v)", ended, units, err)
			}
		}},
	}
}

func (f *full) administration() []step {
	ctx := f.t.Context()
	limit := func(n int64) func() { return func() { must.Do(f.t, f.SetLimit(ctx, f.id, n)) } }
	choose := func(to stock.Choice) func() {
		return func() {
			must.Do(f.t, f.ChangeChoice(ctx, f.id, func(stock.Choice) (stock.Choice, error) { return to, nil }))
		}
	}
	return []step{
		{"Restock", func() { _, err := f.Restock(ctx, f.id, 10, "more"); must.Do(f.t, err) }},
		{"SetLimit to less", limit(1)},
		{"SetLimit to none", limit(0)},
		{"SetLimit again", limit(perUser)},
		{"ChangeChoice", choose(stock.Choice{Strategy: "naive"})},
		{"ChangeChoice to none", choose(stock.Choice{})},
	}
}

func (f *full) recalls() []step {
	ctx := f.t.Context()
	in := func(want bool) {
		f.t.Helper()
		items, err := f.ItemsIn(ctx, inRedis)
		if err != nil || items[f.id] != want || !items[1] || !items[3] {
			f.t.Errorf("the items in Redis are %v (%v), want item %d: %v", items, err, f.id, want)
		}
	}
	return []step{
		{"Fill", func() { _, err := f.As(inRedis).Fill(ctx, f.id, inRedis, 0); must.Do(f.t, err); in(true) }},
		{"CloseAllocation", func() { _, err := f.As(inRedis).CloseAllocation(ctx, f.id, inRedis); must.Do(f.t, err) }},
		{"ReturnUnits", func() {
			of := must.Get(f.Allocation(ctx, f.id, inRedis))(f.t)
			if of, units, err := f.ReturnUnits(ctx, f.id, inRedis, of.Epoch, 0); err != nil || units == 0 || of.Units != 0 {
				f.t.Errorf("%d units are returned, and %+v is left (%v)", units, of, err)
			}
			in(false)
		}},
		{"FillPool", func() { _, _, err := f.As(repo.InUnitRows).FillPool(ctx, f.id, 8); must.Do(f.t, err) }},
		{"RecallUnitRows", func() {
			if units, err := f.RecallUnitRows(ctx, f.id); err != nil || units != 8 {
				f.t.Errorf("%d units come back from unit rows (%v), want 8", units, err)
			}
		}},
		{"Spread", func() {
			f.under(repo.Bucketed, func(ctx context.Context, tx *repo.Tx) error {
				row, buckets, err := tx.Gather(ctx, f.id)
				must.Do(f.t, err)
				return tx.Spread(ctx, row, 5, row.Stock+buckets.Sum()-5, buckets, 1)
			})
		}},
		{"RecallBuckets", func() {
			if units, err := f.RecallBuckets(ctx, f.id); err != nil || units != 5 {
				f.t.Errorf("%d units come back from buckets (%v), want 5", units, err)
			}
			row, err := f.Goods(ctx, f.id)
			names, err2 := f.Allocators(ctx, f.id)
			if err != nil || err2 != nil || row.Allocated != 0 || len(names) != 0 || row.Writer != "recall" {
				f.t.Errorf("after all is back, %+v is allocated by %q (%v, %v)", row, names, err, err2)
			}
		}},
	}
}
