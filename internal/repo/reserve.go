package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

// A reserve is a place of a goods whose units are promised elsewhere, such as in
// Redis, before the ledger has the orders. Its units are moved out of the row, so
// that nobody else can sell them, and they leave the place in the transaction that
// writes the orders: row, places and ledger agree at any moment.

// Place is one place of a goods.
type Place struct {
	GoodsID int64
	// Units are those that no order of the ledger has.
	Units int64
	// Epoch grows each time the place is filled, and where the limit changes.
	Epoch int64
	// PerUser is the limit of one buyer in this epoch, or 0.
	PerUser int64
	// Closed tells that nothing is sold from the place in this epoch: its units are those
	// of pending orders, and what is on its way back into the row.
	Closed bool
}

// Promise is an order that was promised, and that the ledger does not have yet.
type Promise struct {
	stock.Order
	// Epoch is that of the place that the units were promised from.
	Epoch int64
	// Limited tells that the goods has a limit of one buyer in that epoch.
	Limited bool
	// Earlier tells that it was promised under another limit than that.
	Earlier bool
}

// StaleError tells that promises cannot be kept from a place: another epoch has begun
// there since, it has fewer units, or it is not there. Nothing has been written.
type StaleError struct {
	GoodsID, Epoch int64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("goods %d cannot keep what was promised in epoch %d", e.GoodsID, e.Epoch)
}

const (
	placeColumns = `goods_id, units, epoch, per_user, closed`

	readPlace = `SELECT ` + placeColumns + ` FROM tb_stock_place WHERE goods_id = ? AND place = ?`

	readPlaces = `SELECT ` + placeColumns + ` FROM tb_stock_place WHERE place = ? ORDER BY goods_id`

	insertPlace = `INSERT INTO tb_stock_place (units, epoch, closed, goods_id, place, per_user) VALUES (?, ?, ?, ?, ?, ?)`

	fillPlace = `UPDATE tb_stock_place SET units = units + ?, epoch = ?, closed = ? WHERE goods_id = ? AND place = ?`

	drawPlace = `UPDATE tb_stock_place SET units = units - ?
		WHERE goods_id = ? AND place = ? AND epoch = ? AND units >= ?`

	insertPromises = `INSERT INTO tb_stock_ledger (` + ledgerColumns + `, order_no) VALUES `
	insertPromise  = `(` + ledgerValues + `, ?)`
)

// Fill opens a place of an item: it moves a share of the row into it and begins an epoch
// above every earlier one, and above floor. From its commit on, no promise of an earlier
// epoch is kept. stock.ErrUnknownGoods: there is no such item.
func (s *Store) Fill(ctx context.Context, goodsID int64, place string, floor int64) (Place, error) {
	return s.nextEpoch(ctx, goodsID, place, floor, func(Place) bool { return true })
}

// Refill is Fill where the place is open. A closed one stays closed, and gets no units.
func (s *Store) Refill(ctx context.Context, goodsID int64, place string, floor int64) (Place, error) {
	return s.nextEpoch(ctx, goodsID, place, floor, func(before Place) bool { return !before.Closed })
}

// ClosePlace closes a place: what was promised from it is pending in an epoch that is
// over, and nothing is sold in the next one. One that is closed, or was never filled, is
// left as it is.
func (s *Store) ClosePlace(ctx context.Context, goodsID int64, place string) (Place, error) {
	before, err := s.Place(ctx, goodsID, place)
	if err != nil || before.Epoch == 0 || before.Closed {
		return before, err
	}
	return s.nextEpoch(ctx, goodsID, place, 0, func(Place) bool { return false })
}

func (s *Store) nextEpoch(ctx context.Context, goodsID int64, place string, floor int64, opens func(before Place) bool) (filled Place, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		// An epoch changes only here and with the limit, under the lock of the row.
		goods, err := tx.lockGoods(ctx, goodsID)
		if err != nil {
			return err
		}
		tx.perUser = goods.PerUser // which nothing changes: the row is locked
		before, found, err := s.readPlace(ctx, tx.conn(), readPlace, goodsID, place)
		if err != nil {
			return err
		}
		epoch, open, moved := max(before.Epoch, floor)+1, opens(before), int64(0)
		if open {
			moved = goods.Share(s.strategy)
		}
		if moved > 0 {
			if err := tx.Subtract(ctx, goods, moved); err != nil {
				return err
			}
		}
		if found {
			_, err = tx.write(ctx, "fill place", fillPlace, moved, epoch, !open, goodsID, place)
		} else {
			_, err = tx.write(ctx, "make place", insertPlace, moved, epoch, !open, goodsID, place, goods.PerUser)
		}
		if err != nil {
			return err
		}
		// Promises may have been kept since the first look: the row of the place is
		// ours only from the write on.
		filled, _, err = s.readPlace(ctx, tx.conn(), readPlace, goodsID, place)
		return err
	})
	return filled, err
}

