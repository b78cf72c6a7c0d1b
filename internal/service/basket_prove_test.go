//go:build prove

package service_test

import (
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
)

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
	if left != items*1_000_000-units {
		t.Errorf("%d are left after %d of %d were sold", left, units, items*1_000_000)
	}
}
