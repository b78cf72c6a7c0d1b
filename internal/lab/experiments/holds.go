package experiments

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/pkg/client"
)

const (
	// heldUnits is how many holds end at the same time, and holdLasts how long they last.
	heldUnits = 40
	holdLasts = time.Second
	// reserved is the strategy of reservations, where a part does not say another one.
	reserved = "sql-conditional"
)

// The figures of holds.
const (
	unitsPaid  = "units_paid"
	unitsBack  = "units_back"
	unitsHeld  = "units_held"
	unitsWrong = "units_oversold_or_lost"
	ordersMade = "orders_of_one_payment"
	// paidAndBack counts units that are paid and given back, and the others what decided in one-decides.
	paidAndBack  = "paid_and_given_back"
	paidInTime   = "paid_in_time"
	expiredFirst = "expired_first"
)

func holds() []Part {
	return []Part{
		naivePayment(), asRemedy(latePayment("sql-conditional")), asRemedy(latePayment("redis-stock", Redis)),
		naiveMoment(), asRemedy(oneDecides()),
		naiveCallbacks(), asRemedy(keyedCallbacks()),
		naiveSweepers("two-sweepers", checker.AtLeast(unitsBack, heldUnits+1), false),
		asRemedy(expires("three-replicas", false)),
		naiveSweepers("sweeper-dies", checker.AtMost(unitsBack, heldUnits-1), true),
		asRemedy(expires("replica-dies", true)),
		holdsAll("no-limit", 0, checker.All(checker.AtMost("other_buyers_served", 0), checker.AtLeast(unitsHeld, 10))),
		asRemedy(holdsAll("limit", 2, checker.All(checker.AtLeast("other_buyers_served", 1), checker.AtMost(unitsHeld, 3)))),
	}
}

// reserving is three replicas, of which each sweeps.
func reserving(needs ...Need) Stage {
	return Stage{Needs: append([]Need{MySQL}, needs...), Replicas: 3}
}

// naiveHolds keeps holds as tutorials have them: a state and a timestamp in a row, read,
// compared, and written back by anyone.
type naiveHolds struct {
	*Try

	db *sql.DB
}

