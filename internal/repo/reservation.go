package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

// A reservation is written with the ledger row of its hold, in one transaction: whatever the
// strategy, and its fence, decide about the one, they decide about the other. Its state
// changes only from held, under the lock of its row, and with the ledger row of the step.
//
// The clock of the database decides whether its time is over, and it is compared after the
// lock is held: what has been seen as expired is never confirmed.
//
// Locks are taken in one order by all: reservations, buyers, the ledger, and the rows of items in the
// order of their ids.

const (
	heldColumns        = `number, goods_id, quantity, user_id, strategy, state, ttl, held_at, expires_at`
	reservationColumns = heldColumns + `, payment_reference`

	insertReservations = `INSERT INTO tb_reservation (` + heldColumns + `) VALUES `
	insertReservation  = `(?, ?, ?, ?, ?, 'held', ?, `

	// selectReservations is followed by the time, and then by where they are read from.
	selectReservations = `SELECT ` + reservationColumns + `, `
	fromReservations   = ` FROM tb_reservation `
	fromArchive        = ` FROM tb_reservation_archive `

	whereNumber  = `WHERE number = ?`
	whereNumbers = `WHERE number IN (`

	// The following are followed by the time.
	ifOver            = `WHERE state = 'held' AND expires_at <= `
	andHeld           = ` AND state = 'held' AND expires_at > `
	setReleased       = `UPDATE tb_reservation SET state = 'released' ` + whereNumber + andHeld
	setExpiry         = `UPDATE tb_reservation SET expires_at = ? ` + whereNumber + andHeld
	setExpired        = `UPDATE tb_reservation SET state = 'expired' ` + whereNumbers
	oldestFirst       = ` ORDER BY expires_at LIMIT ?`
	ofOverdueItem     = ` AND goods_id = ?`
	selectItems       = `SELECT DISTINCT goods_id`
	addUnderLimit     = addStock + ` AND per_user = ?`
	countReservations = `SELECT COUNT(*), COUNT(CASE WHEN expires_at <= `

	// sumHeld is followed by a list of users.
	sumHeld   = ` AS buyer, SUM(quantity)` + fromReservations + `WHERE user_id IN (`
	eachBuyer = ` GROUP BY buyer`
)

func (t *Tx) hold(ctx context.Context, orders []stock.Order) error {
	d := t.store.dialect
	var args []any
	holds := 0
	for _, o := range orders {
		if o.Kind == stock.Hold {
			holds++
			args = append(args, o.ID, o.GoodsID, o.Quantity, o.UserID, o.Strategy, o.TTL.Microseconds(), o.TTL.Microseconds())
		}
	}
	if holds == 0 {
		return nil
	}
	_, err := t.write(ctx, "write reservations", insertReservations+listOf(holds, insertReservation+d.now+`, `+d.until+`)`), args...)
	return err
}

// heldRow is a reservation and the time at which it was read.
type heldRow struct {
	stock.Reservation

	at time.Time
}

// selectAt reads reservations with the time by the clock of the database.
func (s *Store) selectAt() string { return selectReservations + s.dialect.now }

func scanReservation(scan scanRow) (r heldRow, err error) {
	var reference sql.NullString
	var ttl int64
	var held, expires, at moment
	err = scan(&r.Number, &r.GoodsID, &r.Quantity, &r.UserID, &r.Strategy, &r.State, &ttl, &held, &expires, &reference, &at)
	r.TTL, r.PaymentReference = time.Duration(ttl)*time.Microsecond, reference.String
	r.HeldAt, r.ExpiresAt, r.at = held.Time, expires.Time, at.Time
	return r, err
}

// readReservations reads reservations that a condition selects.
func (s *Store) readReservations(ctx context.Context, conn gorm.ConnPool, doing, where string, args ...any) ([]stock.Reservation, error) {
	scan := func(row scanRow) (stock.Reservation, error) {
		r, err := scanReservation(row)
		return r.Reservation, err
	}
	return readAll(ctx, s, conn, doing, scan, s.selectAt()+fromReservations+where, args...)
}

// isOver tells of a reservation that is held by its state that its time is over.
func (r heldRow) isOver() bool { return r.State == stock.Held && !r.ExpiresAt.After(r.at) }

