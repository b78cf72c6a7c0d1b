package step

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
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

// The figures of payments that are reported more than once, late, or in the moment of the expiry.
const (
	OrdersMade   = "orders_of_one_payment"
	PaidAndBack  = "paid_and_given_back"
	PaidInTime   = "paid_in_time"
	ExpiredFirst = "expired_first"
)

// holdLasts is how long the holds of these steps last.
const holdLasts = time.Second

// naiveHolds keeps holds as tutorials have them: a state and a timestamp in a row, read,
// compared, and written back by anyone.
type naiveHolds struct {
	*scenario.Try

	db *sql.DB
}

// openNaive makes the tables for one item with so many units.
func openNaive(x *scenario.Try, units int) naiveHolds {
	db, _, err := x.Backends.Database.Pool(4, patience)
	x.Must(err)
	x.Later(db.Close)
	n := naiveHolds{x, db}
	n.exec(`CREATE TABLE IF NOT EXISTS lab_hold (id BIGINT PRIMARY KEY AUTO_INCREMENT, item BIGINT, state VARCHAR(8), expires_at DATETIME(6))`)
	n.exec(`CREATE TABLE IF NOT EXISTS lab_hold_stock (item BIGINT PRIMARY KEY, units BIGINT)`)
	n.exec(`CREATE TABLE IF NOT EXISTS lab_hold_order (item BIGINT, hold BIGINT)`)
	n.exec(`INSERT INTO lab_hold_stock (item, units) VALUES (?, ?)`, x.Item, units)
	return n
}

func (n naiveHolds) exec(statement string, args ...any) sql.Result {
	result, err := n.db.ExecContext(n, statement, args...)
	n.Must(err)
	return result
}

func (n naiveHolds) add(units int) {
	n.exec(`UPDATE lab_hold_stock SET units = units + ? WHERE item = ?`, units, n.Item)
}

// hold takes a unit until it expires.
func (n naiveHolds) hold() (id int64) {
	n.add(-1)
	id, err := n.exec(`INSERT INTO lab_hold (item, state, expires_at) VALUES (?, 'held', NOW(6) + INTERVAL ? MICROSECOND)`,
		n.Item, holdLasts.Microseconds()).LastInsertId()
	n.Must(err)
	return id
}

// isHeld is what a payment reads before it writes.
func (n naiveHolds) isHeld(id int64) (held bool) {
	n.Must(n.db.QueryRowContext(n, `SELECT state = 'held' FROM lab_hold WHERE id = ?`, id).Scan(&held))
	return held
}

func (n naiveHolds) set(id int64, state string) {
	n.exec(`UPDATE lab_hold SET state = ? WHERE id = ?`, state, id)
}

// over are the holds whose time is over, as a sweeper reads them.
func (n naiveHolds) over() (ids []int64) {
	rows, err := n.db.QueryContext(n, `SELECT id FROM lab_hold WHERE item = ? AND state = 'held' AND expires_at <= NOW(6)`, n.Item)
	n.Must(err)
	defer rows.Close() //nolint:errcheck // rows.Err tells
	for rows.Next() {
		var id int64
		n.Must(rows.Scan(&id))
		ids = append(ids, id)
	}
	n.Must(rows.Err())
	return ids
}

// end gives the units of holds back, in two statements each.
func (n naiveHolds) end(ids []int64) {
	for _, id := range ids {
		n.set(id, "expired")
		n.add(1)
	}
}

// pay makes an order of a hold.
func (n naiveHolds) pay(hold int64) {
	n.exec(`INSERT INTO lab_hold_order (item, hold) VALUES (?, ?)`, n.Item, hold)
	n.set(hold, "paid")
}

func (n naiveHolds) figure(name, query string) {
	var value float64
	n.Must(n.db.QueryRowContext(n, query, n.Item).Scan(&value))
	n.Figure(name, value)
}

// NaivePayment has a payment read that its hold is held, and write that it is paid after the
// sweeper has given the unit back and another buyer has paid for it.
func NaivePayment() scenario.Step {
	return func(x *scenario.Try) {
		n := openNaive(x, 1)
		first := n.hold()
		held := n.isHeld(first)
		n.Mark("payment of the first", fmt.Sprintf("reads that the hold is held: %v", held))
		wait(x, holdLasts+holdLasts/4)
		n.end(n.over())
		n.Mark("sweeper", "gives the unit back")
		n.set(n.hold(), "paid")
		n.Mark("second buyer", "holds the unit and pays")
		if held {
			n.set(first, "paid")
			n.Mark("payment of the first", "writes that the hold is paid")
		}
		n.figure(UnitsPaid, `SELECT COUNT(*) FROM lab_hold WHERE item = ? AND state = 'paid'`)
	}
}

