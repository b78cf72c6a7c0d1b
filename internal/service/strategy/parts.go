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

// write changes the row as the last statement of a transaction: units are to
// be taken from what was read.
type write func(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error

// setStock writes back what was computed from the read.
func setStock(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error {
	return tx.SetStock(ctx, read.ID, read.Stock-units)
}

// subtract lets the database compute, and does not compare again.
func subtract(ctx context.Context, tx *repo.Tx, read stock.Goods, units int64) error {
	return tx.Subtract(ctx, read.ID, units)
}

// checkThenWrite reads the stock, compares, and writes in a transaction of its
// own. Between the read and the write anything can happen, unless the caller
// holds a lock that keeps it from happening; the lock's token, or 0, goes into
// the ledger.
func checkThenWrite(ctx context.Context, store site, goodsID int64, batch []stock.Purchase, token uint64, write write) (outcomes []stock.Outcome, err error) {
	read, err := store.Goods(ctx, goodsID)
	if err != nil {
		return nil, err
	}
	plan := compare(read, batch)
	plan.token = token
	if len(plan.picked) == 0 {
		return answer(plan.fits, nil), nil
	}
	ctx = store.between(ctx, goodsID)
	err = store.InTx(ctx, func(tx *repo.Tx) error {
		outcomes, err = plan.sell(ctx, tx, write)
		return err
	})
	if err != nil {
		return nil, err
	}
	return outcomes, nil
}

// noToken is the token of a sale that no lock guards.
const noToken = 0

// plan is what of a batch fits into the stock that was read.
type plan struct {
	read   stock.Goods
	fits   []bool
	picked []stock.Purchase
	token  uint64 // of the lock that guards the sale, or 0
}

func compare(read stock.Goods, batch []stock.Purchase) plan {
	fits := stock.Allot(read.Stock, batch)
	return plan{read: read, fits: fits, picked: pick(batch, fits)}
}

// sell appends what fits to the ledger, and then writes the row.
func (p plan) sell(ctx context.Context, tx *repo.Tx, write write) ([]stock.Outcome, error) {
	if len(p.picked) == 0 {
		return answer(p.fits, nil), nil
	}
	units := stock.Units(p.picked)
	left := p.read.Stock - units
	orders, err := tx.Append(ctx, repo.Sale{GoodsID: p.read.ID, Batch: p.picked, Token: p.token, Left: &left})
	if err != nil {
		return nil, err
	}
	if err := write(ctx, tx, p.read, units); err != nil {
		return nil, err
	}
	return answer(p.fits, orders), nil
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
}

// take takes units off the row in a transaction, where there are enough, and
// tells what is left.
type take func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (left int64, enough bool, err error)

func newTaker(store site, take take) taker {
	return taker{store: store, take: take, short: new(sync.Map)}
}

// errDoesNotFit rolls back the transaction of a batch that asks for more than
// there is; it never leaves this package.
var errDoesNotFit = errors.New("the batch does not fit")

// offers bounds how often a batch is offered that did not fit as a whole. Each
// time the stock must have changed in between, so that the bound is met only
// by a batch that others overtake again and again.
const offers = 20

func (t taker) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	fits := stock.Allot(stock.Units(batch), batch) // all of it
	_, look := t.short.Load(goodsID)
	for range offers {
		if look {
			goods, err := t.store.Goods(ctx, goodsID)
			if err != nil {
				return nil, err
			}
			fits = stock.Allot(goods.Stock, batch)
			t.remember(goodsID, fits)
		}
		picked := pick(batch, fits)
		if len(picked) == 0 {
			return answer(fits, nil), nil
		}
		orders, err := t.offer(ctx, goodsID, picked)
		if err == nil {
			return answer(fits, orders), nil
		}
		if !errors.Is(err, errDoesNotFit) {
			return nil, err
		}
		look = true
	}
	return nil, fmt.Errorf("%w: the stock of goods %d changed %d times while a batch was offered", stock.ErrBusy, goodsID, offers)
}

func (t taker) remember(goodsID int64, fits []bool) {
	if slices.Contains(fits, false) {
		t.short.Store(goodsID, true)
	} else {
		t.short.Delete(goodsID)
	}
}

func (t taker) offer(ctx context.Context, goodsID int64, picked []stock.Purchase) (orders []stock.Order, err error) {
	sell := t.appendThenTake
	if slices.ContainsFunc(picked, func(p stock.Purchase) bool { return p.Keyed }) {
		sell = t.takeThenAppend
	}
	err = t.store.InTx(ctx, func(tx *repo.Tx) error {
		orders, err = sell(ctx, tx, goodsID, picked)
		if err == nil {
			t.store.between(ctx, goodsID)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return orders, nil
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

// pick is the part of the batch that fits.
func pick(batch []stock.Purchase, fits []bool) []stock.Purchase {
	picked := make([]stock.Purchase, 0, len(batch))
	for i, p := range batch {
		if fits[i] {
			picked = append(picked, p)
		}
	}
	return picked
}

// answer pairs the batch with the orders of those purchases that fit.
func answer(fits []bool, orders []stock.Order) []stock.Outcome {
	outcomes := make([]stock.Outcome, len(fits))
	for i, fit := range fits {
		if !fit {
			outcomes[i].Refused = stock.ErrInsufficientStock
			continue
		}
		outcomes[i].Order, orders = orders[0], orders[1:]
	}
	return outcomes
}
