package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/stock"
)

func naive() Entry {
	return Entry{
		Name:       "naive",
		Family:     None,
		Summary:    "read the stock, compare, write back what is left; two requests that read the same stock both sell it",
		Guarantees: Guarantees{SurvivesCrash: true},
		Damage:     LostUpdates,
		New:        func(d Deps) Strategy { return unguarded{store: d.site(), write: setStock} },
	}
}

// unguarded checks and writes without excluding other writers in between.
type unguarded struct {
	store site
	write writeRow
}

func (u unguarded) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return readCheckWrite(ctx, u.store, u.store.Goods, goodsID, batch, noToken, u.write)
}

func naiveDecrement() Entry {
	return Entry{
		Name:       "naive-decrement",
		Family:     None,
		Summary:    "read the stock, compare, then let the database subtract; no update is lost, and the stock goes below zero",
		Guarantees: Guarantees{SurvivesCrash: true},
		Damage:     BelowZero,
		New:        func(d Deps) Strategy { return unguarded{store: d.site(), write: subtract} },
	}
}
