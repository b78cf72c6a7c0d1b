package repo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/stockd/stockd/internal/stock"
)

// The ledger is two tables: rows are written into the one, and the oldest of them are moved into the
// archive, with their ids. Whatever reads rows that may have been moved reads both tables in one
// statement, which sees both as of one moment: a row that is being moved is in one of them.
//
// The unique key of the request ids is that of the first table. What relies on it alone would write
// the request id of an archived row a second time. It holds over both tables because whatever is
// written under a key is looked up in both before, and no row that is written after this look-up is
// archived before the write: a row is archived MinAge after it was added to the running totals at
// the earliest, by the clock of the database, and a purchase is written within deduct.timeout of its
// look-up. So the row is in the archive already when it is looked up, or still under the unique key
// when it is written.
//
// A restock, a correction, a return and an order that Redis has accepted long ago are looked up in the transaction
// that writes them. The steps of a reservation are taken under the lock of its row, which stays until
// the reservation has ended: none follows then.

// MinAge is how long after it was added to the running totals a row of the ledger is archived at
// the earliest. It is far above the longest purchase.
const MinAge = time.Hour

// MaxArchived is how many rows one transaction may archive.
const MaxArchived = 50_000

// ErrTooYoung rejects a move of rows that are younger than MinAge.
var ErrTooYoung = errors.New("rows of the ledger stay in it for an hour")

// ErrNoArchive rejects a move where the database is sharded: no transaction moves the rows of all shards.
var ErrNoArchive = errors.New("no row of the ledger is archived on Vitess")

// ErrNotMoved reports that the ledger and the archive would not have had the same rows. Nothing was
// moved.
var ErrNotMoved = errors.New("the rows that were copied are not those that were deleted")

// inBoth is a statement of the ledger, by what is before the name of the table and after it, and the
// same of its archive.
func inBoth(before, after string) string {
	return before + `tb_stock_ledger` + after + ` UNION ALL ` + before + `tb_ledger_archive` + after
}

// firstOfBoth is inBoth for the first orders that a condition selects, in the order of a column. It
// takes how many three times: no more are read of each table, nor of both.
func firstOfBoth(where, column string) string {
	rows := where + ` ORDER BY l.` + column + ` LIMIT ?`
	return selectFirst + selectOrders + `tb_stock_ledger` + rowsOfOrders + rows + `) AS live UNION ALL
		` + selectFirst + selectOrders + `tb_ledger_archive` + rowsOfOrders + rows + `) AS archived
		ORDER BY ` + column + ` LIMIT ?`
}

const (
	// selectFirst has the columns of selectOrders.
	selectFirst = `SELECT id, goods_id, kind, quantity, request_id, user_id, strategy, replica, fence, order_no,
		created_at, reason, counted, remaining FROM (`

	selectRequests = `SELECT request_id FROM `
	whereRequests  = ` WHERE request_id IN (`

	// ageSettled is followed by the time, and takes how long ago something is of age.
	ageSettled = `UPDATE tb_ledger_settled SET aged = aging, aging = upto, aging_at = `
	ifAged     = ` WHERE id = 1 AND aging_at <= `

	readArchived = `SELECT archived, aged FROM tb_ledger_settled WHERE id = 1`
	setArchived  = `UPDATE tb_ledger_settled SET archived = ? WHERE id = 1`

	// endOfBatch is the last id of a batch of the oldest rows. The newest row stays, whatever its
	// age: MAX(id) goes on to tell what there is, and no server numbers rows anew.
	endOfBatch = `SELECT COALESCE(MAX(id), 0) FROM (SELECT id FROM tb_stock_ledger WHERE id > ? AND id <= ?
		AND id < (SELECT MAX(id) FROM tb_stock_ledger) ORDER BY id LIMIT ?) AS batch`

	// firstToStay is the first row of a batch that is not old enough.
	firstToStay = `SELECT COALESCE(MIN(id), 0) FROM tb_stock_ledger` + toMove + ` AND created_at >= ?`

	toMove = ` WHERE id > ? AND id <= ?`

	archivedColumns = `id, ` + ledgerColumns + `, order_no, ` + correctionColumns

	copyRows   = `INSERT INTO tb_ledger_archive (` + archivedColumns + `) SELECT ` + archivedColumns + ` FROM tb_stock_ledger` + toMove
	deleteRows = `DELETE FROM tb_stock_ledger` + toMove

	readArchiveState = `SELECT s.archived, s.aged, s.upto, COALESCE((SELECT MAX(id) FROM tb_stock_ledger), 0), COALESCE(l.id, 0), l.created_at
		FROM tb_ledger_settled AS s LEFT JOIN tb_stock_ledger AS l
			ON l.id = (SELECT MIN(first.id) FROM tb_stock_ledger AS first WHERE first.id > s.archived)
		WHERE s.id = 1`
)

