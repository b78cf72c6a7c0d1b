package step

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/pause"
	"github.com/stockd/stockd/pkg/client"
)

// The figures of payments that are reported more than once, late, or in the moment of the expiry.
const (
	OrdersMade   = "orders_of_one_payment"
	PaidAndBack  = "paid_and_given_back"
	PaidInTime   = "paid_in_time"
	ExpiredFirst = "expired_first"
)

// NaiveCallbacks has the report of a payment come twice, and one of an earlier try that failed come last.
func NaiveCallbacks() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		n, err := openNaive(ctx, s, 1)
		if err != nil {
			return err
		}
		first, err := n.hold(ctx)
		if err != nil {
			return err
		}
		found := make([]bool, 2)
		for i := range found { // both read before either writes
			if found[i], err = n.isHeld(ctx, first); err != nil {
				return err
			}
		}
		err = s.Mark("report of the payment", "comes twice, and both find the hold held")
		for _, held := range found {
			if held {
				err = errors.Join(err, n.pay(ctx, first))
			}
		}
		err = errors.Join(err, n.set(ctx, first, "released"), n.add(ctx, 1), s.Mark("report of a failed try", "comes last, and gives the unit back"))
		second, taken := n.hold(ctx)
		return errors.Join(err, taken, n.pay(ctx, second), s.Mark("second buyer", "pays for the unit"),
			n.figure(ctx, s, OrdersMade, `SELECT COUNT(*) - COUNT(DISTINCT hold) + 1 FROM lab_hold_order WHERE item = ?`),
			n.figure(ctx, s, UnitsPaid, `SELECT COUNT(DISTINCT hold) FROM lab_hold_order WHERE item = ?`))
	}
}

// pay makes an order of a hold.
func (n naiveHolds) pay(ctx context.Context, hold int64) error {
	_, err := n.db.ExecContext(ctx, `INSERT INTO lab_hold_order (item, hold) VALUES (?, ?)`, n.item, hold)
	return errors.Join(err, n.set(ctx, hold, "paid"))
}

// Callbacks is the same with a reservation: the reports come at the same time, at two replicas.
func Callbacks(strategy string) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		held, err := reserve(ctx, s, strategy, "", time.Minute)
		if err != nil {
			return err
		}
		var reports sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			reports.Go(func() { _, errs[i] = shopAt(s, i).Confirm(ctx, held.ReservationID, "paid-"+held.ReservationID) })
		}
		reports.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		_, err = shop(s).Release(ctx, held.ReservationID)
		if errors.Is(err, client.ErrReservationConfirmed) {
			err = s.Mark("report of a failed try", "comes last, and is rejected")
		}
		if err != nil {
			return err
		}
		second, err := reserve(ctx, s, strategy, "", time.Minute)
		if err == nil {
			_, err = shop(s).Confirm(ctx, second.ReservationID, "paid-"+second.ReservationID)
		}
		if err != nil && !errors.Is(err, client.ErrSoldOut) {
			return err
		}
		orders := 0.0
		for _, err := range shop(s).Orders(ctx, client.Pages{GoodsID: s.Item}) {
			if err != nil {
				return err
			}
			orders++
		}
		return errors.Join(s.Figure(OrdersMade, orders), auditOf(ctx, s, UnitsPaid, func(a client.Audit) int64 { return a.Sold }))
	}
}

// NaiveMoment has a payment and a sweeper read the same hold in the moment in which its time is over.
func NaiveMoment() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		n, err := openNaive(ctx, s, 1)
		if err != nil {
			return err
		}
		id, err := n.hold(ctx)
		if err := errors.Join(err, pause.For(ctx, holdLasts)); err != nil {
			return err
		}
		held, err := n.isHeld(ctx, id)
		over, look := n.over(ctx)
		if err := errors.Join(err, look, s.Mark("payment and sweeper", "read the hold in the same millisecond")); err != nil {
			return err
		}
		both := 0.0
		if held && len(over) == 1 {
			both = 1
		}
		return errors.Join(n.set(ctx, id, "paid"), s.Mark("payment", "writes that it is paid"), n.end(ctx, over),
			s.Mark("sweeper", "gives the unit back"), s.Figure(PaidAndBack, both))
	}
}

// moments bounds how often Moment is made: on a busy machine all payments of one may come too late.
const moments = 5

// Moment has units paid around the moment in which their reservations expire, at every replica by turns,
// while all replicas sweep. It is made again where none was paid in time, and all of them count.
func Moment(strategy string, units int) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		var audit client.Audit
		inTime, expired := 0, 0
		for made := 0; made < moments && inTime == 0; made++ {
			paid, err := payAllInTheMoment(ctx, s, strategy, units)
			if err != nil {
				return err
			}
			inTime, expired = inTime+paid, expired+units-paid
			if audit, err = whenNothingIsHeld(ctx, s); err != nil {
				return err
			}
		}
		return errors.Join(s.Figure(PaidInTime, float64(inTime)), s.Figure(ExpiredFirst, float64(expired)),
			s.Figure(PaidAndBack, paidWrongly(inTime, audit.Sold)), s.Figure(UnitsWrong, unitsWrong(audit)))
	}
}

// payAllInTheMoment reserves units and pays them, and counts those that were answered as paid.
func payAllInTheMoment(ctx context.Context, s *scenario.Environment, strategy string, units int) (inTime int, err error) {
	paid := make([]bool, units)
	errs := make([]error, units)
	var paying sync.WaitGroup
	for i := range units {
		paying.Go(func() { paid[i], errs[i] = payInTheMoment(ctx, s, strategy, i) })
	}
	paying.Wait()
	for _, p := range paid {
		if p {
			inTime++
		}
	}
	return inTime, errors.Join(errs...)
}

// paidWrongly is by how much the payments that were answered as done and the sales differ, whichever
// are more.
func paidWrongly(answered int, sold int64) float64 { return math.Abs(float64(int64(answered) - sold)) }

// payInTheMoment pays up to 4 ms before the expiry, or as late.
func payInTheMoment(ctx context.Context, s *scenario.Environment, strategy string, i int) (paid bool, err error) {
	held, err := reserve(ctx, s, strategy, "", holdLasts)
	if err != nil {
		return false, err
	}
	around := time.Duration(i%9-4) * time.Millisecond
	if err := pause.For(ctx, time.Until(held.ExpiresAt.Add(around))); err != nil {
		return false, err
	}
	_, err = shopAt(s, i%len(s.Cluster.Replicas)).Confirm(ctx, held.ReservationID, "paid-"+held.ReservationID)
	if errors.Is(err, client.ErrReservationExpired) {
		return false, nil
	}
	return err == nil, err
}
