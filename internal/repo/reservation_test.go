package repo_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/stock"
)

// releaseHeld has a release stop at a statement on its way, until the step passes.
func releaseHeld(t *testing.T, s *repo.Store, proxy *servers.Proxy, number, statement string) (step *servers.Trigger, released chan error) {
	t.Helper()
	step, released = proxy.Arm(servers.Rule{Sent: statement, Do: servers.Hold}), make(chan error, 1)
	go func() {
		_, _, err := s.Release(t.Context(), number)
		released <- err
	}()
	labtest.AwaitReached(t, step)
	return step, released
}

// hold reserves units for an hour, as a strategy does whose database compares.
func hold(t *testing.T, s *repo.Store, goodsID, units int64, user string) (number string) {
	t.Helper()
	number = uuid.Must(uuid.NewV7()).String()
	batch := []stock.Purchase{{RequestID: rand.Text(), Quantity: units, UserID: user, TTL: time.Hour, Number: number}}
	must(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
		goods, err := tx.Goods(t.Context(), goodsID)
		if err != nil {
			return err
		}
		if _, err := tx.CountIn(t.Context(), goodsID, goods.PerUser, batch); err != nil {
			return err
		}
		if _, err := tx.Append(t.Context(), repo.Sale{GoodsID: goodsID, Batch: batch}); err != nil {
			return err
		}
		_, enough, err := tx.SubtractIfEnough(t.Context(), goodsID, units)
		if err == nil && !enough {
			err = stock.ErrInsufficientStock
		}
		return err
	}))
	return number
}

// over has a reservation expire at once.
func over(t *testing.T, s *repo.Store, number string) {
	t.Helper()
	must(t, s.ExpireIn(t.Context(), number, -time.Second))
}

// wantSums compares both audits of item 1 with what is in stock, held, sold and returned.
func wantSums(t *testing.T, s *repo.Store, left, held, sold, returned int64) {
	t.Helper()
	quick, full := bothAudits(t, s, 1)
	full.Buyers = nil
	if quick != full || !full.Clean || full.Stock != left || full.Held != held || full.Sold != sold || full.Returned != returned {
		t.Errorf("the audits are %+v and %+v; want %d in stock, %d held, %d sold, %d returned, and nothing lost", quick, full, left, held, sold, returned)
	}
}

// endings are the ways in which a reservation ends, and what each is answered with from then on.
func endings() map[stock.State]func(t *testing.T, s *repo.Store, number string) {
	return map[stock.State]func(t *testing.T, s *repo.Store, number string){
		stock.Confirmed: func(t *testing.T, s *repo.Store, number string) {
			t.Helper()
			if r, again, err := confirm(t, s, number, "paid-"+number); err != nil || again || r.State != stock.Confirmed {
				t.Fatalf("confirmed: %+v, %v, %v", r, again, err)
			}
		},
		stock.Released: func(t *testing.T, s *repo.Store, number string) {
			t.Helper()
			if r, again, err := s.Release(t.Context(), number); err != nil || again || r.State != stock.Released {
				t.Fatalf("released: %+v, %v, %v", r, again, err)
			}
		},
		stock.Expired: func(t *testing.T, s *repo.Store, number string) { t.Helper(); over(t, s, number) },
	}
}