// requireNew returns stock.ErrDuplicateRequest where the ledger or its archive has one of the request
// ids. The unique key finds those that are written from now on.
func (t *Tx) requireNew(ctx context.Context, requestIDs ...string) error {
	if t.store.sharded { // nothing is archived, and the row may be on another shard
		return nil
	}
	known, err := t.store.findRequests(ctx, t.conn(), requestIDs)
	if err == nil && len(known) > 0 {
		err = fmt.Errorf("%s: %w", findRequests, stock.ErrDuplicateRequest)
	}
	return err
}

// findRequests returns those request ids that the ledger or its archive has. It reads their index alone: most are new.
func (s *Store) findRequests(ctx context.Context, conn gorm.ConnPool, requestIDs []string) (known []string, err error) {
	if len(requestIDs) == 0 {
		return nil, nil
	}
	ids := slices.Repeat(anys(requestIDs), 2) // for each table
	return readAll(ctx, s, conn, findRequests, scanOne[string], inBoth(selectRequests, whereRequests+listOf(len(requestIDs), `?`)+`)`), ids...)
}

const findRequests = "find requests in ledger and archive"

// lateAfter is from when on a pending order may be in the archive already: half of MinAge, so that
// the clocks of Redis, the replicas and the database may differ by as much.
const lateAfter = MinAge / 2

// late are the request ids of those pending orders that were accepted long ago.
func late(orders []PendingOrder) (requestIDs []string) {
	for _, o := range orders {
		if time.Since(o.CreatedAt) > lateAfter {
			requestIDs = append(requestIDs, o.RequestID)
		}
	}
	return requestIDs
}

// ageSettled remembers how far the totals are, until that is MinAge ago.
func (t *Tx) ageSettled(ctx context.Context) error {
	d := t.store.dialect
	_, err := t.write(ctx, "see what comes of age", ageSettled+d.now+ifAged+d.until, -t.store.minAge.Microseconds())
	return err
}

// Archive moves the oldest rows of the ledger that were accepted before a time into its archive, up to
// most of them, 1 to MaxArchived, in one transaction. It returns how many: fewer are no failure.
//
//  1. Rows are moved in the order of their ids, without a gap. The first one that may not be moved
//     ends the move.
//  2. A row stays that is younger than the time, or not in the running totals for MinAge, and
//     the newest row stays. A time less than MinAge ago is ErrTooYoung.
//  3. A row is in the ledger or in the archive, never in both and never in neither, whatever fails. Where
//     both would differ, ErrNotMoved: nothing was moved.
//  4. Of two that run at once, one waits for the other.
//  5. What was archived is found, listed, returned, counted for its buyer and audited as before.
//  6. A request id of the archive is used up: nothing is sold, restocked or returned under it again.
func (s *Store) Archive(ctx context.Context, before time.Time, most int) (moved int64, err error) {
	return s.moveOld(ctx, before, func(tx *Tx) (int64, error) {
		return tx.archive(ctx, before, min(max(most, 1), MaxArchived))
	})
}

// moveOld makes one move in a transaction. ErrTooYoung: before is less than MinAge ago.
func (s *Store) moveOld(ctx context.Context, before time.Time, move func(*Tx) (int64, error)) (moved int64, err error) {
	if s.sharded {
		return 0, ErrNoArchive
	}
	if time.Since(before) < s.minAge {
		return 0, fmt.Errorf("%w: %s is less than %s ago", ErrTooYoung, before.UTC().Format(time.DateTime), s.minAge)
	}
	err = s.InTx(ctx, func(tx *Tx) (err error) {
		moved, err = move(tx)
		return err
	})
	if err != nil {
		return 0, err
	}
	return moved, nil
}

