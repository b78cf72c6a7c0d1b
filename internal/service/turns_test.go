package service_test

import (
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/servers"
)

// TestStrategiesInTurnsMoveUnitsSeldom has two strategies sell one item at the same time.
// A strategy that keeps an allocation takes half of what another one sells: the moves grow
// with the logarithm of the units, and not with the purchases.
func TestStrategiesInTurnsMoveUnitsSeldom(t *testing.T) { sellInTurns(t, 2_000) }

func sellInTurns(t *testing.T, units int64) {
	t.Helper()
	const buyers = 8
	s := openAll(t, lab.Database(t, servers.MariaDB))
	for i, pair := range [][2]string{
		{"sql-conditional", "sql-conditional"},
		{"sql-bucket", "sql-bucket"},
		{"redis-stock", "redis-stock"},
		{"sql-conditional", "sql-bucket"},
		{"sql-conditional", "redis-stock"},
		{"sql-bucket", "redis-stock"},
	} {
		t.Run(pair[0]+" "+pair[1], func(t *testing.T) {
			goods := int64(i + 1)
			s.create(t, goods, units)
			var sold, fromRow atomic.Int64
			var buying sync.WaitGroup
			begun := time.Now()
			for buyer := range buyers {
				name := pair[buyer%2]
				buying.Go(func() {
					n := s.buysOut(t, buyer/2%2, name, goods)
					sold.Add(n)
					if name == "sql-conditional" {
						fromRow.Add(n)
					}
				})
			}
			buying.Wait()
			took := time.Since(begun)
			item, err := s.inventory.Goods(t.Context(), goods)
			if err != nil {
				t.Fatal(err)
			}
			// Each sale from the row, and each move to or from it, makes a version.
			moves, most := item.Version-fromRow.Load(), int64(8*math.Log2(float64(units)))
			if sold.Load() != units || moves > most {
				t.Errorf("sold %d of %d with %d moves, want all with at most %d", sold.Load(), units, moves, most)
			}
			t.Logf("%.0f sales/s, %d of %d from the row, %d moves", float64(units)/took.Seconds(), fromRow.Load(), units, moves)
			s.settles(t, goods, units)
		})
	}
}