func TestAReservationEndsOnce(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 100)
		var left, sold int64 = 100, 0
		for state, end := range endings() {
			number := hold(t, s, 1, 2, "ann")
			wantSums(t, s, left-2, 2, sold, 0)
			end(t, s, number)
			refuses := stock.Reservation{State: state}.NotHeld()
			_, again, err := confirm(t, s, number, "paid-"+number)
			if ok := state == stock.Confirmed; ok != again || ok != (err == nil) || !ok && !errors.Is(err, refuses) {
				t.Errorf("one that is %s is confirmed again: %v, %v", state, again, err)
			}
			if _, again, err := confirm(t, s, number, "another"); again || !errors.Is(err, refuses) {
				t.Errorf("one that is %s is confirmed under another reference: %v, %v; want %v", state, again, err, refuses)
			}
			_, again, err = s.Release(t.Context(), number)
			if ok := state == stock.Released; ok != again || ok != (err == nil) || !ok && !errors.Is(err, refuses) {
				t.Errorf("one that is %s is released again: %v, %v", state, again, err)
			}
			if _, err := s.Extend(t.Context(), number, time.Hour, 2*time.Hour); !errors.Is(err, refuses) {
				t.Errorf("one that is %s is extended: %v, want %v", state, err, refuses)
			}
			if r, err := s.Reservation(t.Context(), number); err != nil || r.State != state || r.UserID != "ann" || r.Quantity != 2 || r.GoodsID != 1 || r.TTL != time.Hour {
				t.Errorf("one that is %s is read as %+v, %v", state, r, err)
			}
			if state == stock.Expired {
				wantSums(t, s, left-2, 2, sold, 0)
			}
			if ended, _, err := s.Expire(t.Context(), 10); err != nil || (ended == 1) != (state == stock.Expired) || ended > 1 {
				t.Errorf("%d are ended, %v", ended, err)
			}
			if state == stock.Confirmed {
				left, sold = left-2, sold+2
			}
			wantSums(t, s, left, 0, sold, 0)
		}
		must(t, settleNow(t, s))
		wantSums(t, s, left, 0, sold, 0)
	})
}

// A client may ask for any text. One that is no number names no reservation, and no database fails.
func TestAReservationThatIsNotThereIsUnknown(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 10)
		held := hold(t, s, 1, 1, "")
		for _, number := range []string{"404", uuid.NewString(), "小明", "\xff", held + " ", strings.ToUpper(held)} {
			_, read := s.Reservation(t.Context(), number)
			_, _, confirm := confirm(t, s, number, "paid")
			_, _, release := s.Release(t.Context(), number)
			_, extend := s.Extend(t.Context(), number, time.Hour, time.Hour)
			for doing, err := range map[string]error{"read": read, "confirm": confirm, "release": release, "extend": extend} {
				if !errors.Is(err, stock.ErrUnknownReservation) {
					t.Errorf("%s %q: %v", doing, number, err)
				}
			}
		}
		wantSums(t, s, 9, 1, 0, 0)
	})
}

func TestAPaymentReferenceConfirmsOneReservation(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 10)
		first, second := hold(t, s, 1, 1, ""), hold(t, s, 1, 1, "")
		if _, _, err := confirm(t, s, first, "paid"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := confirm(t, s, second, "paid"); !errors.Is(err, stock.ErrReferenceUsed) {
			t.Errorf("a reference that is used confirms another one: %v", err)
		}
		if r, err := s.Reservation(t.Context(), second); err != nil || r.State != stock.Held || r.PaymentReference != "" {
			t.Errorf("the other one is %+v, %v", r, err)
		}
		wantSums(t, s, 8, 1, 1, 0)
		order, ok, err := s.Order(t.Context(), first)
		if err != nil || !ok || order.Kind != stock.Confirmation || order.Quantity != 1 {
			t.Errorf("the order of a confirmed one is %+v, %v, %v", order, ok, err)
		}
		if order, ok, err := s.Order(t.Context(), second); err != nil || ok {
			t.Errorf("one that is held is the order %+v, %v", order, err)
		}
	})
}

func TestAnExtensionIsBoundedAndNeverShortens(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 10)
		number := hold(t, s, 1, 1, "")
		before, err := s.Reservation(t.Context(), number)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ ttl, least, most time.Duration }{
			{time.Minute, time.Hour, time.Hour},
			{90 * time.Minute, 90 * time.Minute, 91 * time.Minute},
			{10 * time.Hour, 2 * time.Hour, 2 * time.Hour},
		} {
			r, err := s.Extend(t.Context(), number, c.ttl, 2*time.Hour)
			if held := r.ExpiresAt.Sub(before.HeldAt); err != nil || held < c.least || held > c.most {
				t.Errorf("extended by %s it is held for %s (%v), want %s to %s", c.ttl, held, err, c.least, c.most)
			}
			if read, err := s.Reservation(t.Context(), number); err != nil || read.ExpiresAt.Sub(r.ExpiresAt).Abs() > time.Millisecond {
				t.Errorf("it is read as %+v (%v), want %s", read, err, r.ExpiresAt)
			}
		}
	})
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
			must(t, s.ExpireIn(t.Context(), number, time.Duration(i%8)*time.Millisecond))
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