// Reservation finds a reservation. One whose time is over is stock.Expired, and is so for
// good: a confirmation that is being committed is waited for, in the item's turn. stock.ErrUnknownReservation:
// there is none.
func (s *Store) Reservation(ctx context.Context, number string) (stock.Reservation, error) {
	if !isNumber(number) {
		return stock.Reservation{}, stock.ErrUnknownReservation
	}
	r, err := s.readReservation(ctx, s.pool, number, "")
	if err != nil || !r.isOver() {
		return r.Reservation, err
	}
	err = s.InItem(ctx, r.GoodsID, func(tx *Tx) (err error) {
		r, err = tx.lockReservation(ctx, number)
		return err
	})
	if r.isOver() {
		r.State = stock.Expired
	}
	return r.Reservation, err
}

// lockReservation keeps every other writer from a reservation until the transaction ends.
func (t *Tx) lockReservation(ctx context.Context, number string) (heldRow, error) {
	return t.store.readReservation(ctx, t.conn(), number, t.store.dialect.forUpdate)
}

// readReservation reads a reservation, or else its row of the archive: what was moved meanwhile is there.
func (s *Store) readReservation(ctx context.Context, conn gorm.ConnPool, number, lock string) (r heldRow, err error) {
	for _, from := range []string{fromReservations, fromArchive} {
		r, err = scanReservation(conn.QueryRowContext(ctx, s.selectAt()+from+whereNumber+lock, number).Scan)
		if !errors.Is(err, sql.ErrNoRows) {
			return r, s.fault(ctx, "read reservation", err)
		}
	}
	return r, stock.ErrUnknownReservation
}

// Release gives the units of a reservation back, which is held and whose time is not over. again: it
// was released before. stock.ErrConfirmed, stock.ErrExpired, stock.ErrUnknownReservation:
// nothing was written.
func (s *Store) Release(ctx context.Context, number string) (r stock.Reservation, again bool, err error) {
	return s.step(ctx, number, stock.Released, func(tx *Tx, r *heldRow) error {
		if err := tx.stepIfHeld(ctx, r, setReleased, number); err != nil {
			return err
		}
		return tx.giveBack(ctx, s.stepsOf(stock.Release, r.Reservation), true)
	})
}

// Extend has a reservation that is held expire as late as stock.Reservation.Until says.
// stock.ErrConfirmed, stock.ErrReleased, stock.ErrExpired, stock.ErrUnknownReservation:
// nothing was written.
func (s *Store) Extend(ctx context.Context, number string, ttl, longest time.Duration) (r stock.Reservation, err error) {
	r, _, err = s.step(ctx, number, stock.Held, func(tx *Tx, r *heldRow) error {
		r.ExpiresAt = r.Until(r.at, ttl, longest)
		return tx.stepIfHeld(ctx, r, setExpiry, r.ExpiresAt.Format(s.dialect.columnTime), number)
	})
	return r, err
}

// step changes a reservation from held. One that has ended in the wanted state before is left
// as it is.
func (s *Store) step(ctx context.Context, number string, to stock.State, take func(*Tx, *heldRow) error) (after stock.Reservation, again bool, err error) {
	if !isNumber(number) {
		return after, false, stock.ErrUnknownReservation
	}
	of, err := s.readReservation(ctx, s.pool, number, "")
	if err != nil {
		return after, false, err
	}
	err = s.whileRowsChange(ctx, of.GoodsID, true, func(tx *Tx) error {
		r, err := tx.lockReservation(ctx, number)
		if err != nil {
			return err
		}
		if again = to != stock.Held && r.State == to; !again {
			err = take(tx, &r)
			r.State = to
		}
		after = r.Reservation
		return err
	})
	return after, again && err == nil, err
}

// stepIfHeld runs a statement that ends in andHeld.
func (t *Tx) stepIfHeld(ctx context.Context, r *heldRow, statement string, args ...any) error {
	rows, err := t.write(ctx, "change reservation", statement+t.store.dialect.now, args...)
	if err == nil && rows == 0 {
		err = r.NotHeld()
	}
	return err
}

// stepsOf are the ledger rows of a step of reservations.
func (s *Store) stepsOf(kind stock.Kind, of ...stock.Reservation) []stock.Order {
	now, steps := acceptedNow(), make([]stock.Order, len(of))
	for i, r := range of {
		steps[i] = stock.Order{
			ID: r.Number, Kind: kind, RequestID: stock.FinalKey.Of(r.Number), GoodsID: r.GoodsID, Quantity: r.Quantity,
			UserID: r.UserID, Strategy: r.Strategy, Replica: s.replica, CreatedAt: now,
		}
	}
	return steps
}

// backTries bounds how often a transaction is run whose rows change meanwhile.
const backTries = 20

