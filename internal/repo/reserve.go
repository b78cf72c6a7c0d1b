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

// A reserve is an allocation whose units are sold elsewhere, such as in Redis, before the ledger
// has the orders. Its units are moved out of the row, so that no other strategy can sell them, and
// leave the allocation in the transaction that writes the orders: row, allocations and ledger
// always agree.

// Allocation is a part of the units of an item outside of its row.
type Allocation struct {
	GoodsID int64
	// Units are those without an order in the ledger.
	Units int64
	// Epoch grows each time the allocation is loaded, and when the limit changes.
	Epoch int64
	// PerUser is the limit per buyer in this epoch, or 0.
	PerUser int64
	// Closed reports that nothing is sold from the allocation in this epoch: its units are
	// those of pending orders, and those that return into the row.
	Closed bool
}

// PendingOrder is an accepted order that is not in the ledger yet.
type PendingOrder struct {
	stock.Order
	// Epoch is the epoch of the allocation in which it was accepted.
	Epoch int64
	// Limited reports that the item has a limit per buyer in that epoch.
	Limited bool
	// Earlier reports that it was accepted under an earlier limit.
	Earlier bool
}

// StaleError reports that pending orders cannot be written from an allocation: another epoch has
// begun, it has fewer units, or it does not exist. Nothing has been written.
type StaleError struct {
	GoodsID, Epoch int64
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("goods %d cannot keep what was promised in epoch %d", e.GoodsID, e.Epoch)
}

const (
	placeColumns = `goods_id, units, epoch, per_user, closed`

	readAllocation = `SELECT ` + placeColumns + ` FROM tb_stock_place WHERE goods_id = ? AND place = ?`

	readPlaces = `SELECT ` + placeColumns + ` FROM tb_stock_place WHERE place = ? ORDER BY goods_id`

	insertPlace = `INSERT INTO tb_stock_place (units, epoch, closed, goods_id, place, per_user) VALUES (?, ?, ?, ?, ?, ?)`

	fillPlace = `UPDATE tb_stock_place SET units = units + ?, epoch = ?, closed = ? WHERE goods_id = ? AND place = ?`

	drawPlace = `UPDATE tb_stock_place SET units = units - ?
		WHERE goods_id = ? AND place = ? AND epoch = ? AND units >= ?`

	insertPromises = `INSERT INTO tb_stock_ledger (` + ledgerColumns + `, order_no) VALUES `
	insertPromise  = `(` + ledgerValues + `, ?)`
)

// Fill opens an allocation of an item: it moves a share of the row into it and begins an epoch
// above every earlier one, and above floor. After its commit no order of an earlier epoch is
// written. It may return stock.ErrUnknownGoods.
func (s *Store) Fill(ctx context.Context, goodsID int64, allocation string, floor int64) (Allocation, error) {
	return s.nextEpoch(ctx, goodsID, allocation, floor, func(Allocation) bool { return true })
}

// Refill is Fill if the allocation is open. A closed one stays closed and gets no units.
func (s *Store) Refill(ctx context.Context, goodsID int64, allocation string, floor int64) (Allocation, error) {
	return s.nextEpoch(ctx, goodsID, allocation, floor, func(before Allocation) bool { return !before.Closed })
}

// CloseAllocation closes an allocation: its accepted orders are pending in an epoch that is over,
// and nothing is sold in the next one. An allocation that is closed, or was never loaded, stays
// as it is.
func (s *Store) CloseAllocation(ctx context.Context, goodsID int64, allocation string) (Allocation, error) {
	before, err := s.Allocation(ctx, goodsID, allocation)
	if err != nil || before.Epoch == 0 || before.Closed {
		return before, err
	}
	return s.nextEpoch(ctx, goodsID, allocation, 0, func(Allocation) bool { return false })
}

