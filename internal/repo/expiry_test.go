package repo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// stopped opens a store whose only session has the clock of the database stand still in 2001.
func stopped(t *testing.T, d *servers.Database) *repo.Store {
	t.Helper()
	s := labtest.Open(t, d, "r")
	must.Do(t, s.StopClock(t.Context(), 1e9))
	return s
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
		should.Be(t, must.Get(s.Reservations(t.Context()))(t), (repo.Reservations{Open: 1}), "what is held is")
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
			must.Do(t, s.ExpireIn(t.Context(), number, in))
			return number
		}
		over, inTime := ending(0), ending(time.Microsecond)
		should.Be(t, must.Get(s.Reservation(t.Context(), over))(t).State, stock.Expired, "it is seen as")
		should.Fail(t, errOf(confirm(t, s, over, "paid")), stock.ErrExpired, "confirmed")
		should.Fail(t, errOf(s.Release(t.Context(), over)), stock.ErrExpired, "released")
		should.Reject(s.Extend(t.Context(), over, time.Hour, time.Hour))(t, stock.ErrExpired, "extended")
		should.Be(t, must.Get(s.Reservations(t.Context()))(t), (repo.Reservations{Open: 2, Overdue: 1}), "what is held is")
		if ended, units, err := s.Expire(t.Context(), 10); err != nil || ended != 1 || units[1].Units != 1 {
			t.Errorf("a sweeper has ended %d with %v (%v)", ended, units, err)
		}
		if r, _, err := confirm(t, s, inTime, "paid"); err != nil || r.State != stock.Confirmed {
			t.Errorf("a microsecond before, it is %+v (%v)", r, err)
		}
		wantSums(t, s, 9, 0, 1, 0)
	})
}

// over has a reservation expire at once.
func over(t *testing.T, s *repo.Store, number string) {
	t.Helper()
	must.Do(t, s.ExpireIn(t.Context(), number, -time.Second))
}

// Each reservation is over in the moment in which it is paid and swept, by two sweepers.
func TestConfirmAndTwoSweepersEndEachReservationOnce(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		const rounds = 40
		create(t, s, 1, rounds)
		confirmed := int64(0)
		for i := range rounds {
			number := hold(t, s, 1, 1, "")
			must.Do(t, s.ExpireIn(t.Context(), number, time.Duration(i%8)*time.Millisecond))
			var ending sync.WaitGroup
			var paid error
			ended, seen := make([]int, 2), stock.State("")
			ending.Go(func() { _, _, paid = confirm(t, s, number, number) })
			ending.Go(func() {
				r, err := s.Reservation(t.Context(), number)
				if seen = r.State; err != nil {
					t.Error(err)
				}
			})
			for j := range ended {
				ending.Go(func() { ended[j] = expireAll(t, s) })
			}
			ending.Wait()
			for paid != nil && ended[0]+ended[1] == 0 {
				ended[0] = expireAll(t, s) // it was not over yet for them
			}
			switch swept := ended[0] + ended[1]; {
			case paid == nil && swept == 0 && seen != stock.Expired:
				confirmed++
			case errors.Is(paid, stock.ErrExpired) && swept == 1:
			default:
				t.Errorf("round %d: confirmed with %v, swept %d times, and seen as %s", i, paid, swept, seen)
			}
			wantSums(t, s, rounds-confirmed, 0, confirmed, 0)
		}
	})
}

func expireAll(t *testing.T, s *repo.Store) (ended int) {
	t.Helper()
	for range 20 { // sweepers may be each other's deadlock
		n, _, err := s.Expire(t.Context(), 10)
		if ended += n; err == nil {
			return ended
		}
		if !errors.Is(err, stock.ErrBusy) {
			t.Error(err)
			return ended
		}
	}
	t.Error("a sweeper is busy all the time")
	return ended
}

func TestASweeperThatIsKilledLosesAndDoublesNothing(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, killed, proxy := besideAProxy(t, d, 30)
		for i, sent := range []string{"FROM tb_reservation", "UPDATE tb_reservation", "INSERT INTO tb_stock_ledger", "UPDATE tb_goods_stock", "COMMIT"} {
			for _, delivered := range []bool{false, true} {
				for range 3 {
					over(t, s, hold(t, s, 1, 1, ""))
				}
				labtest.Lose(proxy, sent, delivered)
				if errOf(killed.Expire(t.Context(), 10)) == nil {
					t.Errorf("%d: a sweeper whose %q was lost has no error", i, sent)
				}
				expireSoon(t, s)
				wantSums(t, s, 30, 0, 0, 0)
			}
		}
	})
}

// expireSoon sweeps until nothing is held: the server rolls back what was cut off in its time.
func expireSoon(t *testing.T, s *repo.Store) {
	t.Helper()
	for range 400 {
		expireAll(t, s)
		if n, err := s.Reservations(t.Context()); err != nil || n.Open == 0 {
			must.Do(t, err)
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatal("reservations that are over stay held")
}

// The sweepers end those first that have been over for the longest, whenever they were held.
func TestTheLongestExpiredEndFirst(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		numbers := []string{hold(t, s, 1, 1, ""), hold(t, s, 1, 2, ""), hold(t, s, 1, 3, "")}
		for i, since := range []time.Duration{2 * time.Minute, time.Minute, 3 * time.Minute} {
			must.Do(t, s.ExpireIn(t.Context(), numbers[i], -since))
		}
		for _, units := range []int64{3, 1, 2} {
			if ended, back, err := s.Expire(t.Context(), 1); err != nil || ended != 1 || back[1].Units != units {
				t.Errorf("%d reservations of %d units end (%v), want the one of %d", ended, back[1].Units, err, units)
			}
		}
	})
}

