package repo_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// stopped opens a store whose sessions have the clock of the database stand still in 2001.
func stopped(t *testing.T, d *servers.Database) *repo.Store {
	t.Helper()
	c, err := mysql.ParseDSN(d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	c.Params = map[string]string{"timestamp": "1000000000"}
	still := *d
	still.DSN = c.FormatDSN()
	return labtest.Open(t, &still, "r")
}

func TestAReservationIsOverByTheClockOfTheDatabase(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := stopped(t, d)
		create(t, s, 1, 10)
		number := hold(t, s, 1, 1, "")
		then := time.Unix(1e9, 0)
		if r, err := s.Reservation(t.Context(), number); err != nil || r.State != stock.Held || !r.HeldAt.Equal(then) || !r.ExpiresAt.Equal(then.Add(time.Hour)) {
			t.Errorf("held for an hour from %s on, it is %+v (%v)", then, r, err)
		}
		if r, err := s.Extend(t.Context(), number, 2*time.Hour, 3*time.Hour); err != nil || !r.ExpiresAt.Equal(then.Add(2*time.Hour)) {
			t.Errorf("extended by two hours it is %+v (%v)", r, err)
		}
		if ended, _, err := s.Expire(t.Context(), 10); err != nil || ended != 0 {
			t.Errorf("a sweeper has ended %d (%v)", ended, err)
		}
		if n, err := s.Reservations(t.Context()); err != nil || n != (repo.Reservations{Open: 1}) {
			t.Errorf("what is held is %+v (%v)", n, err)
		}
		if r, _, err := confirm(t, s, number, "paid"); err != nil || r.State != stock.Confirmed {
			t.Errorf("confirmed it is %+v (%v)", r, err)
		}
	})
}

func TestAReservationIsOverInTheVeryMomentOfItsExpiry(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := stopped(t, d)
		create(t, s, 1, 10)
		ending := func(in time.Duration) string {
			number := hold(t, s, 1, 1, "")
			must(t, s.ExpireIn(t.Context(), number, in))
			return number
		}
		over, inTime := ending(0), ending(time.Microsecond)
		if r, err := s.Reservation(t.Context(), over); err != nil || r.State != stock.Expired {
			t.Errorf("it is seen as %s (%v)", r.State, err)
		}
		_, _, confirmed := confirm(t, s, over, "paid")
		_, _, released := s.Release(t.Context(), over)
		_, extended := s.Extend(t.Context(), over, time.Hour, time.Hour)
		for step, err := range map[string]error{"confirmed": confirmed, "released": released, "extended": extended} {
			if !errors.Is(err, stock.ErrExpired) {
				t.Errorf("%s: %v", step, err)
			}
		}
		if n, err := s.Reservations(t.Context()); err != nil || n != (repo.Reservations{Open: 2, Overdue: 1}) {
			t.Errorf("what is held is %+v (%v)", n, err)
		}
		if ended, units, err := s.Expire(t.Context(), 10); err != nil || ended != 1 || units[1] != 1 {
			t.Errorf("a sweeper has ended %d with %v (%v)", ended, units, err)
		}
		if r, _, err := confirm(t, s, inTime, "paid"); err != nil || r.State != stock.Confirmed {
			t.Errorf("a microsecond before, it is %+v (%v)", r, err)
		}
		wantSums(t, s, 9, 0, 1, 0)
	})
}
