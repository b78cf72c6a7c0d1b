package strategy

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// allocation is where a strategy keeps units in SQL outside of an item's row.
type allocation struct {
	// read reads the item with the allocation's units in its stock.
	read readRow
	// take takes units off one part of the allocation, so that batches seldom wait for each
	// other. errDoesNotFit: no part can serve so many.
	take writeRow
	// refill is called before a part is tried, and fills the allocation in a transaction of its
	// own where that is due. Not has: no part will serve so many. It may be nil: then gather
	// fills.
	refill func(ctx context.Context, goodsID, units int64) (has bool, err error)
	// gather locks the row and the whole allocation, for a batch of so many units that no
	// part could serve. It returns the item with all that may be sold in its stock, and
	// what writes the rest of that back. It is called for the first sale, at the tail, and
	// after a restock.
	gather func(ctx context.Context, tx *repo.Tx, goodsID, units int64) (row stock.Goods, spread writeRow, err error)
}

// allocated sells from an allocation: from a part of it as by the database's comparison,
// and what no part can serve from all of it.
type allocated struct {
	allocation
	store site
	left  *gauges
}

// Deduct has an estimate of what is left before it writes, so that the row of the ledger
// contains it at once and nothing is locked for longer. A rejection follows a read of the
// stock, and costs no transaction.
func (a allocated) Deduct(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return whileRowChanges(func() ([]stock.Outcome, error) {
		p, err := a.estimate(ctx, goodsID, batch)
		if err != nil {
			return nil, err
		}
		if rejected, none := p.noneFits(); none {
			return answer(rejected, nil), nil
		}
		outcomes, err := a.fromRefilled(ctx, p)
		if err == nil {
			return outcomes, nil
		}
		a.left.doubt(goodsID)
		if errors.Is(err, errDoesNotFit) {
			return a.fromAll(ctx, p)
		}
		return nil, err
	})
}

// estimate plans a batch by what is left as far as this replica knows; it reads the stock
// where that is unknown, or where not all would fit.
func (a allocated) estimate(ctx context.Context, goodsID int64, batch []stock.Purchase) (plan, error) {
	if row, ok := a.left.spend(goodsID, stock.Units(batch)); ok {
		return plan{row: row, batch: batch}, nil
	}
	row, err := a.read(ctx, goodsID)
	if err != nil {
		return plan{}, err
	}
	picked, _ := pick(batch, row.Allot(batch, stock.Limit{}))
	left := row
	left.Stock -= stock.Units(picked)
	a.left.saw(left)
	return plan{row: row, batch: batch}, nil
}

// fromRefilled is fromPart of an allocation that is filled before. A part may be sold between the
// two, and be filled once more.
func (a allocated) fromRefilled(ctx context.Context, p plan) (outcomes []stock.Outcome, err error) {
	if a.refill == nil {
		return a.fromPart(ctx, p)
	}
	for range 2 {
		switch has, err := a.refill(ctx, p.row.ID, stock.Units(p.batch)); {
		case err != nil:
			return nil, err
		case !has:
			return nil, errDoesNotFit
		}
		if outcomes, err = a.fromPart(ctx, p); !errors.Is(err, errDoesNotFit) {
			break
		}
	}
	return outcomes, err
}

func (a allocated) fromPart(ctx context.Context, p plan) ([]stock.Outcome, error) {
	return a.store.transact(ctx, p.row.ID, a.store.InTx, func(tx *repo.Tx) ([]stock.Outcome, error) {
		outcomes, err := p.execute(ctx, tx, a.take)
		switch {
		case err != nil:
			return nil, err
		case !slices.ContainsFunc(outcomes, isSold):
			return outcomes, tx.ConfirmLimit(ctx, p.row.ID)
		}
		a.store.between(ctx, p.row.ID)
		return outcomes, nil
	})
}

// fromAll serves the batch from all there is. Buyers are counted in before anything is
// locked, as everywhere.
func (a allocated) fromAll(ctx context.Context, p plan) ([]stock.Outcome, error) {
	return a.store.transact(ctx, p.row.ID, a.store.InTx, func(tx *repo.Tx) ([]stock.Outcome, error) {
		limit, err := tx.CountIn(ctx, p.row.ID, p.row.PerUser, p.batch)
		if err != nil {
			return nil, err
		}
		row, spread, err := a.gather(ctx, tx, p.row.ID, stock.Units(p.batch))
		if err != nil {
			return nil, err
		}
		all := p
		all.row = row
		outcomes, err := all.executeWithin(ctx, tx, limit, spread)
		if err == nil && slices.ContainsFunc(outcomes, isSold) {
			a.store.between(ctx, p.row.ID)
		}
		return outcomes, err
	})
}

// readEvery is how old the estimate of what is left may become while an item is sold.
// Sales of other replicas and restocks are not in it until then.
const readEvery = 50 * time.Millisecond

// gauges estimate what is left of each item from the last read and from what this replica
// has sold since. Answers contain the estimate; the database decides whether there is
// enough.
type gauges struct{ byItem sync.Map }

// spend takes units off the estimate and returns the item as it was before. Not ok: the
// estimate is too old or too low, and the row is to be read.
func (g *gauges) spend(goodsID, units int64) (before stock.Goods, ok bool) {
	found, ok := g.byItem.Load(goodsID)
	if !ok {
		return stock.Goods{}, false
	}
	return found.(*gauge).spend(units) //nolint:forcetypeassert // nothing else is stored
}

func (g *gauges) saw(left stock.Goods) {
	g.byItem.Store(left.ID, &gauge{left: left, until: time.Now().Add(readEvery)})
}

func (g *gauges) doubt(goodsID int64) { g.byItem.Delete(goodsID) }

type gauge struct {
	mu    sync.Mutex
	left  stock.Goods
	until time.Time
}

func (g *gauge) spend(units int64) (before stock.Goods, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if g.left.Stock < units {
		return stock.Goods{}, false
	}
	if now.After(g.until) {
		g.until = now.Add(readEvery) // one purchase reads, and meanwhile the others go on
		return stock.Goods{}, false
	}
	before = g.left
	g.left.Stock -= units
	return before, true
}
