package strategy

import (
	"context"

	"github.com/stockd/stockd/internal/lock"
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
			return inTx{newGuarded(d, lock.NewProcess())}
		},
	}
}

// inTx locks in the wrong place: a synchronized method inside a transaction.
type inTx struct{ guarded }

func (s inTx) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) (outcomes []stock.Outcome, err error) {
	err = s.store.InTx(ctx, func(tx *repo.Tx) error {
		lease, err := s.acquire(ctx, goodsID)
		if err != nil {
			return err
		}
		defer s.release(ctx, lease) // before the commit, that is the mistake
		read, err := tx.Goods(ctx, goodsID)
		if err != nil {
			return err
		}
		s.store.between(ctx, goodsID)
		outcomes, err = compare(read, batch).sell(ctx, tx, setStock)
		return err
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}
