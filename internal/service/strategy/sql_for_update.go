package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/repo"
)

func sqlForUpdate() Entry {
	return Entry{
		Name:         "sql-for-update",
		Family:       SQL,
		Summary:      "SELECT … FOR UPDATE, compare, write, in one transaction; each waiting request holds a connection",
		SeveralItems: true,
		Guarantees:   Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		OnSQLite: Caveat{
			Words: "SQLite has no row locks: the lock of the whole database stands in for FOR UPDATE",
		},
		New: func(d Deps) Strategy { return newConditional(d.site(), takeLocked) },
	}
}

func takeLocked(ctx context.Context, tx *repo.Tx, goodsID, units int64) (left int64, err error) {
	goods, err := tx.GoodsForUpdate(ctx, goodsID)
	if err != nil {
		return 0, err
	}
	left = goods.Stock - units
	if left < 0 {
		return 0, errDoesNotFit
	}
	return left, tx.SetStock(ctx, goods, left)
}
