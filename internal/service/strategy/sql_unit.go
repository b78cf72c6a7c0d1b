package strategy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/background"
	"github.com/stockd/stockd/internal/stock"
)

func sqlUnit() Entry {
	return Entry{
		Name:       repo.InUnitRows,
		Family:     Hot,
		Summary:    "one row a unit, taken with SELECT … FOR UPDATE SKIP LOCKED; the pool of rows is filled from the stock's row",
		Allocates:  true,
		Guarantees: Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		OnSQLite: Caveat{
			Words: "SQLite has one writer at a time and no SKIP LOCKED: unit rows are as correct there, and slower",
		},
		New: func(d Deps) Strategy { return newUnitRows(d.site(), d.UnitRows, d.Log, d.Changes) },
	}
}

// unitRows takes each batch off as many rows as it has units, and waits for none of them. A row
// that another transaction keeps looks sold, although that one may roll back: a purchase that finds
// too few is therefore decided under the lock of the item's row, after a look that waits.
type unitRows struct {
	allocated
	most    int64
	cursors *sync.Map // by item
	// flights are shared by the purchases of this replica that find a pool sold.
	flights *singleflight.Group
	log     *slog.Logger
	changes *background.Changes // it may be nil
}

// refillWithin bounds a fill, which goes on when its callers have left: it sells nothing.
const refillWithin = 10 * time.Second

// newUnitRows makes the strategy with pools of so many rows an item, at least one.
func newUnitRows(store site, most int, log *slog.Logger, changes *background.Changes) unitRows {
	u := unitRows{
		allocated: allocated{store: store, left: new(gauges)},
		most:      min(max(1, int64(most)), repo.MaxUnitRows), cursors: new(sync.Map), flights: new(singleflight.Group), log: log, changes: changes,
	}
	u.allocation = allocation{read: store.GoodsWithUnitRows, take: u.take, refill: u.refill, gather: u.gather}
	return u
}

// cursor is where the next purchase of an item looks for free rows: a purchase does not pass rows
// that were sold before, nor meet the others of its replica. At most the pool looks sold.
type cursor struct {
	at atomic.Int64
	// asked reports that a purchase has the pool filled before it looks sold.
	asked atomic.Bool
}

func (u unitRows) cursor(goodsID int64) *cursor {
	if found, ok := u.cursors.Load(goodsID); ok {
		return found.(*cursor) //nolint:forcetypeassert // nothing else is stored
	}
	c := new(cursor)
	c.at.Store(u.most) // nothing is known to be there
	found, _ := u.cursors.LoadOrStore(goodsID, c)
	return found.(*cursor) //nolint:forcetypeassert // nothing else is stored
}

// take takes units off rows that no other transaction keeps.
func (u unitRows) take(ctx context.Context, tx *repo.Tx, row stock.Goods, units int64) error {
	at := &u.cursor(row.ID).at
	from := at.Add(units) - units
	if from >= u.most {
		return errDoesNotFit
	}
	next, taken, err := tx.TakeUnitRows(ctx, row.ID, units, from)
	if err == nil && !taken {
		next, err = u.most, errDoesNotFit
	}
	for now := at.Load(); now < next && !at.CompareAndSwap(now, next); {
		now = at.Load()
	}
	return err
}

// refill fills the pool from the row of the item where it looks sold. Where it is nearly sold one
// purchase does, and the others go on meanwhile.
func (u unitRows) refill(ctx context.Context, goodsID, units int64) (has bool, err error) {
	c := u.cursor(goodsID)
	at := c.at.Load()
	looksSold := at+units > u.most
	switch {
	case units > u.most:
		return false, nil
	case looksSold:
	case at < u.most-u.most/4 || !c.asked.CompareAndSwap(false, true):
		return true, nil
	}
	flight := u.flights.DoChan(strconv.FormatInt(goodsID, 10), func() (any, error) {
		own, cancel := context.WithTimeout(context.WithoutCancel(ctx), refillWithin)
		defer cancel()
		return u.fill(own, goodsID, c, looksSold)
	})
	select {
	case result := <-flight:
		if errors.Is(result.Err, stock.ErrUnknownOutcome) {
			return true, nil // nothing of the purchase has happened; it finds the rows filled or not
		}
		free, _ := result.Val.(int64)
		return free >= units, result.Err
	case <-ctx.Done():
		return false, fmt.Errorf("fill the unit rows of item %d: %w", goodsID, context.Cause(ctx))
	}
}

// fill fills the pool, and has the next purchase look from the first row where that has units
// again, or where nothing is left to look at behind the cursor.
func (u unitRows) fill(ctx context.Context, goodsID int64, c *cursor, looksSold bool) (free int64, err error) {
	var filled int64
	err = u.changes.Run(goodsID, stock.Change{Kind: stock.ChangeOfUnitRows}, func() error {
		return background.Guard(ctx, u.log, "fill unit rows", func() (err error) {
			free, filled, err = u.store.FillPool(ctx, goodsID, u.most)
			return err
		})
	})
	if err != nil || filled > 0 || looksSold || c.at.Load() >= u.most {
		c.asked.Store(false)
		c.at.Store(0)
	}
	return free, err
}

// gather locks the row of the item. Where that does not have enough, it waits for the unit rows
// that other transactions keep: what they leave is all there is.
func (unitRows) gather(ctx context.Context, tx *repo.Tx, goodsID, units int64) (stock.Goods, writeRow, error) {
	row, err := tx.GoodsForUpdate(ctx, goodsID)
	if err != nil {
		return stock.Goods{}, nil, err
	}
	var free []string // that this transaction keeps
	if row.Stock < units {
		if free, err = tx.LockUnitRows(ctx, goodsID); err != nil {
			return stock.Goods{}, nil, err
		}
	}
	all, err := tx.GoodsWithUnitRows(ctx, goodsID) // after the wait
	return all, func(ctx context.Context, tx *repo.Tx, _ stock.Goods, units int64) error {
		// A row below zero, which an unsafe strategy leaves, is made up for.
		fromPool := min(int64(len(free)), units-min(0, row.Stock))
		if err := tx.SellUnitRows(ctx, goodsID, free[:fromPool]); err != nil || fromPool == units {
			return err
		}
		return tx.SetStock(ctx, row, row.Stock+fromPool-units)
	}, err
}

// Recall deletes the unit rows. The next purchase makes them anew.
func (u unitRows) Recall(ctx context.Context, goodsID int64) (stock.Recalled, error) {
	returned, err := u.store.RecallUnitRows(ctx, goodsID)
	u.left.doubt(goodsID)
	return stock.Recalled{Returned: returned}, err
}