// Place reads a place of a goods. One that was never filled is empty and has the
// epoch 0.
func (s *Store) Place(ctx context.Context, goodsID int64, place string) (Place, error) {
	p, _, err := s.readPlace(ctx, s.pool, readPlace, goodsID, place)
	return p, err
}

// Places lists all goods that have a place of this name, in the order of their ids.
func (s *Store) Places(ctx context.Context, place string) (list []Place, err error) {
	rows, err := s.pool.QueryContext(ctx, readPlaces, place)
	if err != nil {
		return nil, s.fault(ctx, "read places", err)
	}
	defer rows.Close() //nolint:errcheck // what went wrong is in rows.Err
	for rows.Next() {
		var p Place
		if err := rows.Scan(&p.GoodsID, &p.Units, &p.Epoch, &p.PerUser, &p.Closed); err != nil {
			return nil, s.fault(ctx, "read places", err)
		}
		list = append(list, p)
	}
	return list, s.fault(ctx, "read places", rows.Err())
}

func (s *Store) readPlace(ctx context.Context, conn gorm.ConnPool, statement string, goodsID int64, place string) (p Place, found bool, err error) {
	err = conn.QueryRowContext(ctx, statement, goodsID, place).Scan(&p.GoodsID, &p.Units, &p.Epoch, &p.PerUser, &p.Closed)
	if errors.Is(err, sql.ErrNoRows) {
		return Place{GoodsID: goodsID}, false, nil
	}
	return p, true, s.fault(ctx, "read place", err)
}

// Keep writes promises into the ledger and takes their units off the place, all
// or nothing.
//
// stock.ErrDuplicateRequest: the ledger has one of the request ids.
// *StaleError: the place cannot keep them. stock.ErrUnknownOutcome: keeping them
// again finds out.
func (s *Store) Keep(ctx context.Context, place string, promises []Promise) error {
	if len(promises) == 0 {
		return nil
	}
	return s.InTx(ctx, func(tx *Tx) error {
		if err := tx.countPromises(ctx, promises); err != nil {
			return err
		}
		if err := tx.appendPromises(ctx, promises); err != nil {
			return err
		}
		for _, d := range draws(promises) {
			rows, err := tx.write(ctx, "draw from place", drawPlace, d.Units, d.GoodsID, place, d.Epoch, d.Units)
			if err != nil {
				return err
			}
			if rows == 0 {
				return &StaleError{GoodsID: d.GoodsID, Epoch: d.Epoch}
			}
		}
		return nil
	})
}

func (t *Tx) appendPromises(ctx context.Context, promises []Promise) error {
	args := make([]any, 0, 11*len(promises))
	for _, p := range promises {
		p.Kind = stock.Deduction
		args = append(appendValues(args, p.Order, p.Remaining), p.ID)
	}
	statement := insertPromises + listOf(len(promises), insertPromise)
	_, err := t.write(ctx, "append promises to ledger", statement, args...)
	return err
}

// draws adds up what is taken from each place. They are sorted, so that writers
// who meet do not wait for each other in a circle.
func draws(promises []Promise) []Place {
	type filling struct{ goodsID, epoch int64 }
	units := make(map[filling]int64)
	for _, p := range promises {
		units[filling{p.GoodsID, p.Epoch}] += p.Quantity
	}
	list := make([]Place, 0, len(units))
	for f, n := range units {
		list = append(list, Place{GoodsID: f.goodsID, Epoch: f.epoch, Units: n})
	}
	slices.SortFunc(list, func(a, b Place) int {
		if a.GoodsID != b.GoodsID {
			return int(min(1, max(-1, a.GoodsID-b.GoodsID)))
		}
		return int(a.Epoch - b.Epoch)
	})
	return list
}
