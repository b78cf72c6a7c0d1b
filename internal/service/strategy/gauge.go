package strategy

import (
	"sync"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// readEvery is how old the estimate of what is left may become while an item is sold.
// Sales of other replicas and restocks are not in it until then.
const readEvery = 50 * time.Millisecond

// gauges estimate what is left of each item from the last read and from what this replica
// has sold since. Answers contain the estimate; the database decides whether there is
// enough.
type gauges struct{ byItem sync.Map }

// spend takes units off the estimate and returns the item as it was before. Not ok: the
// estimate is too old or too low, and the row is to be read.
func (g *gauges) spend(goodsID, units int64) (before stock.Goods, ok bool) {
	found, ok := g.byItem.Load(goodsID)
	if !ok {
		return stock.Goods{}, false
	}
	return found.(*gauge).spend(units) //nolint:forcetypeassert // nothing else is stored
}

// saw begins a new estimate after a read.
func (g *gauges) saw(left stock.Goods) {
	g.byItem.Store(left.ID, &gauge{left: left, until: time.Now().Add(readEvery)})
}

// doubt has the next purchase read the row.
func (g *gauges) doubt(goodsID int64) { g.byItem.Delete(goodsID) }

type gauge struct {
	mu    sync.Mutex
	left  stock.Goods
	until time.Time
}

func (g *gauge) spend(units int64) (before stock.Goods, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.left.Stock < units {
		return stock.Goods{}, false
	}
	if now.After(g.until) {
		g.until = now.Add(readEvery) // one purchase reads, and meanwhile the others go on
		return stock.Goods{}, false
	}
	before = g.left
	g.left.Stock -= units
	return before, true
}