// What is seen as expired stays so, though a confirmation that came in time is not committed yet.
func TestALookWaitsForAConfirmationThatIsBeingCommitted(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		slow, proxy := labtest.Through(t, d)
		s, through := labtest.Open(t, d, "r"), labtest.Open(t, slow, "slow")
		create(t, s, 1, 10)
		number := hold(t, s, 1, 1, "")
		must(t, s.ExpireIn(t.Context(), number, 500*time.Millisecond))
		commit := proxy.Arm(servers.Rule{Sent: "COMMIT", Do: servers.Hold})
		confirmed := make(chan error, 1)
		go func() {
			_, _, err := confirm(t, through, number, "paid")
			confirmed <- err
		}()
		labtest.AwaitReached(t, commit)
		time.Sleep(600 * time.Millisecond) // by the clock of the server it is over then
		seen := make(chan stock.State, 1)
		go func() {
			r, err := s.Reservation(t.Context(), number)
			if err != nil {
				t.Error(err)
			}
			seen <- r.State
		}()
		select {
		case state := <-seen:
			t.Errorf("it is seen as %s while its confirmation is being committed", state)
			seen <- state
		case <-time.After(200 * time.Millisecond):
		}
		commit.Pass()
		must(t, <-confirmed)
		if state := <-seen; state != stock.Confirmed {
			t.Errorf("then it is seen as %s", state)
		}
	})
}

func TestASweeperThatIsKilledLosesAndDoublesNothing(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		cut, proxy := labtest.Through(t, d)
		s, killed := labtest.Open(t, d, "r"), labtest.Open(t, cut, "killed")
		create(t, s, 1, 30)
		for i, sent := range []string{"FROM tb_reservation", "UPDATE tb_reservation", "INSERT INTO tb_stock_ledger", "UPDATE tb_goods_stock", "COMMIT"} {
			for _, delivered := range []bool{false, true} {
				for range 3 {
					over(t, s, hold(t, s, 1, 1, ""))
				}
				labtest.Lose(proxy, sent, delivered)
				_, _, err := killed.Expire(t.Context(), 10)
				if err == nil {
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
			if err != nil {
				t.Fatal(err)
			}
			return
		}
		time.Sleep(25 * time.Millisecond)
	}
	t.Fatal("reservations that are over stay held")
}

func TestUnitsThatComeBackAreCountedOutOfTheirBuyer(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		must(t, s.CreateLimited(t.Context(), 1, 10, 3, "first"))
		has := func(want int64) {
			t.Helper()
			limit, err := s.Has(t.Context(), 1, 3, []stock.Purchase{{UserID: "ann"}})
			if err != nil || limit.Has["ann"] != want {
				t.Errorf("the buyer has %d (%v), want %d", limit.Has["ann"], err, want)
			}
			if full, err := s.AuditInFull(t.Context(), 1); err != nil || !full.Clean || full.Buyers == nil {
				t.Errorf("the audit is %+v, %v", full, err)
			}
		}
		released, expired, confirmed := hold(t, s, 1, 1, "ann"), hold(t, s, 1, 1, "ann"), hold(t, s, 1, 1, "ann")
		has(3)
		if _, _, err := s.Release(t.Context(), released); err != nil {
			t.Fatal(err)
		}
		has(2)
		over(t, s, expired)
		has(2)
		expireAll(t, s)
		has(1)
		if _, _, err := confirm(t, s, confirmed, "paid"); err != nil {
			t.Fatal(err)
		}
		has(1)
		if _, err := s.Return(t.Context(), confirmed, 0, stock.ReturnKey("k")); err != nil {
			t.Fatal(err)
		}
		has(0)
		// The first limit counts what was held and given back before.
		hold(t, s, 1, 2, "ann")
		for _, limit := range []int64{0, 3} {
			must(t, s.SetLimit(t.Context(), 1, limit))
		}
		has(2)
	})
}

