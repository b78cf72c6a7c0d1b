package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/process"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

func mutexInTx() Entry {
	return Entry{
		Name:    "mutex-in-tx",
		Family:  Process,
		Summary: "the mutex is taken inside the transaction and given back before its commit; the next holder reads the old stock",
		Claims:  Claims{SurvivesCrash: true},
		Damage:  LostUpdates,
		Caveats: []Caveat{{
			Database: repo.SQLite,
			Hides:    true,
			Words: "SQLite lets one transaction write at a time, from its begin to its commit: " +
				"the gap between unlock and commit does not exist there",
		}},
		New: func(d Deps) Strategy {
			return inTx{newGuarded(d, process.New())}
		},
	}
}

// inTx locks in the wrong place: a synchronized method inside a transaction.
type inTx struct{ guarded }

func (s inTx) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return whileRowChanges(func() ([]stock.Outcome, error) {
		return s.store.sellInTx(ctx, goodsID, func(tx *repo.Tx) ([]stock.Outcome, error) {
			locked := s.guarded
			locked.sell = s.sellIn(tx)
			return locked.Deduct(ctx, goodsID, batch) // it unlocks before the commit, that is the mistake
		})
	})
}

// sellIn sells in a transaction that is open already.
func (s inTx) sellIn(tx *repo.Tx) sell {
	return func(ctx context.Context, _ lock.Lease, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
		read, err := tx.Goods(ctx, goodsID)
		if err != nil {
			return nil, err
		}
		s.store.between(ctx, goodsID)
		return plan{read: read, batch: batch}.sell(ctx, tx, setStock)
	}
}