// NaiveSweepers has two sweepers read the same holds that are over, and each give them back; the
// second dies instead between the two statements of each, where it is killed.
func NaiveSweepers(units int, killed bool) scenario.Step {
	return func(x *scenario.Try) {
		n := openNaive(x, units)
		for range units {
			n.hold()
		}
		wait(x, holdLasts+holdLasts/4)
		first := n.over()
		if killed {
			for _, id := range first {
				n.set(id, "expired")
			}
			n.Mark("sweeper", "killed between the state and the stock")
		}
		second := n.over()
		if !killed {
			n.end(first)
			n.Mark("first sweeper", "gives the units back")
		}
		n.end(second)
		n.Mark("second sweeper", "gives back what it has read")
		n.figure(UnitsBack, `SELECT units FROM lab_hold_stock WHERE item = ?`)
	}
}

// NaiveCallbacks has the report of a payment come twice, and one of an earlier try that failed come last.
func NaiveCallbacks() scenario.Step {
	return func(x *scenario.Try) {
		n := openNaive(x, 1)
		first := n.hold()
		found := []bool{n.isHeld(first), n.isHeld(first)} // both read before either writes
		n.Mark("report of the payment", "comes twice, and both find the hold held")
		for _, held := range found {
			if held {
				n.pay(first)
			}
		}
		n.set(first, "released")
		n.add(1)
		n.Mark("report of a failed try", "comes last, and gives the unit back")
		n.pay(n.hold())
		n.Mark("second buyer", "pays for the unit")
		n.figure(OrdersMade, `SELECT COUNT(*) - COUNT(DISTINCT hold) + 1 FROM lab_hold_order WHERE item = ?`)
		n.figure(UnitsPaid, `SELECT COUNT(DISTINCT hold) FROM lab_hold_order WHERE item = ?`)
	}
}

// NaiveMoment has a payment and a sweeper read the same hold in the moment in which its time is over.
func NaiveMoment() scenario.Step {
	return func(x *scenario.Try) {
		n := openNaive(x, 1)
		id := n.hold()
		wait(x, holdLasts)
		held, over := n.isHeld(id), n.over()
		n.Mark("payment and sweeper", "read the hold in the same millisecond")
		n.set(id, "paid")
		n.Mark("payment", "writes that it is paid")
		n.end(over)
		n.Mark("sweeper", "gives the unit back")
		n.Figure(PaidAndBack, oneIf(held && len(over) == 1))
	}
}

// confirm pays for a reservation at one replica, from 0, under a key of its own, and reports whether that was in time.
func confirm(x *scenario.Try, replica int, held client.Reservation) (inTime bool) {
	_, err := x.Cluster.ClientOf(replica).Shop().Confirm(x, held.ReservationID, "paid-"+held.ReservationID)
	if errors.Is(err, client.ErrReservationExpired) {
		return false
	}
	x.Must(err)
	return true
}

// reserve holds a unit of the item; ok is false where there is none for the user.
func reserve(x *scenario.Try, strategy, user string, lasts time.Duration) (held client.Reservation, ok bool) {
	held, err := x.Client().Shop().Reserve(x, client.Purchase{GoodsID: x.Item, Strategy: strategy, UserID: user}, lasts)
	if errors.Is(err, client.ErrSoldOut) || errors.Is(err, client.ErrUserLimit) {
		return held, false
	}
	x.Must(err)
	return held, true
}

// mustReserve holds a unit that is there.
func mustReserve(x *scenario.Try, strategy string, lasts time.Duration) client.Reservation {
	held, ok := reserve(x, strategy, "", lasts)
	if !ok {
		x.Must(client.ErrSoldOut)
	}
	return held
}

// mustConfirm pays in time.
func mustConfirm(x *scenario.Try, replica int, held client.Reservation) {
	if !confirm(x, replica, held) {
		x.Must(client.ErrReservationExpired)
	}
}

// LatePayment has a reservation expire, another buyer reserve and pay for its unit, and the first
// payment come then.
func LatePayment(strategy string) scenario.Step {
	return func(x *scenario.Try) {
		first := mustReserve(x, strategy, holdLasts)
		second, ok := reserve(x, strategy, "", holdLasts)
		for began := time.Now(); !ok && time.Since(began) < patience; second, ok = reserve(x, strategy, "", holdLasts) {
			wait(x, 25*time.Millisecond)
		}
		mustConfirm(x, 0, second)
		x.Mark("second buyer", "holds the unit and pays")
		inTime := confirm(x, 0, first)
		if !inTime {
			x.Mark("payment of the first", "is rejected: the reservation has expired")
		}
		x.Figure(PaidTooLate, oneIf(!inTime))
		x.Figure(UnitsPaid, float64(audited(x).Sold))
	}
}