func TestUnitsOfAnOrderComeBackOnce(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 10)
		var order stock.Order
		must(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			orders, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{{RequestID: "buy", Quantity: 5}}})
			if err != nil {
				return err
			}
			order = orders[0]
			_, _, err = tx.SubtractIfEnough(t.Context(), 1, 5)
			return err
		}))
		for _, c := range []struct {
			number, key string
			units, back int64
			want        error
		}{
			{"404", "a", 0, 0, stock.ErrUnknownOrder},
			{order.ID, "b", 6, 0, stock.ErrReturned},
			{order.ID, "c", 2, 2, nil},
			{order.ID, "c", 2, 0, stock.ErrDuplicateRequest},
			{order.ID, "d", 4, 0, stock.ErrReturned},
			{order.ID, "e", 0, 3, nil},
			{order.ID, "f", 0, 0, stock.ErrReturned},
		} {
			back, err := s.Return(t.Context(), c.number, c.units, stock.ReturnKey(c.key))
			if !errors.Is(err, c.want) || err == nil && (back.Quantity != c.back || back.ID != order.ID) {
				t.Errorf("%d of order %s under key %s: %+v, %v; want %d, %v", c.units, c.number, c.key, back, err, c.back, c.want)
			}
		}
		wantSums(t, s, 10, 0, 5, 5)
	})
}

// Units that come back count for the limit of the stock with those that are allocated, as restocks do. They can come back
// once there is room.
func TestAReturnDoesNotLiftAnItemAboveItsLimit(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As("sql-conditional")
		create(t, s, 1, stock.MaxStock)
		number := hold(t, s, 1, 5, "")
		confirmed, err := s.Confirm(t.Context(), &repo.Payment{Number: number, Reference: "paid"})
		if err != nil || len(confirmed) != 1 {
			t.Fatal(confirmed, err)
		}
		if _, err := s.Restock(t.Context(), 1, 3, "more"); err != nil {
			t.Fatal(err)
		}
		if _, err := labtest.Open(t, d, "r2").As("elsewhere").Fill(t.Context(), 1, "elsewhere", 0); err != nil {
			t.Fatal(err)
		}
		for _, units := range []int64{0, 3, 5} { // 0: all
			if _, err := s.Return(t.Context(), number, units, stock.ReturnKey(fmt.Sprint("above ", units))); !errors.Is(err, stock.ErrStockLimit) {
				t.Errorf("a return of %d beyond the limit: %v, want %v", units, err, stock.ErrStockLimit)
			}
		}
		if back, err := s.Return(t.Context(), number, 2, stock.ReturnKey("up to it")); err != nil || back.Quantity != 2 {
			t.Errorf("a return up to the limit: %+v, %v", back, err)
		}
		if goods, err := s.InStock(t.Context(), 1); err != nil || goods.Stock != stock.MaxStock {
			t.Errorf("the item has %d units (%v), want %d", goods.Stock, err, int64(stock.MaxStock))
		}
	})
}

func TestManyReturnsOfOneOrderGiveNoMoreThanItHas(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 10)
		number := hold(t, s, 1, 3, "")
		if _, _, err := confirm(t, s, number, "paid"); err != nil {
			t.Fatal(err)
		}
		var returning sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			returning.Go(func() {
				_, errs[i] = s.Return(context.WithoutCancel(t.Context()), number, 1, stock.ReturnKey(fmt.Sprint(i)))
			})
		}
		returning.Wait()
		back := int64(0)
		for _, err := range errs {
			if err == nil {
				back++
			} else if !errors.Is(err, stock.ErrReturned) {
				t.Error(err)
			}
		}
		wantSums(t, s, 7+3, 0, 3, 3)
		if back != 3 {
			t.Errorf("%d units of 3 came back", back)
		}
	})
}

