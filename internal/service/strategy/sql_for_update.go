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
		Caveats: []Caveat{{
			Database: repo.SQLite,
			Words:    "SQLite has no row locks: the lock of the whole database stands in for FOR UPDATE",
		}},
		New: func(d Deps) Strategy { return newConditional(d.site(), takeLocked) },
	}
}

func takeLocked(ctx context.Context, tx *repo.Tx, goodsID, units int64) (left int64, enough bool, err error) {
	goods, err := tx.GoodsForUpdate(ctx, goodsID)
	if err != nil || goods.Stock < units {
		return 0, false, err
	}
	left = goods.Stock - units
	return left, true, tx.SetStock(ctx, goods, left)
}
