package strategy

import (
	"context"
	"errors"
	"slices"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Failpoints are where the lab interferes with a replica. A replica that sells has none.
type Failpoints interface {
	// Record is the lock of a strategy, with its leases recorded. Where it is another
	// Locker, it has a method Unwrap that returns the lock itself.
	Record(strategy string, l lock.Locker) lock.Locker
	// Between is called where a strategy has read the stock of an item and not written it
	// yet; one that has the database compare has written it then, and not committed. It
	// may block, for ever. What follows is done under the context that it returns.
	Between(ctx context.Context, strategy string, goodsID int64) context.Context
}

// site is where a strategy works: its store, and the failpoint between its read and its
// write.
type site struct {
	*repo.Store
	failpoints Failpoints // mostly nil
}

func (d Deps) site() site { return site{d.Store, d.Failpoints} }

func (s site) between(ctx context.Context, goodsID int64) context.Context {
	if s.failpoints == nil {
		return ctx
	}
	return s.failpoints.Between(ctx, s.Strategy(), goodsID)
}

// errNothingSold rolls back a transaction that rejected the whole batch; it never leaves
// this package.
var errNothingSold = errors.New("the whole batch was rejected")

// begin runs a function in a transaction: Store.InTx, or Store.InTxOnce.
type begin func(ctx context.Context, do func(*repo.Tx) error) error

// transact waits for the item's turn before the transaction takes a connection. Where the
// whole batch is rejected, the transaction is rolled back: a rejection leaves nothing
// behind, and waits for no disk.
func (s site) transact(ctx context.Context, goodsID int64, inTx begin, do func(*repo.Tx) ([]stock.Outcome, error)) (outcomes []stock.Outcome, err error) {
	end, err := s.Turn(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	defer end()
	err = inTx(ctx, func(tx *repo.Tx) error {
		outcomes, err = do(tx)
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

func isSold(o stock.Outcome) bool { return o.Rejected == nil }

func (s site) record(l lock.Locker) lock.Locker {
	if s.failpoints == nil {
		return l
	}
	return s.failpoints.Record(s.Strategy(), l)
}

// unwrap is the lock itself, whether it is recorded or not.
func unwrap(l lock.Locker) lock.Locker {
	if recorded, ok := l.(interface{ Unwrap() lock.Locker }); ok {
		return recorded.Unwrap()
	}
	return l
}
