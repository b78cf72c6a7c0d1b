package repo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/stock"
)

// Payment confirms a reservation.
type Payment struct {
	Number, Reference string
}

// Confirmation is the answer to a payment.
type Confirmation struct {
	stock.Reservation

	// Again reports that the reservation was confirmed under this reference before.
	Again bool
	// Rejected is why nothing is confirmed, or nil. stock.ErrConfirmed: it was confirmed under
	// another reference. stock.ErrReferenceUsed: the reference has confirmed another
	// reservation. stock.ErrReleased, stock.ErrExpired, stock.ErrUnknownReservation.
	Rejected error
}

// Confirm makes orders of reservations that are held and whose time is not over, in one
// transaction. Each payment is answered as if it had come alone, in the order of the arguments.
// An error is that of all of them; after stock.ErrUnknownOutcome the same again finds out.
//
// It waits for no reservation that another transaction has locked: its payments have no answer, and are
// for ConfirmLocked.
func (s *Store) Confirm(ctx context.Context, payments ...*Payment) (map[*Payment]Confirmation, error) {
	return s.confirmEach(ctx, false, payments)
}

// ConfirmLocked is Confirm, and waits for what is locked.
func (s *Store) ConfirmLocked(ctx context.Context, payments ...*Payment) (map[*Payment]Confirmation, error) {
	return s.confirmEach(ctx, true, payments)
}

func (s *Store) confirmEach(ctx context.Context, waits bool, payments []*Payment) (map[*Payment]Confirmation, error) {
	if !s.sharded { // where they may be on several
		answers, err := s.confirm(ctx, false, waits, payments)
		if !errors.Is(err, stock.ErrReferenceUsed) {
			return answers, err
		}
	}
	answers := make(map[*Payment]Confirmation, len(payments)) // the database does not say which: each is answered alone
	for _, p := range payments {
		answer, err := s.confirm(ctx, false, waits, []*Payment{p})
		if err != nil {
			answer = map[*Payment]Confirmation{p: {Rejected: err}}
		}
		maps.Copy(answers, answer)
	}
	return answers, nil
}

// ConfirmAll confirms all of several reservations or none, each under its number as the reference.
// again: they were confirmed so before. Where one is rejected, the error is as its
// Confirmation.Rejected.
func (s *Store) ConfirmAll(ctx context.Context, numbers []string) (confirmed []stock.Reservation, again bool, err error) {
	payments := make([]*Payment, len(numbers))
	for i, number := range numbers {
		payments[i] = &Payment{Number: number, Reference: number}
	}
	answers, err := s.confirm(ctx, true, true, payments)
	if err != nil {
		return nil, false, err
	}
	again = true
	for _, p := range payments {
		confirmed = append(confirmed, answers[p].Reservation)
		again = again && answers[p].Again
	}
	return confirmed, again, nil
}

const linesOfBasket = `WHERE number > ? AND number < ? AND state = 'confirmed' ORDER BY goods_id`

// ConfirmedLines finds the lines of a basket that are confirmed, in the order of their items: the
// reservations whose numbers begin with its number and "-".
func (s *Store) ConfirmedLines(ctx context.Context, number string) ([]stock.Reservation, error) {
	return s.readReservations(ctx, s.pool, "read lines", linesOfBasket, number+"-", number+".")
}

// confirm answers payments in one transaction. Where all must be
// confirmed, the error is the first of their rejections. stock.ErrReferenceUsed: the reference of one
// of them, and nothing was written.
func (s *Store) confirm(ctx context.Context, all, waits bool, payments []*Payment) (answers map[*Payment]Confirmation, err error) {
	var of heldRow // of SeveralItems, or an unknown one
	if waits && len(payments) == 1 && isNumber(payments[0].Number) {
		if of, err = s.readReservation(ctx, s.pool, payments[0].Number, ""); err != nil && !errors.Is(err, stock.ErrUnknownReservation) {
			return nil, err
		}
	}
	err = s.whileRowsChange(ctx, of.GoodsID, true, func(tx *Tx) (err error) {
		answers, err = tx.confirm(ctx, payments, waits)
		for _, p := range payments {
			if all && err == nil {
				err = answers[p].Rejected
			}
		}
		return err
	})
	if errors.Is(err, stock.ErrDuplicateRequest) || errors.Is(err, stock.ErrApart) && !all {
		err = stock.ErrReferenceUsed // where it is alone, of a reservation on another shard
	}
	return answers, err
}

