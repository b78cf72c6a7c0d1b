package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// everyStrategy runs a test for each strategy, safe or not, alone and grouped, with two replicas that have every backend.
// Of the locks two stand for all.
func everyStrategy(t *testing.T, test func(t *testing.T, s shop, d *servers.Database, name string, goods int64)) {
	t.Helper()
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openAll(t, d)
		for i, entry := range strategy.Registry() {
			if !standsForOthers(entry.Name) {
				continue
			}
			for j, name := range []string{entry.Name, entry.Name + grouped} {
				t.Run(name, func(t *testing.T) { test(t, s, d, name, int64(2*i+j+1)) })
			}
		}
	})
}

// tries buys on each replica, by a strategy and by the one that every replica has.
func (s shop) tries(t *testing.T, name string, goods int64, want error) {
	t.Helper()
	for replica := range s.replicas {
		for _, by := range []string{name, "sql-conditional", "sql-bucket"} {
			for _, p := range []stock.Purchase{{Quantity: 1}, keyed(rand.Text(), 1), {Quantity: 1, TTL: time.Minute}} {
				if o, err := s.strategy(t, replica, by).Deduct(t.Context(), goods, p); !errors.Is(errors.Join(err, o.Rejected), want) || o.Order.ID != "" {
					t.Errorf("%s on replica %d: %+v, %v; want %v", by, replica+1, o, err, want)
				}
			}
		}
	}
}