// whileRowsChange runs a transaction again whose rows are not what it has read: an item got another
// limit, or the time of a reservation was over. Where it does not wait for a turn, it may be stock.ErrBusy.
func (s *Store) whileRowsChange(ctx context.Context, goodsID int64, waits bool, do func(*Tx) error) (err error) {
	in := s.InItem
	if !waits {
		in = s.inFreeItem
	}
	for range backTries {
		if err = in(ctx, goodsID, do); !errors.Is(err, ErrRowChanged) {
			break
		}
	}
	return err
}

// giveBack appends rows that give units back, counts these out of their buyers, and adds them to
// the rows of the items. An item that was deleted gets none. It waits for the row of one item alone that is locked,
// where it may, and for none of several: meanwhile it would keep the sales of the others waiting.
func (t *Tx) giveBack(ctx context.Context, rows []stock.Order, waits bool) error {
	units, limits := unitsOf(rows), make(map[int64]int64)
	for _, id := range slices.Sorted(maps.Keys(units)) {
		goods, err := t.Goods(ctx, id)
		if errors.Is(err, stock.ErrUnknownGoods) {
			delete(units, id)
			continue
		}
		if err != nil {
			return err
		}
		limits[id] = goods.PerUser
	}
	ids, users := slices.Sorted(maps.Keys(units)), usersBack(rows, limits)
	waits = waits && len(ids) == 1
	if !waits {
		if err := t.lockFreeUsers(ctx, users); err != nil {
			return err
		}
	}
	if err := t.count(ctx, "count buyers out", users); err != nil {
		return err
	}
	if err := t.appendNumbered(ctx, "append to ledger what comes back", rows); err != nil {
		return err
	}
	if !waits {
		if err := t.lockFree(ctx, ids); err != nil {
			return err
		}
	}
	for _, id := range ids {
		written, err := t.write(ctx, "give units back", addUnderLimit, units[id], units[id], id, limits[id])
		if err != nil {
			return err
		}
		if written == 0 {
			return rowChanged(id)
		}
	}
	return nil
}

// lockFree locks the rows of items, and waits for none. stock.ErrBusy: one is locked, or was deleted.
func (t *Tx) lockFree(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	free, err := t.FreeGoods(ctx, ids)
	if err == nil && len(free) < len(ids) {
		err = fmt.Errorf("%w: of %d items %d are locked", stock.ErrBusy, len(ids), len(ids)-len(free))
	}
	return err
}