// archive moves one batch. The lock of what is settled keeps others out that move, or settle.
func (t *Tx) archive(ctx context.Context, before time.Time, most int) (moved int64, err error) {
	var archived, aged int64
	err = t.conn().QueryRowContext(ctx, readArchived+t.store.dialect.forUpdate).Scan(&archived, &aged)
	if err != nil {
		return 0, t.store.fault(ctx, "read what is archived", err)
	}
	upto, err := t.movable(ctx, archived, aged, before, most)
	if err != nil || upto == 0 {
		return 0, err
	}
	copied, err := t.write(ctx, "copy rows into the archive", copyRows, archived, upto)
	if err != nil {
		return 0, err
	}
	moved, err = t.write(ctx, "delete archived rows", deleteRows, archived, upto)
	if err != nil {
		return 0, err
	}
	if moved != copied {
		return 0, fmt.Errorf("%w: %d and %d, after row %d and up to %d", ErrNotMoved, copied, moved, archived, upto)
	}
	_, err = t.write(ctx, "set what is archived", setArchived, upto)
	return moved, err
}

// movable is the id up to which the rows after another one may be moved, or 0.
func (t *Tx) movable(ctx context.Context, after, aged int64, before time.Time, most int) (upto int64, err error) {
	if err := t.conn().QueryRowContext(ctx, endOfBatch, after, aged, most).Scan(&upto); err != nil || upto == 0 {
		return 0, t.store.fault(ctx, "read what can be archived", err)
	}
	var stays int64
	if err := t.conn().QueryRowContext(ctx, firstToStay, after, upto, before.UTC()).Scan(&stays); err != nil {
		return 0, t.store.fault(ctx, "read what can be archived", err)
	}
	if stays > 0 {
		upto = stays - 1
	}
	if upto <= after {
		return 0, nil
	}
	return upto, nil
}

// maxEndedMoved bounds the reservations of one move: its statements name each of them.
const maxEndedMoved = 1000

const (
	// selectEnded is in the order of its index, of which it reads no more than it locks. A confirmed reservation
	// stays: it is an order, whose payment reference is unique in this table, as the lines of a basket are.
	selectEnded = `SELECT number` + fromReservations + `WHERE state IN ('expired', 'released') AND expires_at < ?
		ORDER BY state, expires_at LIMIT ?`

	copyEnded   = `INSERT INTO tb_reservation_archive (` + reservationColumns + `) SELECT ` + reservationColumns + fromReservations + whereNumbers
	deleteEnded = `DELETE` + fromReservations + whereNumbers
)

// ArchiveReservations moves reservations that were released or have expired, and whose time was over before a time,
// into their archive, up to most of them in one transaction, and returns how many. It waits for none that another
// transaction has locked: the next move takes it. What was moved is found, and is answered as before.
func (s *Store) ArchiveReservations(ctx context.Context, before time.Time, most int) (moved int64, err error) {
	return s.moveOld(ctx, before, func(tx *Tx) (int64, error) {
		return tx.archiveReservations(ctx, before, min(max(most, 1), maxEndedMoved))
	})
}

func (t *Tx) archiveReservations(ctx context.Context, before time.Time, most int) (moved int64, err error) {
	d := t.store.dialect
	ended, err := readAll(ctx, t.store, t.conn(), "read ended reservations", scanOne[string], selectEnded+d.skipLocked, before.UTC().Format(d.columnTime), most)
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	list, numbers := listOf(len(ended), `?`)+`)`, anys(ended)
	if _, err := t.write(ctx, "copy ended reservations into their archive", copyEnded+list, numbers...); err != nil {
		return 0, err
	}
	return t.write(ctx, "delete archived reservations", deleteEnded+list, numbers...)
}

// ArchiveState is how far the ledger is archived, in its ids.
type ArchiveState struct {
	// Archived is the last id that was moved, First that of the row after it, or 0, and Last that of
	// the newest row.
	Archived, First, Last int64
	// Settled is the last id that is in the running totals, and Aged the last one that was MinAge ago.
	Settled, Aged int64
	// Oldest is when the first row was accepted; zero: there is none.
	Oldest time.Time
}

// ArchiveState reads how far the ledger is archived.
func (s *Store) ArchiveState(ctx context.Context) (at ArchiveState, err error) {
	var oldest sql.Null[moment]
	err = s.pool.QueryRowContext(ctx, readArchiveState).Scan(&at.Archived, &at.Aged, &at.Settled, &at.Last, &at.First, &oldest)
	at.Oldest = oldest.V.Time
	return at, s.fault(ctx, "read what is archived", err)
}
