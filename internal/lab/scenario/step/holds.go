package step

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/pkg/client"
)

// The figures of holds.
const (
	UnitsPaid    = "units_paid"
	UnitsBack    = "units_back"
	UnitsWrong   = "units_oversold_or_lost"
	PaidTooLate  = "payments_too_late"
	OthersServed = "other_buyers_served"
	UnitsHeld    = "units_held"
)

// holdLasts is how long the holds of these steps last.
const holdLasts = time.Second

// naiveHolds keeps holds as tutorials have them: a state and a timestamp in a row, read,
// compared, and written back by anyone.
type naiveHolds struct {
	db   *sql.DB
	item int64
}

// openNaive makes the tables for one item with so many units.
func openNaive(ctx context.Context, s *scenario.Environment, units int) (naiveHolds, error) {
	db, _, err := s.Backends.Database.Pool(4, patience)
	if err != nil {
		return naiveHolds{}, err
	}
	s.Later(db.Close)
	n := naiveHolds{db, s.Item}
	for _, statement := range []string{
		`CREATE TABLE IF NOT EXISTS lab_hold (id BIGINT PRIMARY KEY AUTO_INCREMENT, item BIGINT, state VARCHAR(8), expires_at DATETIME(6))`,
		`CREATE TABLE IF NOT EXISTS lab_hold_stock (item BIGINT PRIMARY KEY, units BIGINT)`,
		`CREATE TABLE IF NOT EXISTS lab_hold_order (item BIGINT, hold BIGINT)`,
		fmt.Sprintf(`INSERT INTO lab_hold_stock (item, units) VALUES (%d, %d)`, s.Item, units),
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return naiveHolds{}, err
		}
	}
	return n, nil
}

func (n naiveHolds) add(ctx context.Context, units int) error {
	_, err := n.db.ExecContext(ctx, `UPDATE lab_hold_stock SET units = units + ? WHERE item = ?`, units, n.item)
	return err
}

// hold takes a unit until it expires.
func (n naiveHolds) hold(ctx context.Context) (id int64, err error) {
	if err := n.add(ctx, -1); err != nil {
		return 0, err
	}
	held, err := n.db.ExecContext(ctx, `INSERT INTO lab_hold (item, state, expires_at) VALUES (?, 'held', NOW(6) + INTERVAL ? MICROSECOND)`,
		n.item, holdLasts.Microseconds())
	if err != nil {
		return 0, err
	}
	return held.LastInsertId()
}

// isHeld is what a payment reads before it writes.
func (n naiveHolds) isHeld(ctx context.Context, id int64) (held bool, err error) {
	err = n.db.QueryRowContext(ctx, `SELECT state = 'held' FROM lab_hold WHERE id = ?`, id).Scan(&held)
	return held, err
}

func (n naiveHolds) set(ctx context.Context, id int64, state string) error {
	_, err := n.db.ExecContext(ctx, `UPDATE lab_hold SET state = ? WHERE id = ?`, state, id)
	return err
}

// over are the holds whose time is over, as a sweeper reads them.
func (n naiveHolds) over(ctx context.Context) (ids []int64, err error) {
	rows, err := n.db.QueryContext(ctx, `SELECT id FROM lab_hold WHERE item = ? AND state = 'held' AND expires_at <= NOW(6)`, n.item)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// end gives the units of holds back, in two statements each.
func (n naiveHolds) end(ctx context.Context, ids []int64) error {
	for _, id := range ids {
		if err := errors.Join(n.set(ctx, id, "expired"), n.add(ctx, 1)); err != nil {
			return err
		}
	}
	return nil
}

func (n naiveHolds) figure(ctx context.Context, s *scenario.Environment, name, query string) error {
	var value float64
	if err := n.db.QueryRowContext(ctx, query, n.item).Scan(&value); err != nil {
		return err
	}
	return s.Figure(name, value)
}

// NaivePayment has a payment read that its hold is held, and write that it is paid after the
// sweeper has given the unit back and another buyer has paid for it.
func NaivePayment() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		n, err := openNaive(ctx, s, 1)
		if err != nil {
			return err
		}
		first, err := n.hold(ctx)
		if err != nil {
			return err
		}
		held, err := n.isHeld(ctx, first)
		if err := errors.Join(err, s.Mark("payment of the first", fmt.Sprintf("reads that the hold is held: %v", held)), pause.For(ctx, holdLasts+holdLasts/4)); err != nil {
			return err
		}
		ids, err := n.over(ctx)
		if err := errors.Join(err, n.end(ctx, ids), s.Mark("sweeper", "gives the unit back")); err != nil {
			return err
		}
		second, err := n.hold(ctx)
		err = errors.Join(err, n.set(ctx, second, "paid"), s.Mark("second buyer", "holds the unit and pays"))
		if held {
			err = errors.Join(err, n.set(ctx, first, "paid"), s.Mark("payment of the first", "writes that the hold is paid"))
		}
		return errors.Join(err, n.figure(ctx, s, UnitsPaid, `SELECT COUNT(*) FROM lab_hold WHERE item = ? AND state = 'paid'`))
	}
}