// The row of one item, or a buyer of it, is locked: the reservations of others end without a wait, also where those of
// the item alone are more than a transaction has.
func TestAnItemThatIsLockedKeepsNoOthersFromExpiring(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		locking, s := labtest.Open(t, d, "locking"), labtest.Open(t, d, "patient")
		for id := range int64(3) {
			must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: id + 1, Units: 10, PerUser: 9}, fmt.Sprint("item ", id)))
		}
		ann := []stock.Purchase{{Quantity: 1, UserID: "ann"}}
		for name, lock := range map[string]func(*repo.Tx) error{
			"row": func(tx *repo.Tx) error { _, err := tx.FreeGoods(t.Context(), []int64{1}); return err },
			"buyer": func(tx *repo.Tx) error {
				_, err := tx.CountIn(t.Context(), 1, 9, ann)
				return errors.Join(err, tx.CountOut(t.Context(), 1, ann))
			},
		} {
			for _, id := range []int64{1, 1, 1, 2, 3} {
				over(t, s, hold(t, s, id, 1, "ann"))
			}
			ended, back := 0, map[int64]repo.Back{}
			err := locking.InTx(t.Context(), func(tx *repo.Tx) (err error) {
				if err := lock(tx); err != nil {
					return err
				}
				soon, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				ended, back, err = s.Expire(soon, 2)
				return err
			})
			locked, ok := errors.AsType[*repo.LockedItemsError](err)
			if !ok || !slices.Equal(locked.IDs, []int64{1}) || ended != 2 || len(back) != 2 || back[2].Units != 1 || back[3].Units != 1 {
				t.Errorf("%s locked: %d are ended, and %v units come back (%v), want those of items 2 and 3", name, ended, back, err)
			}
			should.Be(t, expireAll(t, s), 3, "are ended afterwards")
			if _, full := bothAudits(t, s, 1); !full.Clean || full.Stock != 10 {
				t.Errorf("the audit of item 1 is %+v", full)
			}
		}
	})
}

// The row of one item is locked, and its reservations expire with those of others: these are sold meanwhile.
func TestAnItemThatIsLockedKeepsNoOthersFromBeingSold(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		locking, s, seller := labtest.Open(t, d, "locking"), labtest.Open(t, d, "patient"), impatient(t, d)
		for id := range int64(3) {
			must.Do(t, s.CreateGoods(t.Context(), id+1, 1000, fmt.Sprint("item ", id)))
			over(t, s, hold(t, s, id+1, 1, ""))
		}
		ended, failed := 0, make(chan error, 1)
		err := locking.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.GoodsForUpdate(t.Context(), 3); err != nil {
				return err
			}
			go func() {
				var err error
				for ended < 2 && (err == nil || errors.Is(err, stock.ErrBusy)) { // one that meets a sale ends in the next round
					var n int
					n, _, err = s.Expire(t.Context(), 10)
					ended += n
				}
				failed <- err
			}()
			for {
				if err := sell(t.Context(), seller, 1, rand.Text()); err != nil {
					return err
				}
				if left, err := seller.Reservations(t.Context()); err != nil || left.Overdue == 1 {
					return err
				}
			}
		})
		should.Fail(t, err, nil, "while item 3 is locked, item 1 is sold with")
		if err := <-failed; err != nil && !errors.Is(err, stock.ErrBusy) || ended < 2 {
			t.Errorf("%d are ended (%v), want those of items 1 and 2", ended, err)
		}
	})
}

// Reservations of several items end together: each item, and each buyer of one with a limit, gets its own units back.
func TestReservationsOfSeveralItemsExpireTogether(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	for item, limit := range []int64{0, 9, 5} {
		id := int64(item + 1)
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: id, Units: 20, PerUser: limit}, fmt.Sprint("item ", id)))
		hold(t, s, id, 1, "ann") // it stays
		for _, user := range []string{"ann", "bob"} {
			over(t, s, hold(t, s, id, id, user))
		}
	}
	if ended, units, err := s.Expire(t.Context(), 10); err != nil || ended != 6 || len(units) != 3 || units[1].Units != 2 || units[2].Units != 4 || units[3].Units != 6 {
		t.Errorf("%d are ended, and %v units come back (%v), want 6, and two of each reservation", ended, units, err)
	}
	for id := int64(1); id < 4; id++ {
		if quick, full := bothAudits(t, s, id); !full.Clean || quick.Stock != 19 || quick.Held != 1 {
			t.Errorf("the audits of item %d are %+v and %+v, want 19 in stock, and one held", id, quick, full)
		}
		if users, err := s.UsersAfter(t.Context(), id, ""); err != nil || id > 1 && fmt.Sprint(users) != fmt.Sprintf("[{ann 1 1 %d} {bob 0 0 %d}]", id, id) || id == 1 && users != nil {
			t.Errorf("the buyers of item %d have %v (%v)", id, users, err)
		}
	}
}

// A sweeper that has stopped keeps what it has in hand, and no other reservation.
func TestASweeperThatHasStoppedKeepsNoOthersFromExpiring(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, through, proxy := besideAProxy(t, d, 10)
		over(t, s, hold(t, s, 1, 1, ""))
		stopped, first := proxy.Arm(servers.Rule{Sent: "UPDATE tb_reservation", Do: servers.Hold}), make(chan error, 1)
		go func() { first <- errOf(through.Expire(t.Context(), 10)) }()
		labtest.AwaitReached(t, stopped)
		over(t, s, hold(t, s, 1, 2, ""))
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if ended, back, err := s.Expire(ctx, 10); err != nil || ended != 1 || back[1].Units != 2 {
			t.Errorf("beside it %d are ended with %v (%v), want the other one", ended, back, err)
		}
		stopped.Pass()
		must.Do(t, <-first)
		wantSums(t, s, 10, 0, 0, 0)
	})
}