// audited is the audit of the item in full, and writes down how many units are wrong.
func audited(x *scenario.Try) client.Audit {
	audit, err := x.Client().Shop().AuditInFull(x, x.Item)
	x.Must(err)
	x.Figure(UnitsWrong, unitsWrong(audit))
	return audit
}

// unitsWrong counts the units that were oversold and those that were lost. Lost is below zero where
// stock is missing, which does not make up for what was oversold.
func unitsWrong(audit client.Audit) float64 {
	return float64(audit.Oversold + max(audit.Lost, -audit.Lost))
}

// Expire has reservations of units expire at the same time, and waits until their units are back:
// every replica sweeps, but the last one, where it is killed.
func Expire(strategy string, units int, killed bool) scenario.Step {
	return func(x *scenario.Try) {
		x.Each(units, func(int) { mustReserve(x, strategy, holdLasts) })
		if killed {
			x.Spoil()
			last := len(x.Cluster.Replicas) - 1
			wait(x, holdLasts)
			x.Must(x.Cluster.Replicas[last].Kill(x))
			x.Mark(fmt.Sprintf("replica %d", last+1), "killed among the sweepers")
		}
		awaitNoHold(x)
		x.Figure(UnitsBack, float64(audited(x).Stock))
	}
}

// awaitNoHold waits until all reservations of the item have ended, for 20 s at most.
func awaitNoHold(x *scenario.Try) {
	for range 400 {
		audit, err := x.Client().Shop().AuditInFull(x, x.Item)
		if x.Must(err); audit.Held == 0 {
			return
		}
		wait(x, 50*time.Millisecond)
	}
	x.Must(errors.New("units are still held"))
}

// HoldAll has one buyer reserve as many units as it gets, and another one ask for one.
func HoldAll(strategy string, units int64, perUser int64) scenario.Step {
	return func(x *scenario.Try) {
		x.Must(x.Client().Create(x, client.NewItem{GoodsID: x.Item, Stock: units, PerUser: perUser}))
		for range units {
			if _, ok := reserve(x, strategy, "the first buyer", time.Minute); !ok {
				break
			}
		}
		_, served := reserve(x, strategy, "another buyer", time.Minute)
		x.Figure(OthersServed, oneIf(served))
		x.Figure(UnitsHeld, float64(audited(x).Held))
	}
}

// Callbacks is NaiveCallbacks with a reservation: the reports come at the same time, at two replicas.
func Callbacks(strategy string) scenario.Step {
	return func(x *scenario.Try) {
		held := mustReserve(x, strategy, time.Minute)
		x.Each(2, func(i int) { mustConfirm(x, i, held) })
		_, err := x.Client().Shop().Release(x, held.ReservationID)
		if errors.Is(err, client.ErrReservationConfirmed) {
			x.Mark("report of a failed try", "comes last, and is rejected")
			err = nil
		}
		x.Must(err)
		if second, ok := reserve(x, strategy, "", time.Minute); ok {
			mustConfirm(x, 0, second)
		}
		orders := 0.0
		for _, err := range x.Client().Shop().Orders(x, client.Pages{GoodsID: x.Item}) {
			x.Must(err)
			orders++
		}
		x.Figure(OrdersMade, orders)
		x.Figure(UnitsPaid, float64(audited(x).Sold))
	}
}

// moments bounds how often Moment is made: on a busy machine all payments of one may come too late.
const moments = 5

// Moment has units paid around the moment in which their reservations expire, at every replica by turns,
// while all replicas sweep. It is made again where none was paid in time, and all of them count.
func Moment(strategy string, units int) scenario.Step {
	return func(x *scenario.Try) {
		var inTime, expired atomic.Int64
		for made := 0; made < moments && inTime.Load() == 0; made++ {
			x.Each(units, func(i int) {
				held := mustReserve(x, strategy, holdLasts)
				// Up to 4 ms before the expiry, or as late.
				x.Must(pause.For(x, time.Until(held.ExpiresAt.Add(time.Duration(i%9-4)*time.Millisecond))))
				if confirm(x, i%len(x.Cluster.Replicas), held) {
					inTime.Add(1)
				} else {
					expired.Add(1)
				}
			})
			awaitNoHold(x)
		}
		x.Figure(PaidInTime, float64(inTime.Load()))
		x.Figure(ExpiredFirst, float64(expired.Load()))
		x.Figure(PaidAndBack, paidWrongly(inTime.Load(), audited(x).Sold))
	}
}

// paidWrongly is by how much the payments that were answered as done and the sales differ, whichever
// are more.
func paidWrongly(answered, sold int64) float64 { return math.Abs(float64(answered - sold)) }
