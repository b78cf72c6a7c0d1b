package strategy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// Every strategy is one of two shapes: it reads the stock, compares and writes
// it back (checkThenWrite), or it writes and has the database compare (taker).
// What differs is one statement, and who may be in the middle of it at the same
// time.

// read reads the row. A strategy that excludes others reads it settled: the commit
// of the last holder may be unanswered, and still happen.
type read func(ctx context.Context, goodsID int64) (stock.Goods, error)

// write changes the row as the last statement of a transaction: units are to
// be taken from what was read.
type write func(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error

// setStock writes back what was computed from the read.
func setStock(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error {
	return tx.SetStock(ctx, read, read.Stock-units)
}

// subtract lets the database compute, and does not compare again.
func subtract(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error {
	return tx.Subtract(ctx, read, units)
}

// checkThenWrite reads the stock, compares, and writes in a transaction of its
// own. Between the read and the write the same strategy can sell as well, unless the
// caller holds a lock that keeps it from that; the lock's token, or 0, goes into the
// ledger. Where anything else has changed the row in between, the batch is decided
// anew, with the row locked before it is read: that is noticed by the write of
// whichever purchase meets it, and lost by none.
func checkThenWrite(ctx context.Context, store site, read read, goodsID int64, batch []stock.Purchase, token uint64, write write) ([]stock.Outcome, error) {
	goods, err := read(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	plan := plan{read: goods, batch: batch, token: token}
	if refused, none := plan.noneFits(); none {
		return answer(refused, nil), nil
	}
	work := store.between(ctx, goodsID)
	outcomes, err := store.sellIn(work, goodsID, store.InTxOnce, func(tx *repo.Tx) ([]stock.Outcome, error) { return plan.sell(work, tx, write) })
	if !errors.Is(err, repo.ErrRowChanged) {
		return outcomes, err
	}
	return whileRowChanges(func() ([]stock.Outcome, error) { return plan.sellLocked(ctx, store, write) })
}

// rowChanges bounds how often a batch is decided anew because its item was changed
// in the middle of it.
const rowChanges = 5

func whileRowChanges(sell func() ([]stock.Outcome, error)) (outcomes []stock.Outcome, err error) {
	for range rowChanges {
		outcomes, err = sell()
		if !errors.Is(err, repo.ErrRowChanged) {
			return outcomes, err
		}
	}
	return nil, err
}

// noToken is the token of a sale that no lock guards.
const noToken = 0

// plan is a batch and the stock that it is to be sold from, as it was read.
type plan struct {
	read  stock.Goods
	batch []stock.Purchase
	token uint64 // of the lock that guards the sale, or 0
}

// noneFits tells whether there is not enough for any of the batch, whoever buys.
func (p plan) noneFits() (refused []error, none bool) {
	refused = p.read.Allot(p.batch, stock.Limit{})
	return refused, !slices.Contains(refused, nil)
}

// sell counts the buyers in where the goods has a limit, appends what fits to the
// ledger, and then writes the row.
func (p plan) sell(ctx context.Context, tx *repo.Tx, write write) ([]stock.Outcome, error) {
	limit, err := tx.CountIn(ctx, p.read.ID, p.read.PerUser, p.batch)
	if err != nil {
		return nil, err
	}
	return p.sellUnder(ctx, tx, limit, write)
}

// sellLocked reads the row anew under its lock, and sells from that. Buyers are
// counted in before, under the limit of an earlier read, as everywhere; the ledger is
// written after. Two copies of one request may therefore wait for each other, and the
// one that the database rolls back is run again.
func (p plan) sellLocked(ctx context.Context, store site, write write) ([]stock.Outcome, error) {
	before, err := store.Goods(ctx, p.read.ID)
	if err != nil {
		return nil, err
	}
	return store.sellInTx(ctx, before.ID, func(tx *repo.Tx) ([]stock.Outcome, error) {
		limit, err := tx.CountIn(ctx, before.ID, before.PerUser, p.batch)
		if err != nil {
			return nil, err
		}
		locked := p
		if locked.read, err = tx.GoodsForUpdate(ctx, before.ID); err != nil {
			return nil, err
		}
		return locked.sellUnder(store.between(ctx, before.ID), tx, limit, write)
	})
}

// sellUnder is sell for buyers who are counted in.
func (p plan) sellUnder(ctx context.Context, tx *repo.Tx, limit stock.Limit, write write) ([]stock.Outcome, error) {
	refused := p.read.Allot(p.batch, limit)
	picked, rest := pick(p.batch, refused)
	if len(picked) == 0 {
		return answer(refused, nil), nil
	}
	if err := tx.CountOut(ctx, p.read.ID, rest); err != nil {
		return nil, err
	}
	units := stock.Units(picked)
	left := p.read.Stock - units
	orders, err := tx.Append(ctx, repo.Sale{GoodsID: p.read.ID, Batch: picked, Token: p.token, Left: &left})
	if err != nil {
		return nil, err
	}
	if err := write(ctx, tx, p.read, units); err != nil {
		return nil, err
	}
	return answer(refused, orders), nil
}

// taker is a strategy that has the database compare: it appends the whole batch
// to the ledger and takes its units off the row, and where they are not there, it
// is all rolled back and what fits is offered again.
type taker struct {
	store site
	take  take
	// short has the goods of which somebody was refused of late. They are looked
	// at before they are written to: once an item is sold out, a refusal costs
	// one read and no transaction.
	short *sync.Map
	// limits has the limit of one buyer of those goods that had one at the last look.
	// Where that is another one by now, the row tells.
	limits *sync.Map
}

// take takes units off the row in a transaction, where there are enough, and
// tells what is left.
type take func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (left int64, enough bool, err error)

func newTaker(store site, take take) taker {
	return taker{store: store, take: take, short: new(sync.Map), limits: new(sync.Map)}
}

// errDoesNotFit rolls back the transaction of a batch that asks for more than
// there is; it never leaves this package.
var errDoesNotFit = errors.New("the batch does not fit")

// offers bounds how often a batch is offered that did not fit as a whole. Each
// time the stock must have changed in between, so that the bound is met only
// by a batch that others overtake again and again.
const offers = 20

func (t taker) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	refused := make([]error, len(batch)) // nobody
	_, look := t.short.Load(goodsID)
	for range offers {
		if look {
			var err error
			if refused, err = t.look(ctx, goodsID, batch); err != nil {
				return nil, err
			}
		}
		picked, _ := pick(batch, refused)
		if len(picked) == 0 {
			return answer(refused, nil), nil
		}
		sold, err := t.offer(ctx, goodsID, picked, len(picked) < len(batch))
		if err == nil {
			return merge(refused, sold), nil
		}
		if !errors.Is(err, errDoesNotFit) && !errors.Is(err, repo.ErrRowChanged) {
			return nil, err
		}
		look = true
	}
	return nil, fmt.Errorf("%w: the stock of goods %d changed %d times while a batch was offered", stock.ErrBusy, goodsID, offers)
}

// look finds out what of a batch fits, and which limit to sell under.
func (t taker) look(ctx context.Context, goodsID int64, batch []stock.Purchase) (refused []error, err error) {
	goods, err := t.store.Goods(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	limit, err := t.store.Has(ctx, goodsID, goods.PerUser, batch)
	if err != nil {
		return nil, err
	}
	refused = goods.Allot(batch, limit)
	t.remember(goods, refused)
	return refused, nil
}

func (t taker) remember(goods stock.Goods, refused []error) {
	if goods.PerUser > 0 {
		t.limits.Store(goods.ID, goods.PerUser)
	} else {
		t.limits.Delete(goods.ID)
	}
	if slices.ContainsFunc(refused, isShort) {
		t.short.Store(goods.ID, true)
	} else {
		t.short.Delete(goods.ID)
	}
}

func isShort(rejected error) bool {
	return errors.Is(rejected, stock.ErrInsufficientStock) || errors.Is(rejected, stock.ErrAllocated)
}

// limit is what a buyer may have, as far as this replica knows.
func (t taker) limit(goodsID int64) int64 {
	perUser, _ := t.limits.Load(goodsID)
	units, _ := perUser.(int64) // 0 where there is none
	return units
}

// offer sells a batch, or what of it is within the limits of its buyers. Where it
// is a part of a larger one, all of it or nothing: what it would leave may be for
// another part.
func (t taker) offer(ctx context.Context, goodsID int64, batch []stock.Purchase, part bool) ([]stock.Outcome, error) {
	return t.store.sellInTx(ctx, goodsID, func(tx *repo.Tx) ([]stock.Outcome, error) {
		limit, err := tx.CountIn(ctx, goodsID, t.limit(goodsID), batch)
		if err != nil {
			return nil, err
		}
		refused := stock.Allot(stock.Units(batch), batch, limit)
		picked, rest := pick(batch, refused)
		switch {
		case part && len(rest) > 0:
			return nil, errDoesNotFit
		case len(picked) == 0:
			return answer(refused, nil), tx.ConfirmLimit(ctx, goodsID)
		}
		if err := tx.CountOut(ctx, goodsID, rest); err != nil {
			return nil, err
		}
		orders, err := t.sell(ctx, tx, goodsID, picked)
		if err != nil {
			return nil, err
		}
		t.store.between(ctx, goodsID)
		return answer(refused, orders), nil
	})
}

func (t taker) sell(ctx context.Context, tx *repo.Tx, goodsID int64, picked []stock.Purchase) ([]stock.Order, error) {
	if slices.ContainsFunc(picked, func(p stock.Purchase) bool { return p.Keyed }) {
		return t.takeThenAppend(ctx, tx, goodsID, picked)
	}
	return t.appendThenTake(ctx, tx, goodsID, picked)
}

// appendThenTake takes the row last, so that it is locked for one statement and
// the commit.
func (t taker) appendThenTake(ctx context.Context, tx *repo.Tx, goodsID int64, picked []stock.Purchase) ([]stock.Order, error) {
	orders, err := tx.Append(ctx, repo.Sale{GoodsID: goodsID, Batch: picked})
	if err != nil {
		return nil, err
	}
	left, err := t.takeAll(ctx, tx, goodsID, picked)
	if err != nil {
		return nil, err
	}
	repo.Leave(orders, left)
	return orders, nil
}

// takeThenAppend is for purchases that may be asked for again: the ledger must
// know what they left, and a second statement to tell it would lock the row for
// as long, and cost more.
func (t taker) takeThenAppend(ctx context.Context, tx *repo.Tx, goodsID int64, picked []stock.Purchase) ([]stock.Order, error) {
	left, err := t.takeAll(ctx, tx, goodsID, picked)
	if err != nil {
		return nil, err
	}
	return tx.Append(ctx, repo.Sale{GoodsID: goodsID, Batch: picked, Left: &left})
}

func (t taker) takeAll(ctx context.Context, tx *repo.Tx, goodsID int64, picked []stock.Purchase) (left int64, err error) {
	left, enough, err := t.take(ctx, tx, goodsID, stock.Units(picked))
	if err == nil && !enough {
		err = errDoesNotFit
	}
	return left, err
}

// pick parts a batch into what is not refused and what is.
func pick(batch []stock.Purchase, refused []error) (picked, rest []stock.Purchase) {
	picked = make([]stock.Purchase, 0, len(batch))
	for i, p := range batch {
		if refused[i] == nil {
			picked = append(picked, p)
		} else {
			rest = append(rest, p)
		}
	}
	return picked, rest
}

// answer pairs a batch with the orders of those purchases that were not refused.
func answer(refused []error, orders []stock.Order) []stock.Outcome {
	outcomes := make([]stock.Outcome, len(refused))
	for i, reason := range refused {
		if reason != nil {
			outcomes[i].Refused = reason
			continue
		}
		outcomes[i].Order, orders = orders[0], orders[1:]
	}
	return outcomes
}

// merge pairs a batch with the outcomes of those purchases that were not refused.
func merge(refused []error, of []stock.Outcome) []stock.Outcome {
	outcomes := make([]stock.Outcome, len(refused))
	for i, reason := range refused {
		if reason != nil {
			outcomes[i].Refused = reason
			continue
		}
		outcomes[i], of = of[0], of[1:]
	}
	return outcomes
}