// NaiveSweepers has two sweepers read the same holds that are over, and each give them back; the
// second dies instead between the two statements of each, where it is killed.
func NaiveSweepers(units int, killed bool) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		n, err := openNaive(ctx, s, units)
		if err != nil {
			return err
		}
		for range units {
			if _, err := n.hold(ctx); err != nil {
				return err
			}
		}
		if err := pause.For(ctx, holdLasts+holdLasts/4); err != nil {
			return err
		}
		first, err := n.over(ctx)
		if err != nil {
			return err
		}
		if killed {
			for _, id := range first {
				err = errors.Join(err, n.set(ctx, id, "expired"))
			}
			err = errors.Join(err, s.Mark("sweeper", "killed between the state and the stock"))
		}
		second, look := n.over(ctx)
		if !killed {
			err = errors.Join(err, n.end(ctx, first), s.Mark("first sweeper", "gives the units back"))
		}
		err = errors.Join(err, look, n.end(ctx, second), s.Mark("second sweeper", "gives back what it has read"))
		return errors.Join(err, n.figure(ctx, s, UnitsBack, `SELECT units FROM lab_hold_stock WHERE item = ?`))
	}
}

// shop speaks to the replicas as a shop's server does.
func shop(s *scenario.Environment) client.Client {
	return client.Client{URL: s.URL(0), AdminURL: s.Client().AdminURL, Token: s.Client().Token}
}

// shopAt speaks to one replica, counted from 0.
func shopAt(s *scenario.Environment, replica int) client.Client {
	of := s.Cluster.ClientOf(replica)
	return client.Client{URL: of.URL, AdminURL: of.AdminURL, Token: of.Token}
}

// reserve holds a unit of the item.
func reserve(ctx context.Context, s *scenario.Environment, strategy, user string, lasts time.Duration) (client.Reservation, error) {
	return shop(s).Reserve(ctx, client.Purchase{GoodsID: s.Item, Strategy: strategy, UserID: user}, lasts)
}

// reserveSoon holds a unit as soon as one is back.
func reserveSoon(ctx context.Context, s *scenario.Environment, strategy string) (held client.Reservation, err error) {
	for range 400 {
		if held, err = reserve(ctx, s, strategy, "", holdLasts); !errors.Is(err, client.ErrSoldOut) {
			return held, err
		}
		if err := pause.For(ctx, 25*time.Millisecond); err != nil {
			return held, err
		}
	}
	return held, err
}

// LatePayment has a reservation expire, another buyer reserve and pay for its unit, and the first
// payment come then.
func LatePayment(strategy string) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		first, err := reserve(ctx, s, strategy, "", holdLasts)
		if err != nil {
			return err
		}
		second, err := reserveSoon(ctx, s, strategy)
		if err != nil {
			return err
		}
		if _, err := shop(s).Confirm(ctx, second.ReservationID, "second-"+second.ReservationID); err != nil {
			return err
		}
		if err := s.Mark("second buyer", "holds the unit and pays"); err != nil {
			return err
		}
		_, err = shop(s).Confirm(ctx, first.ReservationID, "first-"+first.ReservationID)
		late := 0.0
		if errors.Is(err, client.ErrReservationExpired) {
			late, err = 1, s.Mark("payment of the first", "is rejected: the reservation has expired")
		}
		return errors.Join(err, s.Figure(PaidTooLate, late), auditOf(ctx, s, UnitsPaid, func(a client.Audit) int64 { return a.Sold }))
	}
}

func auditOf(ctx context.Context, s *scenario.Environment, name string, of func(client.Audit) int64) error {
	audit, err := shop(s).AuditInFull(ctx, s.Item)
	return errors.Join(err, s.Figure(name, float64(of(audit))), s.Figure(UnitsWrong, unitsWrong(audit)))
}

// unitsWrong counts the units that were oversold and those that were lost. Lost is below zero where
// stock is missing, which does not make up for what was oversold.
func unitsWrong(audit client.Audit) float64 {
	return float64(audit.Oversold + max(audit.Lost, -audit.Lost))
}

// Expire has reservations of units expire at the same time, and waits until their units are back:
// every replica sweeps, but the last one, where it is killed.
func Expire(strategy string, units int, killed bool) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		var holding sync.WaitGroup
		errs := make([]error, units)
		for i := range errs {
			holding.Go(func() { _, errs[i] = reserve(ctx, s, strategy, "", holdLasts) })
		}
		holding.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		if killed {
			s.Spoil()
			last := len(s.Cluster.Replicas) - 1
			if err := errors.Join(pause.For(ctx, holdLasts), s.Cluster.Replicas[last].Kill(ctx), s.Mark(fmt.Sprintf("replica %d", last+1), "killed among the sweepers")); err != nil {
				return err
			}
		}
		audit, err := whenNothingIsHeld(ctx, s)
		return errors.Join(err, s.Figure(UnitsBack, float64(audit.Stock)), s.Figure(UnitsWrong, unitsWrong(audit)))
	}
}

// whenNothingIsHeld audits the item when all of its reservations have ended, for 20 s at most.
func whenNothingIsHeld(ctx context.Context, s *scenario.Environment) (audit client.Audit, err error) {
	for range 400 {
		if audit, err = shop(s).AuditInFull(ctx, s.Item); err != nil || audit.Held == 0 {
			return audit, err
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil {
			return audit, err
		}
	}
	return audit, fmt.Errorf("%d units are still held", audit.Held)
}

// HoldAll has one buyer reserve as many units as it gets, and another one ask for one.
func HoldAll(strategy string, units int64, perUser int64) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		if err := s.Client().CreateLimited(ctx, s.Item, units, perUser); err != nil {
			return err
		}
		for range units {
			_, err := reserve(ctx, s, strategy, "the first buyer", time.Minute)
			if errors.Is(err, client.ErrUserLimit) {
				break
			}
			if err != nil {
				return err
			}
		}
		_, err := reserve(ctx, s, strategy, "another buyer", time.Minute)
		served := 1.0
		if errors.Is(err, client.ErrSoldOut) {
			served, err = 0, nil
		}
		return errors.Join(err, s.Figure(OthersServed, served), auditOf(ctx, s, UnitsHeld, func(a client.Audit) int64 { return a.Held }))
	}
}
