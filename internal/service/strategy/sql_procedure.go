package strategy

import (
	"context"
	"slices"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/stock"
)

func sqlProcedure() Entry {
	return Entry{
		Name:         "sql-procedure",
		Family:       SQL,
		Summary:      "a stored procedure decides, appends to the ledger, takes the units and commits: one round trip, none of it under the row's lock",
		Needs:        []backend.Name{backend.MySQL},
		NotOnShards:  "on which no procedure can be called",
		SeveralItems: true,
		Guarantees:   Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New:          func(d Deps) Strategy { return procedure{d.site(), newConditional(d.site(), takeIfEnough)} },
	}
}

// procedure sells inside the server. It has no failpoint: the client is not there between the
// read and the commit. A batch with a reservation, which the procedure does not know, is sold
// as sql-conditional sells: the row is the same.
type procedure struct {
	store   site
	reserve conditional
}

func (p procedure) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	if slices.ContainsFunc(batch, func(p stock.Purchase) bool { return p.Kind() == stock.Hold }) {
		return p.reserve.Deduct(ctx, goodsID, batch)
	}
	end, err := p.store.Turn(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	defer end()
	return p.store.SellByProcedure(ctx, goodsID, batch)
}

// DeductItems sells as sql-conditional does: the procedure knows one item.
func (p procedure) DeductItems(ctx context.Context, items []ItemBatch) ([][]stock.Outcome, error) {
	return p.reserve.DeductItems(ctx, items)
}
