package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/stock"
)

func naive() Entry {
	return Entry{
		Name:    "naive",
		Family:  None,
		Summary: "read the stock, compare, write back what is left; two that read the same stock both sell it",
		Claims:  Claims{SurvivesCrash: true},
		Damage:  LostUpdates,
		New:     func(d Deps) Strategy { return unguarded{store: d.site(), write: setStock} },
	}
}

// unguarded checks and writes with nothing that keeps others out in between.
type unguarded struct {
	store site
	write write
}

func (u unguarded) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return checkThenWrite(ctx, u.store, u.store.Goods, goodsID, batch, noToken, u.write)
}