// The feed of a reader that asks for steps has each of them, in the order of each reservation;
// that of another has orders alone.
func TestStepsAreListedToThoseWhoAsk(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 10)
		paid, released, expired := hold(t, s, 1, 1, ""), hold(t, s, 1, 1, ""), hold(t, s, 1, 1, "")
		if _, _, err := confirm(t, s, paid, "paid"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Release(t.Context(), released); err != nil {
			t.Fatal(err)
		}
		over(t, s, expired)
		expireAll(t, s)
		if _, err := s.Return(t.Context(), paid, 0, stock.ReturnKey("k")); err != nil {
			t.Fatal(err)
		}
		for steps, want := range map[bool]map[string]string{
			false: {paid: "confirm"},
			true:  {paid: "hold confirm return", released: "hold release", expired: "hold expire"},
		} {
			list, _, err := s.OrdersAfter(t.Context(), 1, 0, 100, steps)
			if err != nil {
				t.Fatal(err)
			}
			got := make(map[string]string)
			for _, o := range list {
				got[o.ID] = strings.TrimSpace(got[o.ID] + " " + string(o.Kind))
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("with steps %v the feed has %v, want %v", steps, got, want)
			}
		}
	})
}

// The sweepers end those first that have been over for the longest, whenever they were held.
func TestTheLongestExpiredEndFirst(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		create(t, s, 1, 10)
		numbers := []string{hold(t, s, 1, 1, ""), hold(t, s, 1, 2, ""), hold(t, s, 1, 3, "")}
		for i, since := range []time.Duration{2 * time.Minute, time.Minute, 3 * time.Minute} {
			must(t, s.ExpireIn(t.Context(), numbers[i], -since))
		}
		for _, units := range []int64{3, 1, 2} {
			if ended, back, err := s.Expire(t.Context(), 1); err != nil || ended != 1 || back[1] != units {
				t.Errorf("%d reservations of %d units end (%v), want the one of %d", ended, back[1], err, units)
			}
		}
	})
}

// The row of one item is locked for longer than a sweeper waits, as by its first limit: the reservations of others
// end all the same, also where those of the item alone are more than a transaction has.
func TestAnItemThatIsLockedKeepsNoOthersFromExpiring(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		locking, s := labtest.Open(t, d, "locking"), impatient(t, d)
		for id := range int64(3) {
			must(t, s.CreateGoods(t.Context(), id+1, 10, fmt.Sprint("item ", id)))
		}
		for _, id := range []int64{1, 1, 1, 2, 3} {
			over(t, s, hold(t, s, id, 1, ""))
		}
		ended, back := 0, map[int64]int64{}
		err := locking.InTx(t.Context(), func(tx *repo.Tx) (err error) {
			if _, err := tx.GoodsForUpdate(t.Context(), 1); err != nil {
				return err
			}
			ended, back, err = s.Expire(t.Context(), 2)
			return err
		})
		if err != nil || ended != 2 || !maps.Equal(back, map[int64]int64{2: 1, 3: 1}) {
			t.Errorf("%d are ended, and %v units come back (%v), want those of items 2 and 3", ended, back, err)
		}
		if ended := expireAll(t, s); ended != 3 {
			t.Errorf("%d are ended afterwards, want the three of item 1", ended)
		}
		wantSums(t, s, 10, 0, 0, 0)
	})
}

// The row of the item is locked whose reservations are over for the longest: those of others do not wait as long as
// that row may be waited for. It is waited for afterwards.
func TestTheReservationsOfOthersExpireBeforeALockedRowIsWaitedFor(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		locking := labtest.Open(t, d, "locking")
		s, err := repo.Open(t.Context(), backend.SQLOptions{
			Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 2, LockWait: 9 * time.Second, ConnectTimeout: time.Second,
		}, repo.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() }) //nolint:errcheck // the test is over
		create(t, locking, 1, 10)
		over(t, s, hold(t, s, 1, 1, ""))
		for id := int64(2); id < 4; id++ {
			must(t, s.CreateGoods(t.Context(), id, 10, fmt.Sprint("item ", id)))
			over(t, s, hold(t, s, id, 1, ""))
		}
		ended, failed := 0, make(chan error, 1)
		err = locking.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.GoodsForUpdate(t.Context(), 1); err != nil {
				return err
			}
			go func() {
				var err error
				ended, _, err = s.Expire(t.Context(), 10)
				failed <- err
			}()
			labtest.AwaitRowWait(t, d, "UPDATE tb_goods_stock%", failed)
			left, err := locking.Reservations(t.Context())
			if left.Overdue != 1 {
				t.Errorf("when item 1 is waited for %d reservations are over and not ended, want its own alone", left.Overdue)
			}
			return err
		})
		if err := errors.Join(err, <-failed); err != nil || ended != 3 {
			t.Errorf("%d are ended (%v), want all three once item 1 is free", ended, err)
		}
		wantSums(t, s, 10, 0, 0, 0)
	})
}

