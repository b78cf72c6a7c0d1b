package strategy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// The estimate of what is left falls with each sale of this replica. Where it is too low, or in doubt, every purchase reads the
// row; where it is old, one does, and the others go on.
func TestAnEstimateFallsWithEachSaleAndIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gauges
		spend := func(item, units, want int64, wantOK bool) {
			t.Helper()
			if row, ok := g.spend(item, units); ok != wantOK || row.Stock != want {
				t.Errorf("%d units are taken off an estimate of %d: %t, want %d: %t", units, row.Stock, ok, want, wantOK)
			}
		}
		spend(1, 1, 0, false)
		g.saw(stock.Goods{ID: 1, Stock: 10})
		g.saw(stock.Goods{ID: 2, Stock: 5})
		time.Sleep(readEvery)
		spend(1, 3, 10, true)
		spend(1, 6, 7, true)
		spend(2, 5, 5, true)
		spend(1, 2, 0, false)
		spend(1, 1, 1, true)
		g.saw(stock.Goods{ID: 1, Stock: 10})
		time.Sleep(readEvery + time.Nanosecond)
		spend(1, 1, 0, false)
		for left := int64(10); left > 5; left-- {
			spend(1, 1, left, true)
		}
		g.doubt(2)
		spend(1, 1, 5, true)
		g.doubt(1)
		spend(1, 1, 0, false)
		spend(1, 1, 0, false)
	})
}
