package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/repo"
)

func sqlConditional() Entry {
	return Entry{
		Name:         "sql-conditional",
		Family:       SQL,
		Summary:      "UPDATE … SET stock = stock - n WHERE goods_id = ? AND stock >= n: the database compares and writes in one statement",
		SeveralItems: true,
		Guarantees:   Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New:          func(d Deps) Strategy { return newConditional(d.site(), takeIfEnough) },
	}
}

func takeIfEnough(ctx context.Context, tx *repo.Tx, goodsID, units int64) (left int64, err error) {
	left, enough, err := tx.SubtractIfEnough(ctx, goodsID, units)
	if err == nil && !enough {
		err = errDoesNotFit
	}
	return left, err
}
