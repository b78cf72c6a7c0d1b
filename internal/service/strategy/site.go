package strategy

import (
	"context"
	"errors"
	"slices"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Lab is what an experiment does inside of a replica. A replica that sells has
// none.
type Lab interface {
	// Record is the lock of a strategy, with its leases written down. Where it is
	// another Locker, it has a method Unwrap that returns the lock itself.
	Record(strategy string, l lock.Locker) lock.Locker
	// Between is called where a strategy has read the stock of a goods and not
	// written it yet; one that has the database compare has written it then, and
	// not committed. It returns when it likes, or never. What follows is done
	// under the context that it returns.
	Between(ctx context.Context, strategy string, goodsID int64) context.Context
}

// site is where a strategy works: its store, and in the lab what happens between
// its read and its write.
type site struct {
	*repo.Store
	lab Lab // mostly nil
}

func (d Deps) site() site { return site{d.Store, d.Lab} }

func (s site) between(ctx context.Context, goodsID int64) context.Context {
	if s.lab == nil {
		return ctx
	}
	return s.lab.Between(ctx, s.Strategy(), goodsID)
}

// errNothingSold rolls back a transaction in which everybody was refused; it never
// leaves this package.
var errNothingSold = errors.New("everybody was refused")

// sellInTx sells in one transaction. Where that refuses everybody, it is rolled
// back: a refusal leaves nothing behind, and waits for no disk.
func (s site) sellInTx(ctx context.Context, goodsID int64, sell func(*repo.Tx) ([]stock.Outcome, error)) ([]stock.Outcome, error) {
	return s.sellIn(ctx, goodsID, s.InTx, sell)
}

// transact runs a function in a transaction: Store.InTx, or Store.InTxOnce.
type transact func(ctx context.Context, do func(*repo.Tx) error) error

// sellIn waits for the item's turn before the transaction takes a connection.
func (s site) sellIn(ctx context.Context, goodsID int64, transact transact, sell func(*repo.Tx) ([]stock.Outcome, error)) (outcomes []stock.Outcome, err error) {
	end, err := s.Turn(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	defer end()
	err = transact(ctx, func(tx *repo.Tx) error {
		outcomes, err = sell(tx)
		if err == nil && !slices.ContainsFunc(outcomes, isSold) {
			err = errNothingSold
		}
		return err
	})
	if err != nil && !errors.Is(err, errNothingSold) {
		return nil, err
	}
	return outcomes, nil
}

func isSold(o stock.Outcome) bool { return o.Refused == nil }

func (s site) record(l lock.Locker) lock.Locker {
	if s.lab == nil {
		return l
	}
	return s.lab.Record(s.Strategy(), l)
}

// underneath is the lock itself, whether it is recorded or not.
func underneath(l lock.Locker) lock.Locker {
	if recorded, is := l.(interface{ Unwrap() lock.Locker }); is {
		return recorded.Unwrap()
	}
	return l
}