// A crowd buys while the sale is closed. After the answer nothing is sold, also of what comes back later.
func TestACloseIsTheEndAtEveryReplica(t *testing.T) {
	everyStrategy(t, func(t *testing.T, s shop, d *servers.Database, name string, goods int64) {
		all, _ := s.reservations(t, d)
		s.create(t, goods, 1000)
		first := stock.Purchase{RequestID: rand.Text(), Keyed: true, Quantity: 1}
		sold := must.Get(s.strategy(t, 0, name).Deduct(t.Context(), goods, first))(t)
		held := s.holds(t, name, goods, 2, time.Minute)
		ctx, leave := context.WithCancel(t.Context())
		var crowd sync.WaitGroup
		for i := range 4 {
			crowd.Go(func() {
				for ctx.Err() == nil {
					_, _ = s.strategy(t, i%2, name).Deduct(ctx, goods, stock.Purchase{Quantity: 1})
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		closed := must.Get(s.inventory.CloseSale(t.Context(), goods))(t)
		s.tries(t, name, goods, stock.ErrSaleClosed)
		leave()
		crowd.Wait()
		again := must.Get(s.inventory.CloseSale(t.Context(), goods))(t)
		if a := again.Audit; *a.Pending != 0 || a.Audit != closed.Audit.Audit || !again.EndsAt.Equal(closed.EndsAt) {
			t.Errorf("closed: %+v, again: %+v", closed, again)
		}
		must.Do(t, errOf(all[0].Confirm(t.Context(), held[0], "payment of "+held[0])), errOf(all[1].Release(t.Context(), held[1])),
			errOf(all[1].GiveBack(t.Context(), sold.Order.ID, 1, "", false)))
		must.Get(s.inventory.Restock(t.Context(), goods, 5, ""))(t)
		must.Do(t, errOf(s.inventory.Correct(t.Context(), goods, stock.Correction{By: -2, Reason: "damage"}, "")))
		s.tries(t, name, goods, stock.ErrSaleClosed)
		if o, err := s.strategy(t, 1, name).Deduct(t.Context(), goods, first); err != nil || !o.Replayed || o.Order.ID != sold.Order.ID {
			t.Errorf("the key of the first purchase: %+v, %v", o, err)
		}
		before := closed.Audit
		should.Be(t, must.Get(s.inventory.AuditInFull(t.Context(), goods))(t).Audit,
			stock.AuditOf(goods, before.Stock+1+1+5-2, stock.Sums{
				Restocked: 1005, Corrected: -2, Sold: before.Sold + 1, Orders: before.Orders + 1, Held: 0, Returned: 1,
			}), "the audit")
	})
}

// Damaged units come back to their buyer's limit, and not into the stock; the audit has both terms.
func TestADamagedReturnIsNotSoldAgain(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openAll(t, d)
		all, _ := s.reservations(t, d)
		giveBack := func(replica int, order string, units int64, key string) (back stock.Order, again bool, err error) {
			for err = stock.ErrBusy; errors.Is(err, stock.ErrBusy); { // until the ledger has the order
				back, again, err = all[replica].GiveBack(t.Context(), order, units, key, true)
			}
			return back, again, err
		}
		for i, name := range []string{"sql-conditional", "sql-bucket", "redis-stock"} {
			goods := int64(i + 1)
			must.Get(s.inventory.Create(t.Context(), stock.NewItem{GoodsID: goods, Units: 50, PerUser: 3}, ""))(t)
			sold := must.Get(s.strategy(t, 0, name).Deduct(t.Context(), goods, stock.Purchase{Quantity: 3, UserID: "ann"}))(t)
			must.Get(s.inventory.Recall(t.Context(), goods))(t)
			for try := range 2 {
				back, again, err := giveBack(try, sold.Order.ID, 2, sold.Order.ID)
				if err != nil || again != (try > 0) || back.Quantity != 2 {
					t.Errorf("%s: %+v, %t, %v", name, back, again, err)
				}
			}
			should.Fail(t, errOf(all[0].GiveBack(t.Context(), sold.Order.ID, 2, sold.Order.ID, false)), stock.ErrKeyReused, "…: with restock under the same key", name)
			full := must.Get(s.inventory.AuditInFull(t.Context(), goods))(t).Audit
			full.Buyers = nil // it is not clean where they are miscounted
			should.Be(t, full, stock.AuditOf(goods, 47, stock.Sums{Restocked: 50, Corrected: -2, Sold: 3, Orders: 1, Returned: 2}), "the audit of "+name)
			for _, units := range []int64{2, 1} { // with the first, redis-stock has a count of the buyer's units
				o, err := s.strategy(t, 0, name).Deduct(t.Context(), goods, stock.Purchase{Quantity: units, UserID: "ann"})
				if err != nil || o.Rejected != nil {
					t.Fatalf("%s: their buyer buys %d again: %v, %v", name, units, err, o.Rejected)
				}
				_, _, err = giveBack(1, o.Order.ID, 1, "")
				must.Do(t, err)
			}
		}
	})
}

// An item is not sold before its start, nor after its end, whatever allocations it had; and is sold between them.
func TestAnItemIsSoldWithinItsTimes(t *testing.T) {
	everyStrategy(t, func(t *testing.T, s shop, _ *servers.Database, name string, goods int64) {
		late, past, always := time.Now().Add(time.Hour), time.Now().Add(-time.Hour), time.Time{}
		must.Get(s.inventory.Create(t.Context(), stock.NewItem{GoodsID: goods, Units: 100, Sale: stock.SaleChange{StartsAt: &late}}, ""))(t)
		var sold int64
		for i, step := range []struct {
			set  stock.SaleChange
			want error
		}{
			{stock.SaleChange{}, stock.ErrSaleNotStarted},
			{stock.SaleChange{StartsAt: &past}, nil},
			{stock.SaleChange{StartsAt: &late}, stock.ErrSaleNotStarted},
			{stock.SaleChange{StartsAt: &always, EndsAt: &past}, stock.ErrSaleClosed},
			{stock.SaleChange{EndsAt: &late}, nil},
			{stock.SaleChange{EndsAt: &always}, nil},
		} {
			if i > 0 {
				must.Get(s.inventory.Change(t.Context(), goods, service.Change{Sale: step.set}))(t)
			}
			if step.want != nil {
				s.tries(t, name, goods, step.want)
				continue
			}
			for replica := range s.replicas {
				should.Be(t, must.Get(s.strategy(t, replica, name).Deduct(t.Context(), goods, stock.Purchase{Quantity: 1}))(t).Rejected, nil, "step … on replica …", i, replica+1)
				sold++
			}
		}
		must.Get(s.inventory.CloseSale(t.Context(), goods))(t)
		should.Be(t, must.Get(s.inventory.AuditInFull(t.Context(), goods))(t).Audit,
			stock.AuditOf(goods, 100-sold, stock.Sums{Restocked: 100, Sold: sold, Orders: sold}), "the audit")
	})
}

// A crowd buys all the time. The clock of the database opens the sale, and ends it.
func TestASaleBeginsAndEndsByTheClockOfTheDatabase(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openAll(t, d)
		for i, name := range []string{"sql-conditional", "sql-conditional" + grouped, "sql-bucket", "redis-stock"} {
			t.Run(name, func(t *testing.T) {
				goods := int64(i + 1)
				for _, c := range s.replicas {
					go c.KeepSales(t.Context())
				}
				starts, ends := time.Now().Add(700*time.Millisecond), time.Now().Add(2200*time.Millisecond)
				must.Get(s.inventory.Create(t.Context(), stock.NewItem{GoodsID: goods, Units: 1_000_000, Sale: stock.SaleChange{StartsAt: &starts, EndsAt: &ends}}, ""))(t)
				for _, c := range s.replicas {
					must.Do(t, c.LookAtSwitches(t.Context()))
				}
				ctx, leave := context.WithDeadline(t.Context(), ends.Add(500*time.Millisecond))
				defer leave()
				var crowd sync.WaitGroup
				var sold atomic.Int64
				for client := range 4 {
					crowd.Go(func() {
						for ctx.Err() == nil {
							sent := time.Now()
							o, err := s.strategy(t, client%2, name).Deduct(t.Context(), goods, stock.Purchase{Quantity: 1})
							rejected := errors.Join(err, o.Rejected)
							switch answered := time.Now(); {
							case rejected == nil && (answered.Before(starts) || sent.After(ends)):
								t.Errorf("sold between %s after the start and %s after the end", answered.Sub(starts), sent.Sub(ends))
							case rejected == nil:
								sold.Add(1)
							case !errors.Is(rejected, stock.ErrSaleNotStarted) && !errors.Is(rejected, stock.ErrSaleClosed),
								errors.Is(rejected, stock.ErrSaleNotStarted) && sent.After(starts), errors.Is(rejected, stock.ErrSaleClosed) && answered.Before(ends):
								t.Errorf("%s after the start it is %v", sent.Sub(starts), rejected)
							}
						}
					})
				}
				crowd.Wait()
				if sold.Load() == 0 {
					t.Error("nothing was sold")
				}
			})
		}
	})
}
