package strategy

import (
	"sync"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// lookEvery is how old the estimate of what is left may become while a goods is
// sold. Sales of other replicas and restocks are not in it until then.
const lookEvery = 50 * time.Millisecond

// gauges estimate what is left of each goods from the last look at it and from
// what this replica has sold since. It is what buyers are told; whether there is
// enough for them is for the database to say.
type gauges struct{ byGoods sync.Map }

// spend takes units off the estimate and returns the goods as it was before. It does
// not where the estimate is too old or too low: then it is time to look.
func (g *gauges) spend(goodsID, units int64) (before stock.Goods, ok bool) {
	found, known := g.byGoods.Load(goodsID)
	if !known {
		return stock.Goods{}, false
	}
	return found.(*gauge).spend(units) //nolint:forcetypeassert // nothing else is stored
}

// saw begins a new estimate after a look.
func (g *gauges) saw(left stock.Goods) {
	g.byGoods.Store(left.ID, &gauge{left: left, until: time.Now().Add(lookEvery)})
}

// doubt has the next purchase look.
func (g *gauges) doubt(goodsID int64) { g.byGoods.Delete(goodsID) }

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
		g.until = now.Add(lookEvery) // one looks, and meanwhile the others go on
		return stock.Goods{}, false
	}
	before = g.left
	g.left.Stock -= units
	return before, true
}