func (s *Store) nextEpoch(ctx context.Context, goodsID int64, allocation string, floor int64, opens func(before Allocation) bool) (filled Allocation, err error) {
	err = s.InTx(ctx, func(tx *Tx) error {
		// An epoch changes only here and with the limit, under the lock of the row.
		goods, err := tx.lockGoods(ctx, goodsID)
		if err != nil {
			return err
		}
		tx.perUser = goods.PerUser // stable: the row is locked
		before, found, err := s.readAllocation(ctx, tx.conn(), readAllocation, goodsID, allocation)
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
			_, err = tx.write(ctx, "fill place", fillPlace, moved, epoch, !open, goodsID, allocation)
		} else {
			_, err = tx.write(ctx, "make place", insertPlace, moved, epoch, !open, goodsID, allocation, goods.PerUser)
		}
		if err != nil {
			return err
		}
		// Orders may have been written since the first read: the row of the allocation
		// is locked only from the write on.
		filled, _, err = s.readAllocation(ctx, tx.conn(), readAllocation, goodsID, allocation)
		return err
	})
	return filled, err
}

// Allocation reads an allocation of an item. One that was never loaded is empty and has epoch 0.
func (s *Store) Allocation(ctx context.Context, goodsID int64, allocation string) (Allocation, error) {
	p, _, err := s.readAllocation(ctx, s.pool, readAllocation, goodsID, allocation)
	return p, err
}

// Allocations lists the allocations of this name, in the order of their items.
func (s *Store) Allocations(ctx context.Context, allocation string) (list []Allocation, err error) {
	rows, err := s.pool.QueryContext(ctx, readPlaces, allocation)
	if err != nil {
		return nil, s.fault(ctx, "read places", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err has the error
	for rows.Next() {
		var p Allocation
		if err := rows.Scan(&p.GoodsID, &p.Units, &p.Epoch, &p.PerUser, &p.Closed); err != nil {
			return nil, s.fault(ctx, "read places", err)
		}
		list = append(list, p)
	}
	return list, s.fault(ctx, "read places", rows.Err())
}

func (s *Store) readAllocation(ctx context.Context, conn gorm.ConnPool, statement string, goodsID int64, allocation string) (p Allocation, found bool, err error) {
	err = conn.QueryRowContext(ctx, statement, goodsID, allocation).Scan(&p.GoodsID, &p.Units, &p.Epoch, &p.PerUser, &p.Closed)
	if errors.Is(err, sql.ErrNoRows) {
		return Allocation{GoodsID: goodsID}, false, nil
	}
	return p, true, s.fault(ctx, "read place", err)
}

// Keep writes pending orders into the ledger and subtracts their units from the allocation, all
// or nothing.
//
// stock.ErrDuplicateRequest: the ledger has one of the request ids. *StaleError: the allocation
// does not cover them. stock.ErrUnknownOutcome: calling it again finds out.
func (s *Store) Keep(ctx context.Context, allocation string, orders []PendingOrder) error {
	if len(orders) == 0 {
		return nil
	}
	return s.InTx(ctx, func(tx *Tx) error {
		if err := tx.countPending(ctx, orders); err != nil {
			return err
		}
		if err := tx.appendPending(ctx, orders); err != nil {
			return err
		}
		for _, d := range draws(orders) {
			rows, err := tx.write(ctx, "draw from place", drawPlace, d.Units, d.GoodsID, allocation, d.Epoch, d.Units)
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

func (t *Tx) appendPending(ctx context.Context, orders []PendingOrder) error {
	args := make([]any, 0, 11*len(orders))
	for _, p := range orders {
		p.Kind = stock.Deduction
		args = append(appendValues(args, p.Order, p.Remaining), p.ID)
	}
	statement := insertPromises + listOf(len(orders), insertPromise)
	_, err := t.write(ctx, "append promises to ledger", statement, args...)
	return err
}

// draws sums the units for each allocation. They are sorted, so that concurrent writers do not
// deadlock.
func draws(orders []PendingOrder) []Allocation {
	type filling struct{ goodsID, epoch int64 }
	units := make(map[filling]int64)
	for _, p := range orders {
		units[filling{p.GoodsID, p.Epoch}] += p.Quantity
	}
	list := make([]Allocation, 0, len(units))
	for f, n := range units {
		list = append(list, Allocation{GoodsID: f.goodsID, Epoch: f.epoch, Units: n})
	}
	slices.SortFunc(list, func(a, b Allocation) int {
		if a.GoodsID != b.GoodsID {
			return int(min(1, max(-1, a.GoodsID-b.GoodsID)))
		}
		return int(a.Epoch - b.Epoch)
	})
	return list
}
