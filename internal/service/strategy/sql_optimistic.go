package strategy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

func sqlOptimistic() Entry {
	return Entry{
		Name:    "sql-optimistic",
		Family:  SQL,
		Summary: "read the version, write where it still holds, else try again after a pause; a bounded number of tries",
		Claims:  Claims{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New:     func(d Deps) Strategy { return optimistic{store: d.Store, retry: d.Retry} },
	}
}

// Retry bounds the tries of an optimistic writer.
type Retry struct {
	// Tries is the most that one batch is tried, at least 1.
	Tries int
	// First bounds the pause after the first lost race, Max every pause; in
	// between, the bound doubles with each race lost. The pause itself is
	// random, so that those who collided once do not collide again.
	First, Max time.Duration
}

type optimistic struct {
	store *repo.Store
	retry Retry
}

// errStale rolls back a transaction whose read is out of date.
var errStale = errors.New("the row has changed since it was read")

func (s optimistic) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	for lost := range s.retry.Tries {
		outcomes, err := checkThenWrite(ctx, s.store, goodsID, batch, setStockIfUnchanged)
		if !errors.Is(err, errStale) {
			return outcomes, err
		}
		if err := sleep(ctx, s.retry.pause(lost)); err != nil {
			return nil, fmt.Errorf("retry deduction of goods %d: %w", goodsID, err)
		}
	}
	return nil, fmt.Errorf("%w: goods %d changed under each of %d tries", stock.ErrBusy, goodsID, s.retry.Tries)
}

func setStockIfUnchanged(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error {
	was, err := tx.SetStockIfVersion(ctx, read.ID, read.Stock-units, read.Version)
	if err == nil && !was {
		err = errStale
	}
	return err
}

// pause is a random time below a bound that doubles with each race lost.
func (r Retry) pause(lost int) time.Duration {
	bound := r.Max
	if doubled := r.First << min(lost, 30); doubled < bound {
		bound = doubled
	}
	return rand.N(bound + 1)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
