package strategy

import (
	"context"
	"errors"
	"slices"

	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// A strategy has one of two shapes: it reads the stock, compares and writes it back
// (readCheckWrite), or it writes and has the database compare (conditional). What differs
// is one statement, and what may happen in between.

// readRow reads the row. A strategy that excludes other writers reads it settled: the
// commit of the last holder may be unanswered, and still happen.
type readRow func(ctx context.Context, goodsID int64) (stock.Goods, error)

// writeRow changes the row as the last statement of a transaction: units are taken from
// what was read.
type writeRow func(ctx context.Context, tx *repo.Tx, row stock.Goods, units int64) error

// setStock writes back what was computed from the read.
func setStock(ctx context.Context, tx *repo.Tx, row stock.Goods, units int64) error {
	return tx.SetStock(ctx, row, row.Stock-units)
}

// subtract lets the database compute, and does not compare again.
func subtract(ctx context.Context, tx *repo.Tx, row stock.Goods, units int64) error {
	return tx.Subtract(ctx, row, units)
}

// readCheckWrite reads the stock, compares, and writes in a transaction of its own.
// Between the read and the write the same strategy can sell as well, unless the caller
// holds a lock against that; the lock's token, or 0, goes into the ledger. Where anything
// else has changed the row in between, the batch is decided anew, with the row locked
// before it is read: no sale is lost, and the one that notices pays for it.
func readCheckWrite(ctx context.Context, store site, read readRow, goodsID int64, batch []stock.Purchase, token uint64, write writeRow) ([]stock.Outcome, error) {
	row, err := read(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	p := plan{row: row, batch: batch, token: token}
	if rejected, none := p.noneFits(); none {
		return answer(rejected, nil), nil
	}
	work := store.between(ctx, goodsID)
	outcomes, err := store.transact(work, goodsID, store.InTxOnce, func(tx *repo.Tx) ([]stock.Outcome, error) { return p.execute(work, tx, write) })
	if !errors.Is(err, repo.ErrRowChanged) {
		return outcomes, err
	}
	return whileRowChanges(func() ([]stock.Outcome, error) { return p.executeLocked(ctx, store, write) })
}

// rowChanges bounds how often a batch is decided anew because its item was changed
// in the middle of it.
const rowChanges = 5

func whileRowChanges(decide func() ([]stock.Outcome, error)) (outcomes []stock.Outcome, err error) {
	for range rowChanges {
		outcomes, err = decide()
		if !errors.Is(err, repo.ErrRowChanged) {
			return outcomes, err
		}
	}
	return nil, err
}

// noToken is the token of a sale without a lock.
const noToken = 0

// plan is a batch and the stock that it is to be sold from, as it was read.
type plan struct {
	row   stock.Goods
	batch []stock.Purchase
	token uint64 // of the lock that guards the sale, or 0
}

// noneFits reports whether there is not enough for any of the batch, whatever its buyers
// may have.
func (p plan) noneFits() (rejected []error, none bool) {
	rejected = p.row.Allot(p.batch, stock.Limit{})
	return rejected, !slices.Contains(rejected, nil)
}

// execute counts the buyers in where the item has a limit, appends what fits to the
// ledger, and then writes the row.
func (p plan) execute(ctx context.Context, tx *repo.Tx, write writeRow) ([]stock.Outcome, error) {
	limit, err := tx.CountIn(ctx, p.row.ID, p.row.PerUser, p.batch)
	if err != nil {
		return nil, err
	}
	return p.executeWithin(ctx, tx, limit, write)
}

// executeLocked reads the row anew under its lock, and sells from that. Buyers are
// counted in before, under the limit of an earlier read, as everywhere; the ledger is
// written after. Two copies of one request may therefore wait for each other, and the
// one that the database rolls back is run again.
func (p plan) executeLocked(ctx context.Context, store site, write writeRow) ([]stock.Outcome, error) {
	before, err := store.Goods(ctx, p.row.ID)
	if err != nil {
		return nil, err
	}
	return store.transact(ctx, before.ID, store.InTx, func(tx *repo.Tx) ([]stock.Outcome, error) {
		limit, err := tx.CountIn(ctx, before.ID, before.PerUser, p.batch)
		if err != nil {
			return nil, err
		}
		locked := p
		if locked.row, err = tx.GoodsForUpdate(ctx, before.ID); err != nil {
			return nil, err
		}
		return locked.executeWithin(store.between(ctx, before.ID), tx, limit, write)
	})
}

// executeWithin is execute after the buyers were counted in.
func (p plan) executeWithin(ctx context.Context, tx *repo.Tx, limit stock.Limit, write writeRow) ([]stock.Outcome, error) {
	rejected := p.row.Allot(p.batch, limit)
	picked, rest := pick(p.batch, rejected)
	if len(picked) == 0 {
		return answer(rejected, nil), nil
	}
	if err := tx.CountOut(ctx, p.row.ID, rest); err != nil {
		return nil, err
	}
	units := stock.Units(picked)
	left := p.row.Stock - units
	orders, err := tx.Append(ctx, repo.Sale{GoodsID: p.row.ID, Batch: picked, Token: p.token, Left: &left})
	if err != nil {
		return nil, err
	}
	if err := write(ctx, tx, p.row, units); err != nil {
		return nil, err
	}
	return answer(rejected, orders), nil
}

// pick parts a batch into what is not rejected and what is.
func pick(batch []stock.Purchase, rejected []error) (picked, rest []stock.Purchase) {
	picked = make([]stock.Purchase, 0, len(batch))
	for i, p := range batch {
		if rejected[i] == nil {
			picked = append(picked, p)
		} else {
			rest = append(rest, p)
		}
	}
	return picked, rest
}

// answer pairs a batch with the orders of those purchases that were not rejected.
func answer(rejected []error, orders []stock.Order) []stock.Outcome {
	sold := make([]stock.Outcome, len(orders))
	for i, o := range orders {
		sold[i].Order = o
	}
	return merge(rejected, sold)
}

// merge pairs a batch with the outcomes of those purchases that were not rejected.
func merge(rejected []error, of []stock.Outcome) []stock.Outcome {
	if len(of) == len(rejected) {
		return of
	}
	outcomes := make([]stock.Outcome, len(rejected))
	for i, reason := range rejected {
		if reason != nil {
			outcomes[i].Rejected = reason
			continue
		}
		outcomes[i], of = of[0], of[1:]
	}
	return outcomes
}

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
