package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

// The units of an allocation are moved out of the row, so that no other strategy can sell them.
// Where they are sold before the ledger has the orders, as in Redis, they leave the allocation in the
// transaction that writes the orders: row, allocations and ledger always agree.

// Allocation is a part of the units of an item outside of its row.
type Allocation struct {
	GoodsID int64
	// Units are those without an order in the ledger.
	Units int64
	// Epoch grows each time the allocation is opened, closed or loaded anew, and when the limit changes.
	Epoch int64
	// Added is how many units were moved into it within its epoch: see Add.
	Added int64
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
	return fmt.Sprintf("item %d cannot keep the orders that were accepted in epoch %d", e.GoodsID, e.Epoch)
}

const (
	placeColumns = `goods_id, units, epoch, per_user, closed, added`

	readAllocation = `SELECT ` + placeColumns + ` FROM tb_stock_place WHERE goods_id = ? AND place = ?`

	readPlacesOf = `SELECT goods_id FROM tb_stock_place WHERE place = ? AND goods_id IN ?`

	readPlaces = `SELECT ` + placeColumns + ` FROM tb_stock_place WHERE place = ? ORDER BY goods_id`

	insertPlace = `INSERT INTO tb_stock_place (units, epoch, closed, goods_id, place, per_user) VALUES (?, ?, ?, ?, ?, ?)`

	fillPlace = `UPDATE tb_stock_place SET units = units + ?, epoch = ?, closed = ?, added = 0 WHERE goods_id = ? AND place = ?`

	addToPlace = `UPDATE tb_stock_place SET units = units + ?, added = added + ? WHERE goods_id = ? AND place = ?`

	drawPlace = `UPDATE tb_stock_place SET units = units - ?
		WHERE goods_id = ? AND place = ? AND epoch = ? AND units >= ?`

	// drawPlaces has an arm for each item after each goods_id, and ends with their ids.
	drawPlaces      = `UPDATE tb_stock_place SET units = units - CASE goods_id`
	drawPlacesEpoch = ` END WHERE place = ? AND epoch = CASE goods_id`
	drawPlacesUnits = ` END AND units >= CASE goods_id`
	drawPlacesItems = ` END AND goods_id IN (`
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
	err = s.InItem(ctx, goodsID, func(tx *Tx) error {
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

// Add moves a share of the row into an open allocation, within its epoch: Added tells how far a copy of the
// allocation has followed. One that is closed, or was never loaded, stays as it is, and so does a row without units,
// which is not locked.
func (s *Store) Add(ctx context.Context, goodsID int64, allocation string) (Allocation, error) {
	goods, before, err := s.Reach(ctx, goodsID, allocation)
	if err != nil || before.Epoch == 0 || before.Closed || goods.Stock <= 0 {
		return before, err
	}
	err = s.InItem(ctx, goodsID, func(tx *Tx) error {
		goods, err := tx.lockGoods(ctx, goodsID) // an epoch changes only under this lock
		if err != nil {
			return err
		}
		tx.perUser = goods.PerUser
		before, _, err = s.readAllocation(ctx, tx.conn(), readAllocation, goodsID, allocation)
		moved := goods.Share(s.strategy)
		if err != nil || before.Closed || moved == 0 {
			return err
		}
		if err := tx.Subtract(ctx, goods, moved); err != nil {
			return err
		}
		_, err = tx.write(ctx, "add to place", addToPlace, moved, moved, goodsID, allocation)
		return err
	})
	return before, err
}

// Allocation reads an allocation of an item. One that was never loaded is empty and has epoch 0.
func (s *Store) Allocation(ctx context.Context, goodsID int64, allocation string) (Allocation, error) {
	p, _, err := s.readAllocation(ctx, s.pool, readAllocation, goodsID, allocation)
	return p, err
}

// Allocations lists the allocations of this name, in the order of their items.
func (s *Store) Allocations(ctx context.Context, allocation string) ([]Allocation, error) {
	return readAll(ctx, s, s.pool, "read allocations", scanAllocation, readPlaces, allocation)
}

func scanAllocation(scan scanRow) (a Allocation, err error) {
	err = scan(&a.GoodsID, &a.Units, &a.Epoch, &a.PerUser, &a.Closed, &a.Added)
	return a, err
}

// LockedAllocations finds the items among some whose allocation another transaction keeps, where the database
// can leave out rows that are locked.
func (s *Store) LockedAllocations(ctx context.Context, allocation string, goodsIDs ...int64) (map[int64]bool, error) {
	const doing = "look for locked places"
	all, err := s.itemsOf(ctx, doing, readPlacesOf, allocation, goodsIDs)
	if err != nil {
		return nil, err
	}
	free, err := s.itemsOf(ctx, doing, readPlacesOf+s.dialect.skipLocked, allocation, goodsIDs)
	maps.DeleteFunc(all, func(id int64, _ bool) bool { return free[id] })
	return all, err
}

func (s *Store) readAllocation(ctx context.Context, conn gorm.ConnPool, statement string, goodsID int64, allocation string) (p Allocation, found bool, err error) {
	p, err = scanAllocation(conn.QueryRowContext(ctx, statement, goodsID, allocation).Scan)
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
	err := s.keep(ctx, orders, func(tx *Tx) error { return tx.drawTogether(ctx, allocation, draws(orders)) })
	if errors.Is(err, errSomeStale) {
		err = s.keep(ctx, orders, func(tx *Tx) error { return tx.drawEach(ctx, allocation, draws(orders)) })
	}
	return err
}

func (s *Store) keep(ctx context.Context, orders []PendingOrder, draw func(*Tx) error) error {
	return s.InTx(ctx, func(tx *Tx) error {
		if err := tx.requireNew(ctx, late(orders)...); err != nil {
			return err
		}
		if err := tx.countPending(ctx, orders); err != nil {
			return err
		}
		if err := tx.appendPending(ctx, orders); err != nil {
			return err
		}
		return draw(tx)
	})
}

// errSomeStale rolls back where one of several allocations does not cover its orders; it never
// leaves this package.
var errSomeStale = errors.New("an allocation does not cover its orders")

// drawTogether draws from the allocations of several items in one statement, which does not tell
// which of them failed. errSomeStale: one of them did.
func (t *Tx) drawTogether(ctx context.Context, allocation string, list []Allocation) error {
	if len(list) == 1 {
		return t.drawEach(ctx, allocation, list)
	}
	var units, epochs, ids []any
	for _, d := range list {
		units, epochs, ids = append(units, d.GoodsID, d.Units), append(epochs, d.GoodsID, d.Epoch), append(ids, d.GoodsID)
	}
	arms := strings.Repeat(byItemID, len(list))
	statement := drawPlaces + arms + drawPlacesEpoch + arms + drawPlacesUnits + arms + drawPlacesItems + listOf(len(ids), `?`) + `)`
	rows, err := t.write(ctx, "draw from places", statement, slices.Concat(units, []any{allocation}, epochs, units, ids)...)
	if err == nil && rows != int64(len(list)) {
		err = errSomeStale
	}
	return err
}

func (t *Tx) drawEach(ctx context.Context, allocation string, list []Allocation) error {
	for _, d := range list {
		rows, err := t.write(ctx, "draw from place", drawPlace, d.Units, d.GoodsID, allocation, d.Epoch, d.Units)
		if err != nil {
			return err
		}
		if rows == 0 {
			return &StaleError{GoodsID: d.GoodsID, Epoch: d.Epoch}
		}
	}
	return nil
}

func (t *Tx) appendPending(ctx context.Context, pending []PendingOrder) error {
	orders := make([]stock.Order, len(pending))
	for i, p := range pending {
		orders[i] = p.Order
	}
	if err := t.appendNumbered(ctx, "append pending orders to ledger", orders); err != nil {
		return err
	}
	return t.hold(ctx, orders)
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

const (
	returnToRow = addUnits + byRecall + ` WHERE goods_id = ?`

	readAllocators = `SELECT DISTINCT CASE WHEN ` + inBuckets + ` THEN '` + Bucketed + `'
			WHEN ` + inUnitRows + ` THEN '` + InUnitRows + `' ELSE place END
		FROM tb_stock_place WHERE goods_id = ? AND units > 0`

	// inPlace looks one row up for each item: an item may have thousands of rows, and none is in
	// the order of the places.
	inPlace = ` FROM tb_goods_stock AS g JOIN tb_stock_place AS p ON p.goods_id = g.goods_id AND p.place = ?`

	readItemsIn = `SELECT p.goods_id` + inPlace + ` WHERE p.units > 0`

	hasPlaces = `SELECT EXISTS (SELECT 1` + inPlace + `)`

	takeFromPlace = `UPDATE tb_stock_place SET units = units - ? WHERE goods_id = ? AND place = ?`

	// readReach has the columns of readRow, and then those of a place.
	readReach = `SELECT g.goods_id, g.stock, ` + allocated + ` - COALESCE(p.units, 0), ` + goodsColumns + `,
		COALESCE(p.units, 0), COALESCE(p.epoch, 0), COALESCE(p.closed, FALSE), COALESCE(p.added, 0)
		FROM tb_goods_stock AS g LEFT JOIN tb_stock_place AS p ON p.goods_id = g.goods_id AND p.place = ?
		WHERE g.goods_id = ?`
)

// ReturnUnits moves the units of a closed place back into the row of its item, but for
// those of pending orders, and returns how many. pending must not grow in the epoch in
// which it was counted; where another one has begun, no unit is moved.
// stock.ErrUnknownOutcome: calling it again moves no unit twice.
func (s *Store) ReturnUnits(ctx context.Context, goodsID int64, allocation string, epoch, pending int64) (after Allocation, units int64, err error) {
	err = s.InItem(ctx, goodsID, func(tx *Tx) error {
		if _, err := tx.lockGoods(ctx, goodsID); err != nil {
			return err
		}
		var err error
		after, _, err = s.readAllocation(ctx, tx.conn(), readAllocation+s.dialect.forUpdate, goodsID, allocation)
		units = max(0, after.Units-pending)
		if err != nil || !after.Closed || after.Epoch != epoch || units == 0 {
			units = 0
			return err
		}
		if _, err := tx.write(ctx, "take from place", takeFromPlace, units, goodsID, allocation); err != nil {
			return err
		}
		after.Units -= units
		_, err = tx.write(ctx, "return units to the row", returnToRow, units, units, goodsID)
		return err
	})
	return after, units, err
}

// Reach reads the row of an item and one of its allocations as of one moment. Allocated counts
// the units of its other allocations.
func (s *Store) Reach(ctx context.Context, goodsID int64, allocation string) (goods stock.Goods, in Allocation, err error) {
	in.GoodsID = goodsID
	goods, err = s.scanGoods(ctx, s.pool.QueryRowContext(ctx, readReach, allocation, goodsID), goodsID, &in.Units, &in.Epoch, &in.Closed, &in.Added)
	in.PerUser = goods.PerUser
	return goods, in, err
}

// RecallBuckets moves all units of an item from its buckets back into its row, and takes
// the buckets away. It may return ErrUnknownGoods.
func (s *Store) RecallBuckets(ctx context.Context, goodsID int64) (returned int64, err error) {
	return s.recall(ctx, goodsID, func(tx *Tx) (int64, error) {
		buckets, err := tx.lockBuckets(ctx, goodsID)
		if err != nil {
			return 0, err
		}
		return buckets.Sum(), tx.dropBuckets(ctx, goodsID, beyond(buckets, 0))
	})
}

// recall locks the row of an item, and adds what take takes out of an allocation.
func (s *Store) recall(ctx context.Context, goodsID int64, take func(tx *Tx) (units int64, err error)) (returned int64, err error) {
	err = s.InItem(ctx, goodsID, func(tx *Tx) error {
		if _, err := tx.lockGoods(ctx, goodsID); err != nil {
			return err
		}
		if returned, err = take(tx); err != nil || returned == 0 {
			return err
		}
		_, err = tx.write(ctx, "return units to the row", returnToRow, returned, returned, goodsID)
		return err
	})
	return returned, err
}

// Allocators lists the strategies that hold units of an item outside of its row.
func (s *Store) Allocators(ctx context.Context, goodsID int64) (names []string, err error) {
	err = s.db.WithContext(ctx).Raw(readAllocators, goodsID).Scan(&names).Error
	return names, s.fault(ctx, "read allocators", err)
}

// ItemsIn lists the items that have units in an allocation.
func (s *Store) ItemsIn(ctx context.Context, allocation string) (map[int64]bool, error) {
	return s.itemsOf(ctx, "read the items of a place", readItemsIn, allocation)
}

// Allocated finds the items among some that have units in an allocation.
func (s *Store) Allocated(ctx context.Context, allocation string, goodsIDs ...int64) (map[int64]bool, error) {
	return s.itemsOf(ctx, "look for units in places", readPlacesOf+` AND units > 0`, allocation, goodsIDs)
}

// HasAllocations reports whether units of any item were ever moved into an allocation of this name.
func (s *Store) HasAllocations(ctx context.Context, allocation string) (has bool, err error) {
	err = s.pool.QueryRowContext(ctx, hasPlaces, allocation).Scan(&has)
	return has, s.fault(ctx, "look for places", err)
}
