//go:build prove

package service_test

import (
	"context"
	"crypto/rand"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// A hundred thousand reservations expire in one moment, and two replicas bring them back while
// clients go on buying the item. The figures are logged; what must hold is that every unit is back
// once.
func TestProveABacklogOfReservationsComesBack(t *testing.T) {
	const backlog, buyers = 100_000, 8
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := openAll(t, d)
		s.create(t, 1, 10*backlog)
		store := labtest.Open(t, d, "reserving")
		expiry := time.Now().Add(time.Minute)
		for range backlog / 500 {
			holdUntil(t, store, 1, 500, expiry)
		}
		all, counted := s.reservations(t, d)
		time.Sleep(time.Until(expiry) - 6*time.Second)
		var sold, failed atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		var working sync.WaitGroup
		for i := range buyers {
			working.Go(func() {
				for ctx.Err() == nil {
					outcome, err := s.in(t, i%2, service.Mode{Strategy: "sql-conditional", Group: true}).Deduct(ctx, 1, stock.Purchase{Quantity: 1})
					switch {
					case ctx.Err() != nil: // its outcome does not count
					case err != nil || outcome.Rejected != nil:
						failed.Add(1)
					default:
						sold.Add(1)
					}
				}
			})
		}
		rate := func(during func()) float64 {
			before, begun := sold.Load(), time.Now()
			during()
			return float64(sold.Load()-before) / time.Since(begun).Seconds()
		}
		alone := rate(func() { time.Sleep(5 * time.Second) })
		for _, r := range all {
			working.Go(func() { r.KeepExpiring(ctx, func(err error) { t.Error(err) }) })
		}
		var took time.Duration
		meanwhile := rate(func() {
			time.Sleep(time.Until(expiry))
			labtest.Eventually(5*time.Minute, func() bool {
				n, err := store.Reservations(ctx)
				should.Do(t, err)
				return n.Open == 0
			})
			took = time.Since(expiry)
		})
		stop()
		working.Wait()
		t.Logf("%d reservations came back within %.1f s; %.0f purchases a second before, %.0f meanwhile (%.2f)", backlog, took.Seconds(), alone, meanwhile, meanwhile/alone)
		audit, err := s.inventory.AuditInFull(t.Context(), 1)
		if err != nil || !audit.Clean || audit.Held != 0 || counted.expired.Load() != backlog || failed.Load() != 0 {
			t.Errorf("%d have expired, %d purchases failed, and the audit is %+v (%v)", counted.expired.Load(), failed.Load(), audit, err)
		}
	})
}

// holdUntil reserves units one by one, as a strategy does, which expire at a time.
func holdUntil(t *testing.T, store *repo.Store, goodsID int64, units int, expiry time.Time) {
	t.Helper()
	batch := make([]stock.Purchase, units)
	for i := range batch {
		batch[i] = stock.Purchase{RequestID: rand.Text(), Quantity: 1, TTL: time.Until(expiry), Number: uuid.Must(uuid.NewV7()).String()}
	}
	err := store.InTx(t.Context(), func(tx *repo.Tx) error {
		if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: goodsID, Batch: batch}); err != nil {
			return err
		}
		_, _, err := tx.SubtractIfEnough(t.Context(), goodsID, int64(units))
		return err
	})
	must.Do(t, err)
}

// Baskets of 1, 4 and 16 lines over a hundred items, alone and grouped, through two replicas. The
// figures are logged; what must hold is that every basket is sold and every item exact.
func TestProveBasketsOfManyLines(t *testing.T) {
	const items, clients, lasts = 100, 32, 3 * time.Second
	d := lab.Database(t, servers.MariaDB)
	s := openAll(t, d)
	all, _ := s.reservations(t, d)
	for id := int64(1); id <= items; id++ {
		s.create(t, id, 1_000_000)
	}
	var units int64
	for _, name := range []string{"sql-conditional", "sql-conditional grouped"} {
		for _, lines := range []int{1, 4, 16} {
			var sold atomic.Int64
			var buying sync.WaitGroup
			begun := time.Now()
			for client := range clients {
				hold, r := s.holdBy(t, client%2, name), all[client%2]
				buying.Go(func() {
					for time.Since(begun) < lasts {
						basket := make([]int64, 0, lines)
						for _, id := range mathrand.Perm(items)[:lines] {
							basket = append(basket, int64(id)+1)
						}
						if _, err := r.Sell(t.Context(), basketOf(basket...), hold); err != nil {
							t.Error(err)
							return
						}
						sold.Add(1)
					}
				})
			}
			buying.Wait()
			units += sold.Load() * int64(lines)
			took := time.Since(begun).Seconds()
			t.Logf("%s, %d lines: %.0f baskets a second, %.0f lines", name, lines, float64(sold.Load())/took, float64(sold.Load()*int64(lines))/took)
		}
	}
	left := int64(0)
	for id := int64(1); id <= items; id++ {
		audit, err := s.inventory.AuditInFull(t.Context(), id)
		if err != nil || !audit.Clean || audit.Held != 0 {
			t.Errorf("item %d: %+v (%v)", id, audit, err)
		}
		left += audit.Stock
	}
	should.Be(t, left, items*1_000_000-units, "are left after … of … were sold", units, items*1_000_000)
}

func TestProveEveryOtherPairSellsAllThatIsLeft(t *testing.T) {
	eachPair(t, isOther, sellsAllThatIsLeft)
}

func TestProveEveryOtherPairSellsAtTheSameTime(t *testing.T) {
	eachPair(t, isOther, sellsAtTheSameTime)
}

func isOther(first, second string) bool { return !isElsewhere(first, second) }