// lockFreeUsers locks what is counted of buyers, and waits for none. stock.ErrBusy: one is locked.
func (t *Tx) lockFreeUsers(ctx context.Context, users []userUnits) error {
	for rest := users; len(rest) > 0; {
		n := len(rest)
		if end := slices.IndexFunc(rest, func(u userUnits) bool { return u.goodsID != rest[0].goodsID }); end > 0 {
			n = end
		}
		free, err := t.store.has(ctx, t.conn(), rest[0].goodsID, rest[:n], t.store.dialect.skipLocked)
		if err == nil && len(free) < n {
			err = fmt.Errorf("%w: of %d buyers of item %d %d are locked", stock.ErrBusy, n, rest[0].goodsID, n-len(free))
		}
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// usersBack are the buyers to count out, of those items that have a limit.
func usersBack(rows []stock.Order, limits map[int64]int64) []userUnits {
	var users []userUnits
	for _, o := range rows {
		if limits[o.GoodsID] > 0 {
			users = append(users, userUnits{goodsID: o.GoodsID, user: o.UserID, units: -o.Quantity, returned: o.Quantity})
		}
	}
	return sumUsers(users)
}

// Back is what an item has got back.
type Back struct {
	Units  int64
	Buyers []string // who had them
}

func backOf(rows []stock.Order) map[int64]Back {
	back := make(map[int64]Back)
	for _, o := range rows {
		b := back[o.GoodsID]
		back[o.GoodsID] = Back{b.Units + o.Quantity, append(b.Buyers, o.UserID)}
	}
	return back
}

func unitsOf(rows []stock.Order) map[int64]int64 {
	units := make(map[int64]int64)
	for _, o := range rows {
		units[o.GoodsID] += o.Quantity
	}
	return units
}

// LockedItemsError is a stock.ErrBusy: the rows of these items are locked, or others have all of their turns.
type LockedItemsError struct{ IDs []int64 }

func (e *LockedItemsError) Error() string {
	return fmt.Sprintf("the rows of items %v are locked", e.IDs)
}

// Unwrap makes it a stock.ErrBusy.
func (e *LockedItemsError) Unwrap() error { return stock.ErrBusy }

// Expire ends up to most reservations whose time is over, those first that have been for
// the longest, and returns what each item has got back. Where the row of an item is locked, it ends up to most of
// every item, each by itself, and waits for no row and no turn of one: a *LockedItemsError names them, beside what
// has ended. Any number of replicas may call it: each takes others, where the server can skip rows that are locked.
func (s *Store) Expire(ctx context.Context, most int) (ended int, back map[int64]Back, err error) {
	if !s.sharded {
		ended, back, err = s.expire(ctx, most, SeveralItems, false)
		if s.dialect.oneWriter || !errors.Is(err, stock.ErrBusy) {
			return ended, back, err
		}
	}
	items, failed := s.overdueItems(ctx)
	ended, back = 0, make(map[int64]Back, len(items))
	var locked []int64
	for _, id := range items {
		n, own, err := s.expire(ctx, most, id, false)
		switch {
		case err == nil:
			ended += n
			maps.Copy(back, own)
		case errors.Is(err, stock.ErrBusy):
			locked = append(locked, id)
		default:
			failed = err
		}
	}
	switch {
	case failed != nil && ended == 0: // otherwise those of the others end in the next round
		return 0, nil, failed
	case len(locked) > 0:
		return ended, back, &LockedItemsError{locked}
	default:
		return ended, back, nil
	}
}

// ExpireLocked is Expire of one item, and waits for its row: one in demand is never free.
func (s *Store) ExpireLocked(ctx context.Context, most int, goodsID int64) (ended int, back map[int64]Back, err error) {
	return s.expire(ctx, most, goodsID, true)
}

func (s *Store) overdueItems(ctx context.Context) (ids []int64, err error) {
	err = s.db.WithContext(ctx).Raw(selectItems + fromReservations + ifOver + s.dialect.now).Scan(&ids).Error
	return ids, s.fault(ctx, "read items of expired reservations", err)
}

// expire is Expire in one transaction, of one item or of SeveralItems. stock.ErrBusy: the row of an item is locked, and was
// not waited for, or for too long.
func (s *Store) expire(ctx context.Context, most int, goodsID int64, waits bool) (ended int, back map[int64]Back, err error) {
	condition, args := "", []any{most}
	if goodsID != SeveralItems {
		condition, args = ofOverdueItem, []any{goodsID, most}
	}
	// Nothing that is done with several items waits for a row of one: their turns come.
	err = s.whileRowsChange(ctx, goodsID, waits || goodsID == SeveralItems, func(tx *Tx) error {
		back = nil // that of a try before
		over, err := s.readReservations(ctx, tx.conn(), "read expired reservations", ifOver+s.dialect.now+condition+oldestFirst+s.dialect.skipLocked, args...)
		if ended = len(over); err != nil || ended == 0 {
			return err
		}
		numbers := make([]any, len(over))
		for i, r := range over {
			numbers[i] = r.Number
		}
		if _, err := tx.write(ctx, "end reservations", setExpired+listOf(len(over), `?`)+`)`, numbers...); err != nil {
			return err
		}
		steps := s.stepsOf(stock.Expiry, over...)
		back = backOf(steps)
		return tx.giveBack(ctx, steps, waits)
	})
	return ended, back, err
}

// HeldBy sums the units that users hold, of all items together. Those that hold none are left out.
func (s *Store) HeldBy(ctx context.Context, users ...string) (map[string]int64, error) {
	statement := `SELECT ` + s.dialect.userBytes + sumHeld + listOf(len(users), `?`) + `)` + andHeld + s.dialect.now + eachBuyer
	return s.readUsers(ctx, s.pool, "read what buyers hold", statement, anys(users)...)
}

// Reservations counts what is held.
type Reservations struct {
	// Open are held; Overdue of them are over, and not ended yet, the first for Lag.
	Open, Overdue int64
	Lag           time.Duration
}

// Reservations counts all reservations that are held.
func (s *Store) Reservations(ctx context.Context) (n Reservations, err error) {
	now := s.dialect.now
	statement := countReservations + now + ` THEN 1 END), MIN(expires_at), ` + now + fromReservations + `WHERE state = 'held'`
	var first sql.Null[moment]
	var at moment
	err = s.pool.QueryRowContext(ctx, statement).Scan(&n.Open, &n.Overdue, &first, &at)
	if first.Valid {
		n.Lag = max(0, at.Sub(first.V.Time))
	}
	return n, s.fault(ctx, "count reservations", err)
}