// confirm takes the step of those reservations that are held. It waits for those that are locked, or does
// not answer their payments.
func (t *Tx) confirm(ctx context.Context, payments []*Payment, waits bool) (map[*Payment]Confirmation, error) {
	found, locked, err := t.lockReservations(ctx, payments, waits)
	if err != nil {
		return nil, err
	}
	answers := make(map[*Payment]Confirmation, len(payments))
	var due []*Payment
	var confirmed []stock.Reservation
	for _, p := range payments {
		r, ok := found[p.Number]
		_, skipped := locked[p.Number]
		switch {
		case skipped:
		case !ok:
			answers[p] = Confirmation{Rejected: stock.ErrUnknownReservation}
		case r.State == stock.Confirmed && r.PaymentReference == p.Reference:
			answers[p] = Confirmation{Reservation: r.Reservation, Again: true}
		case r.State != stock.Held || r.isOver():
			answers[p] = Confirmation{Reservation: r.Reservation, Rejected: r.NotHeld()}
		default:
			r.State, r.PaymentReference = stock.Confirmed, p.Reference
			found[p.Number] = r // a later payment finds it so
			answers[p] = Confirmation{Reservation: r.Reservation}
			due, confirmed = append(due, p), append(confirmed, r.Reservation)
		}
	}
	if len(due) == 0 {
		return answers, nil
	}
	atOnce := len(due)
	if t.store.sharded { // Vitess sets a reference, which it looks up, to a value alone
		atOnce = 1
	}
	for some := range slices.Chunk(due, atOnce) {
		if err := t.setConfirmed(ctx, some); err != nil {
			return nil, err
		}
	}
	return answers, t.appendNumbered(ctx, "append confirmations", t.store.stepsOf(stock.Confirmation, confirmed...))
}

// lockReservations locks several reservations, and finds those that are archived. Where it does not wait, locked are
// those that another transaction has locked.
func (t *Tx) lockReservations(ctx context.Context, payments []*Payment, waits bool) (found, locked map[string]heldRow, err error) {
	lock := t.store.dialect.forUpdate
	if !waits {
		lock = t.store.dialect.skipLocked
	}
	if found, err = t.readPaid(ctx, fromReservations, payments, lock); err != nil {
		return nil, nil, err
	}
	rest := without(payments, found)
	if !waits {
		if locked, err = t.readPaid(ctx, fromReservations, rest, ""); err != nil {
			return nil, nil, err
		}
	}
	archived, err := t.readPaid(ctx, fromArchive, without(rest, locked), "")
	maps.Copy(found, archived)
	return found, locked, err
}

// without leaves out the payments for reservations that were read.
func without(payments []*Payment, read map[string]heldRow) []*Payment {
	return slices.DeleteFunc(slices.Clone(payments), func(p *Payment) bool { _, ok := read[p.Number]; return ok })
}

// readPaid reads the reservations of payments in a table, and locks them as the end of its statement says, in the order
// of their numbers, which must be that of every caller. Those that are not there are not in the answer.
// What is no number is not asked for: a server may reject the statement for it, which has the payments of
// other buyers as well.
func (t *Tx) readPaid(ctx context.Context, from string, payments []*Payment, lock string) (map[string]heldRow, error) {
	found, numbers := make(map[string]heldRow, len(payments)), make([]any, 0, len(payments))
	for _, p := range payments {
		if isNumber(p.Number) {
			numbers = append(numbers, p.Number)
		}
	}
	if len(numbers) == 0 {
		return found, nil
	}
	statement := t.store.selectAt() + from + whereNumbers + listOf(len(numbers), `?`) + inOrder + lock
	err := t.store.each(ctx, t.conn(), "read reservations", func(scan scanRow) error {
		r, err := scanReservation(scan)
		found[r.Number] = r
		return err
	}, statement, numbers...)
	return found, err
}

const (
	inOrder = `) ORDER BY number`

	setConfirmed = `UPDATE tb_reservation SET state = 'confirmed', payment_reference = `
	whenNumber   = ` WHEN ? THEN ?`
)

// setConfirmed confirms reservations that are locked. ErrRowChanged: the time of one was over just now.
func (t *Tx) setConfirmed(ctx context.Context, due []*Payment) error {
	args := make([]any, 0, 3*len(due))
	for _, p := range due {
		args = append(args, p.Number, p.Reference)
	}
	references := `CASE number` + strings.Repeat(whenNumber, len(due)) + ` END `
	if len(due) == 1 {
		references, args = `? `, args[1:]
	}
	for _, p := range due {
		args = append(args, p.Number)
	}
	statement := setConfirmed + references + whereNumbers + listOf(len(due), `?`) + `)` + andHeld
	rows, err := t.write(ctx, "confirm reservations", statement+t.store.dialect.now, args...)
	if err == nil && rows < int64(len(due)) {
		err = fmt.Errorf("the time of a reservation is over: %w", ErrRowChanged)
	}
	return err
}
