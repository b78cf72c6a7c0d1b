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
		Name:       "mutex-in-tx",
		Family:     Process,
		Summary:    "the mutex is taken inside the transaction and released before its commit; the next holder reads the old stock",
		Guarantees: Guarantees{SurvivesCrash: true},
		Damage:     LostUpdates,
		OnSQLite: Caveat{
			Hides: true,
			Words: "SQLite lets one transaction write at a time, from its begin to its commit: " +
				"the gap between unlock and commit does not exist there",
		},
		New: func(d Deps) Strategy {
			return mutexTx{newGuarded(d, process.New())}
		},
	}
}

// mutexTx locks in the wrong place: a synchronized method inside a transaction.
type mutexTx struct{ guarded }

func (s mutexTx) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return whileRowChanges(func() ([]stock.Outcome, error) {
		return s.store.transact(ctx, goodsID, s.store.InTx, func(tx *repo.Tx) ([]stock.Outcome, error) {
			return s.hold(ctx, goodsID, batch, s.within(tx)) // it unlocks before the commit: that is the mistake
		})
	})
}

// within works in a transaction that is open already.
func (s mutexTx) within(tx *repo.Tx) leaseWork {
	return func(ctx context.Context, _ lock.Lease, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
		row, err := tx.Goods(ctx, goodsID)
		if err != nil {
			return nil, err
		}
		s.store.between(ctx, goodsID)
		return plan{row: row, batch: batch}.execute(ctx, tx, setStock)
	}
}