// naive makes the tables for one item with so many units.
func (x *Try) naive(units int) naiveHolds {
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
	return flow.Get(n.db.ExecContext(n, statement, args...))(n.Flow)
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
	_, rows, err := servers.Rows(n, n.db, `SELECT id FROM lab_hold WHERE item = ? AND state = 'held' AND expires_at <= NOW(6)`, n.Item)
	n.Must(err)
	for _, row := range rows {
		id := flow.Get(strconv.ParseInt(row[0], 10, 64))(n.Flow)
		ids = append(ids, id)
	}
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

func naivePayment() Part {
	return newPart("late-payment", on(MySQL), checker.AtLeast(unitsPaid, 2), func(x *Try) {
		n := x.naive(1)
		first := n.hold()
		held := n.isHeld(first)
		n.Mark("payment of the first", fmt.Sprintf("reads that the hold is held: %v", held))
		x.sleep(holdLasts + holdLasts/4)
		n.end(n.over())
		n.Mark("sweeper", "gives the unit back")
		n.set(n.hold(), "paid")
		n.Mark("second buyer", "holds the unit and pays")
		if held {
			n.set(first, "paid")
			n.Mark("payment of the first", "writes that the hold is paid")
		}
		n.figure(unitsPaid, `SELECT COUNT(*) FROM lab_hold WHERE item = ? AND state = 'paid'`)
	})
}

func latePayment(strategy string, needs ...Need) Part {
	seen := checker.All(checker.AtMost(unitsPaid, 1), checker.AtLeast("payments_too_late", 1), checker.AtMost(unitsWrong, 0))
	return newPart("database-decides-"+strategy, reserving(needs...), seen, func(x *Try) {
		x.stock(1)
		first := x.mustReserve(strategy, holdLasts)
		second, ok := x.reserve(strategy, "", holdLasts)
		for began := time.Now(); !ok && time.Since(began) < patience; second, ok = x.reserve(strategy, "", holdLasts) {
			x.sleep(25 * time.Millisecond)
		}
		x.mustConfirm(0, second)
		x.Mark("second buyer", "holds the unit and pays")
		inTime := x.confirm(0, first)
		if !inTime {
			x.Mark("payment of the first", "is rejected: the reservation has expired")
		}
		x.Figure("payments_too_late", checker.OneIf(!inTime))
		x.Figure(unitsPaid, float64(x.audited().Sold))
	})
}

func naiveMoment() Part {
	return newPart("same-millisecond", on(MySQL), checker.AtLeast(paidAndBack, 1), func(x *Try) {
		n := x.naive(1)
		id := n.hold()
		x.sleep(holdLasts)
		held, over := n.isHeld(id), n.over()
		n.Mark("payment and sweeper", "read the hold in the same millisecond")
		n.set(id, "paid")
		n.Mark("payment", "writes that it is paid")
		n.end(over)
		n.Mark("sweeper", "gives the unit back")
		n.Figure(paidAndBack, checker.OneIf(held && len(over) == 1))
	})
}

// oneDecides is done again where none was paid in time, five times at most, and all of them count: on a busy machine
// all payments of one may come too late.
func oneDecides() Part {
	seen := checker.All(checker.AtMost(paidAndBack, 0), checker.AtMost(unitsWrong, 0), checker.AtLeast(paidInTime, 1), checker.AtLeast(expiredFirst, 1))
	return newPart("one-decides", reserving(), seen, func(x *Try) {
		x.stock(heldUnits)
		var inTime, expired atomic.Int64
		for made := 0; made < 5 && inTime.Load() == 0; made++ {
			x.Each(heldUnits, func(i int) {
				held := x.mustReserve(reserved, holdLasts)
				// Up to 4 ms before the expiry, or as late.
				x.Must(pause.For(x, time.Until(held.ExpiresAt.Add(time.Duration(i%9-4)*time.Millisecond))))
				if x.confirm(i%len(x.Cluster.Replicas), held) {
					inTime.Add(1)
				} else {
					expired.Add(1)
				}
			})
			x.awaitNoHold()
		}
		x.Figure(paidInTime, float64(inTime.Load()))
		x.Figure(expiredFirst, float64(expired.Load()))
		x.Figure(paidAndBack, paidWrongly(inTime.Load(), x.audited().Sold))
	})
}

// paidWrongly is by how much the payments that were answered as done and the sales differ, whichever
// are more.
func paidWrongly(answered, sold int64) float64 { return math.Abs(float64(answered - sold)) }

func naiveCallbacks() Part {
	return newPart("callback-twice", on(MySQL), checker.All(checker.AtLeast(ordersMade, 2), checker.AtLeast(unitsPaid, 2)), func(x *Try) {
		n := x.naive(1)
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
		n.figure(ordersMade, `SELECT COUNT(*) - COUNT(DISTINCT hold) + 1 FROM lab_hold_order WHERE item = ?`)
		n.figure(unitsPaid, `SELECT COUNT(DISTINCT hold) FROM lab_hold_order WHERE item = ?`)
	})
}

func keyedCallbacks() Part {
	seen := checker.All(checker.AtLeast(ordersMade, 1), checker.AtMost(ordersMade, 1), checker.AtMost(unitsPaid, 1), checker.AtMost(unitsWrong, 0))
	return newPart("callback-keyed", reserving(), seen, func(x *Try) {
		x.stock(1)
		held := x.mustReserve(reserved, time.Minute)
		x.Each(2, func(i int) { x.mustConfirm(i, held) })
		_, err := x.Client().Shop().Release(x, held.ReservationID)
		if errors.Is(err, client.ErrReservationConfirmed) {
			x.Mark("report of a failed try", "comes last, and is rejected")
			err = nil
		}
		x.Must(err)
		if second, ok := x.reserve(reserved, "", time.Minute); ok {
			x.mustConfirm(0, second)
		}
		sold := x.audited() // not by the feed, which waits for the number of a report that was undone
		x.Figure(ordersMade, float64(sold.Orders))
		x.Figure(unitsPaid, float64(sold.Sold))
	})
}

// naiveSweepers has two sweepers read the same holds that are over, and each give them back; the second dies instead
// between the two statements of each, where it is killed.
func naiveSweepers(name string, seen checker.Check, killed bool) Part {
	return newPart(name, on(MySQL), seen, func(x *Try) {
		n := x.naive(heldUnits)
		for range heldUnits {
			n.hold()
		}
		x.sleep(holdLasts + holdLasts/4)
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
		n.figure(unitsBack, `SELECT units FROM lab_hold_stock WHERE item = ?`)
	})
}

// expires has reservations expire at the same time, and waits until their units are back: every replica sweeps, but
// the last one, where it is killed.
func expires(name string, killed bool) Part {
	seen := checker.All(checker.AtLeast(unitsBack, heldUnits), checker.AtMost(unitsBack, heldUnits), checker.AtMost(unitsWrong, 0))
	return newPart(name, reserving(), seen, func(x *Try) {
		x.stock(heldUnits)
		x.Each(heldUnits, func(int) { x.mustReserve(reserved, holdLasts) })
		if killed {
			x.Spoil()
			last := len(x.Cluster.Replicas) - 1
			x.sleep(holdLasts)
			x.Must(x.Cluster.Replicas[last].Kill(x))
			x.Mark(fmt.Sprintf("replica %d", last+1), "killed among the sweepers")
		}
		x.awaitNoHold()
		x.Figure(unitsBack, float64(x.audited().Stock))
	})
}

// holdsAll has one buyer reserve as many units as it gets, and another one ask for one.
func holdsAll(name string, perUser int64, seen checker.Check) Part {
	return newPart(name, reserving(), seen, func(x *Try) {
		x.Must(x.Client().Create(x, client.NewItem{GoodsID: x.Item, Stock: 10, PerUser: &perUser}))
		for range 10 {
			if _, ok := x.reserve(reserved, "the first buyer", time.Minute); !ok {
				break
			}
		}
		_, served := x.reserve(reserved, "another buyer", time.Minute)
		x.Figure("other_buyers_served", checker.OneIf(served))
		x.Figure(unitsHeld, float64(x.audited().Held))
	})
}

// confirm pays for a reservation at one replica, from 0, under a key of its own, and reports whether that was in time.
func (x *Try) confirm(replica int, held client.Reservation) (inTime bool) {
	_, err := x.Cluster.ClientOf(replica).Shop().Confirm(x, held.ReservationID, "paid-"+held.ReservationID)
	if errors.Is(err, client.ErrReservationExpired) {
		return false
	}
	x.Must(err)
	return true
}

// reserve holds a unit of the item; ok is false where there is none for the user.
func (x *Try) reserve(strategy, user string, lasts time.Duration) (held client.Reservation, ok bool) {
	held, err := x.Client().Shop().Reserve(x, client.Purchase{GoodsID: x.Item, Strategy: strategy, UserID: user}, lasts)
	if errors.Is(err, client.ErrSoldOut) || errors.Is(err, client.ErrUserLimit) {
		return held, false
	}
	x.Must(err)
	return held, true
}

// mustReserve holds a unit that is there.
func (x *Try) mustReserve(strategy string, lasts time.Duration) client.Reservation {
	held, ok := x.reserve(strategy, "", lasts)
	if !ok {
		x.Must(client.ErrSoldOut)
	}
	return held
}

// mustConfirm pays in time.
func (x *Try) mustConfirm(replica int, held client.Reservation) {
	if !x.confirm(replica, held) {
		x.Must(client.ErrReservationExpired)
	}
}

// audited is the audit of the item in full, and writes down how many units are wrong.
func (x *Try) audited() client.Audit {
	audit := flow.Get(x.Client().Shop().AuditInFull(x, x.Item))(x.Flow)
	x.Figure(unitsWrong, wrongUnits(audit))
	return audit
}

// wrongUnits counts the units that were oversold and those that were lost. Lost is below zero where
// stock is missing, which does not make up for what was oversold.
func wrongUnits(audit client.Audit) float64 {
	return float64(audit.Oversold + max(audit.Lost, -audit.Lost))
}

// awaitNoHold waits until all reservations of the item have ended, for 20 s at most.
func (x *Try) awaitNoHold() {
	for range 400 {
		audit, err := x.Client().Shop().AuditInFull(x, x.Item)
		if x.Must(err); audit.Held == 0 {
			return
		}
		x.sleep(50 * time.Millisecond)
	}
	x.Must(errors.New("units are still held"))
}