// The row of one item is locked, and its reservations expire with those of others: these are sold meanwhile.
func TestAnItemThatIsLockedKeepsNoOthersFromBeingSold(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		locking, s, seller := labtest.Open(t, d, "locking"), labtest.Open(t, d, "patient"), impatient(t, d)
		for id := range int64(3) {
			must(t, s.CreateGoods(t.Context(), id+1, 1000, fmt.Sprint("item ", id)))
			over(t, s, hold(t, s, id+1, 1, ""))
		}
		ended, failed := 0, make(chan error, 1)
		err := locking.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.GoodsForUpdate(t.Context(), 3); err != nil {
				return err
			}
			go func() {
				var err error
				ended, _, err = s.Expire(t.Context(), 10)
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
		if err != nil {
			t.Errorf("while item 3 is locked, item 1 is sold with %v", err)
		}
		if err := <-failed; err != nil || ended < 2 {
			t.Errorf("%d are ended (%v), want those of items 1 and 2", ended, err)
		}
	})
}

// Reservations of several items end together: each item, and each buyer of one with a limit, gets its own units back.
func TestReservationsOfSeveralItemsExpireTogether(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r")
	for item, limit := range []int64{0, 9, 5} {
		id := int64(item + 1)
		must(t, s.CreateLimited(t.Context(), id, 20, limit, fmt.Sprint("item ", id)))
		hold(t, s, id, 1, "ann") // it stays
		for _, user := range []string{"ann", "bob"} {
			over(t, s, hold(t, s, id, id, user))
		}
	}
	if ended, units, err := s.Expire(t.Context(), 10); err != nil || ended != 6 || !maps.Equal(units, map[int64]int64{1: 2, 2: 4, 3: 6}) {
		t.Errorf("%d are ended, and %v units come back (%v), want 6, and two of each reservation", ended, units, err)
	}
	for id := int64(1); id < 4; id++ {
		if quick, full := bothAudits(t, s, id); !full.Clean || quick.Stock != 19 || quick.Held != 1 {
			t.Errorf("the audits of item %d are %+v and %+v, want 19 in stock, and one held", id, quick, full)
		}
		if users, err := s.UsersAfter(t.Context(), id, ""); err != nil || id > 1 && fmt.Sprint(users) != "[{ann 1} {bob 0}]" || id == 1 && users != nil {
			t.Errorf("the buyers of item %d have %v (%v)", id, users, err)
		}
	}
}

// A sweeper that has stopped keeps what it has in hand, and no other reservation.
func TestASweeperThatHasStoppedKeepsNoOthersFromExpiring(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		slow, proxy := labtest.Through(t, d)
		s, through := labtest.Open(t, d, "r"), labtest.Open(t, slow, "slow")
		create(t, s, 1, 10)
		over(t, s, hold(t, s, 1, 1, ""))
		stopped, first := proxy.Arm(servers.Rule{Sent: "UPDATE tb_reservation", Do: servers.Hold}), make(chan error, 1)
		go func() {
			_, _, err := through.Expire(t.Context(), 10)
			first <- err
		}()
		labtest.AwaitReached(t, stopped)
		over(t, s, hold(t, s, 1, 2, ""))
		ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		if ended, back, err := s.Expire(ctx, 10); err != nil || ended != 1 || back[1] != 2 {
			t.Errorf("beside it %d are ended with %v (%v), want the other one", ended, back, err)
		}
		stopped.Pass()
		if err := <-first; err != nil {
			t.Error(err)
		}
		wantSums(t, s, 10, 0, 0, 0)
	})
}
