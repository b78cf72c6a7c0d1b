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
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// releaseHeld has a release stop at a statement on its way, until the step passes.
func releaseHeld(t *testing.T, s *repo.Store, proxy *servers.Proxy, number, statement string) (step *servers.Trigger, released chan error) {
	t.Helper()
	step, released = proxy.Arm(servers.Rule{Sent: statement, Do: servers.Hold}), make(chan error, 1)
	go func() { released <- errOf(s.Release(t.Context(), number)) }()
	labtest.AwaitReached(t, step)
	return step, released
}

// hold reserves units for an hour, as a strategy does whose database compares.
func hold(t *testing.T, s *repo.Store, goodsID, units int64, user string) (number string) {
	t.Helper()
	number = uuid.Must(uuid.NewV7()).String()
	batch := []stock.Purchase{{RequestID: rand.Text(), Quantity: units, UserID: user, TTL: time.Hour, Number: number}}
	must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
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
		s := onSale(t, d, 100)
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
			should.Reject(s.Extend(t.Context(), number, time.Hour, 2*time.Hour))(t, refuses, "one that is … is extended", state)
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
		must.Do(t, settleNow(t, s))
		wantSums(t, s, left, 0, sold, 0)
	})
}

// A client may ask for any text. One that is no number names no reservation, and no database fails.
func TestAReservationThatIsNotThereIsUnknown(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		held := hold(t, s, 1, 1, "")
		for _, number := range []string{"404", uuid.NewString(), "小明", "\xff", held + " ", strings.ToUpper(held)} {
			should.Reject(s.Reservation(t.Context(), number))(t, stock.ErrUnknownReservation, "read", number)
			should.Fail(t, errOf(confirm(t, s, number, "paid")), stock.ErrUnknownReservation, "confirm", number)
			should.Fail(t, errOf(s.Release(t.Context(), number)), stock.ErrUnknownReservation, "release", number)
			should.Reject(s.Extend(t.Context(), number, time.Hour, time.Hour))(t, stock.ErrUnknownReservation, "extend", number)
		}
		wantSums(t, s, 9, 1, 0, 0)
	})
}

func TestAnExtensionIsBoundedAndNeverShortens(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		number := hold(t, s, 1, 1, "")
		before := must.Get(s.Reservation(t.Context(), number))(t)
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

// What is seen as expired stays so, though a confirmation that came in time is not committed yet.
func TestALookWaitsForAConfirmationThatIsBeingCommitted(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, through, proxy := besideAProxy(t, d, 10)
		number := hold(t, s, 1, 1, "")
		must.Do(t, s.ExpireIn(t.Context(), number, 500*time.Millisecond))
		commit := proxy.Arm(servers.Rule{Sent: "COMMIT", Do: servers.Hold})
		confirmed := make(chan error, 1)
		go func() { confirmed <- errOf(confirm(t, through, number, "paid")) }()
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
		must.Do(t, <-confirmed)
		should.Be(t, <-seen, stock.Confirmed, "then it is seen")
	})
}

func TestUnitsThatComeBackAreCountedOutOfTheirBuyer(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 10, PerUser: 3}, "first"))
		has := func(want int64) {
			t.Helper()
			limit := must.Get(s.Has(t.Context(), 1, 3, []stock.Purchase{{UserID: "ann"}}))(t)
			should.Be(t, limit.Has["ann"], want, "the buyer has")
			if full, err := s.AuditInFull(t.Context(), 1); err != nil || !full.Clean || full.Buyers == nil {
				t.Errorf("the audit is %+v, %v", full, err)
			}
		}
		released, expired, confirmed := hold(t, s, 1, 1, "ann"), hold(t, s, 1, 1, "ann"), hold(t, s, 1, 1, "ann")
		has(3)
		must.Do(t, errOf(s.Release(t.Context(), released)))
		has(2)
		over(t, s, expired)
		has(2)
		expireAll(t, s)
		has(1)
		must.Do(t, errOf(confirm(t, s, confirmed, "paid")))
		has(1)
		must.Get(s.GiveBack(t.Context(), confirmed, 0, stock.ReturnKey.Of("k"), false))(t)
		has(0)
		// The first limit counts what was held and given back before.
		hold(t, s, 1, 2, "ann")
		for _, limit := range []int64{0, 3} {
			must.Do(t, s.SetLimit(t.Context(), 1, limit))
		}
		has(2)
	})
}

func TestWhatABuyerHoldsIsOfAllItemsAndNotOver(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: 1, Units: 20}, "first"))
		must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: 2, Units: 20}, "second"))
		hold(t, s, 1, 2, "小明")
		hold(t, s, 2, 3, "小明")
		hold(t, s, 1, 4, "bob")
		over(t, s, hold(t, s, 1, 5, "小明"))
		must.Do(t, errOf(s.Release(t.Context(), hold(t, s, 1, 1, "bob"))))
		must.Do(t, errOf(confirm(t, s, hold(t, s, 2, 1, "bob"), "paid")))
		held, err := s.HeldBy(t.Context(), "小明", "bob", "eve")
		if want := map[string]int64{"小明": 5, "bob": 4}; err != nil || !maps.Equal(held, want) {
			t.Errorf("they hold %v (%v), want %v", held, err, want)
		}
	})
}

func TestUnitsOfAnOrderComeBackOnce(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		var order stock.Order
		must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error {
			orders, err := tx.Append(t.Context(), repo.Sale{GoodsID: 1, Batch: []stock.Purchase{{RequestID: "buy", Quantity: 5}}})
			if err != nil {
				return err
			}
			order = orders[0]
			return errOf(tx.SubtractIfEnough(t.Context(), 1, 5))
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
			back, err := s.GiveBack(t.Context(), c.number, c.units, stock.ReturnKey.Of(c.key), false)
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
		must.Get(s.Restock(t.Context(), 1, 3, "more"))(t)
		must.Get(labtest.Open(t, d, "r2").As("elsewhere").Fill(t.Context(), 1, "elsewhere", 0))(t)
		for _, units := range []int64{0, 3, 5} { // 0: all
			should.Reject(s.GiveBack(t.Context(), number, units, stock.ReturnKey.Of(fmt.Sprint("above ", units)), false))(t, stock.ErrStockLimit, "a return of … beyond the limit", units)
		}
		should.Be(t, must.Get(s.GiveBack(t.Context(), number, 2, stock.ReturnKey.Of("up to it"), false))(t).Quantity, 2, "a return up to the limit")
		should.Be(t, must.Get(s.InStock(t.Context(), 1))(t).Stock, stock.MaxStock, "the item has units")
	})
}

// Units that are held can come back: without room for them, the item would have more than the limit, and its returns
// none.
func TestARestockLeavesRoomForWhatIsHeld(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r").As("sql-conditional")
		create(t, s, 1, stock.MaxStock)
		number := hold(t, s, 1, stock.MaxQuantity, "")
		for _, settle := range []bool{false, true} {
			if settle {
				must.Do(t, settleNow(t, s))
			}
			should.Reject(s.Restock(t.Context(), 1, 1, fmt.Sprint("beyond ", settle)))(t, stock.ErrStockLimit)
		}
		must.Do(t, errOf(s.Release(t.Context(), number)))
		should.Be(t, must.Get(s.InStock(t.Context(), 1))(t).Stock, stock.MaxStock, "the item has units")
	})
}

func TestManyReturnsOfOneOrderGiveNoMoreThanItHas(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 10)
		number := hold(t, s, 1, 3, "")
		must.Do(t, errOf(confirm(t, s, number, "paid")))
		var returning sync.WaitGroup
		errs := make([]error, 6)
		for i := range errs {
			returning.Go(func() {
				_, errs[i] = s.GiveBack(context.WithoutCancel(t.Context()), number, 1, stock.ReturnKey.Of(fmt.Sprint(i)), false)
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
		should.Be(t, back, 3, "units of 3 came back")
	})
}

// Releases and returns of an item whose row is locked leave connections to others, and so do looks at a reservation of
// it that is over and locked.
func TestWhatComesBackToALockedItemLeavesConnections(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	locking := labtest.Open(t, d, "locking")
	s := open(t, d, backend.SQLOptions{MaxOpen: 4, LockWait: 9 * time.Second, ConnectTimeout: time.Second}, repo.Options{})
	create(t, locking, 1, 20)
	must.Do(t, s.CreateGoods(t.Context(), 2, 10, "other"))
	back := make([]func() error, 0, 8)
	for i := range cap(back) {
		number := hold(t, s, 1, 1, "")
		back = append(back, func() error { return errOf(s.Release(t.Context(), number)) })
		if i%2 == 0 {
			must.Get(s.Confirm(t.Context(), &repo.Payment{Number: number, Reference: number}))(t)
			back[i] = func() error { _, err := s.GiveBack(t.Context(), number, 1, "return "+number, false); return err }
		}
	}
	overdue := hold(t, s, 1, 1, "")
	must.Do(t, s.ExpireIn(t.Context(), overdue, -time.Second))
	const looks = 8
	answers := make(chan error, len(back)+looks)
	must.Do(t, locking.InTx(t.Context(), func(tx *repo.Tx) error {
		if _, err := tx.GoodsForUpdate(t.Context(), 1); err != nil {
			return err
		}
		if err := tx.LockReservation(t.Context(), overdue); err != nil {
			return err
		}
		for _, give := range back {
			go func() { answers <- give() }()
		}
		labtest.AwaitRowWait(t, d, "UPDATE tb_goods_stock%", answers)
		for range looks {
			go func() { _, err := s.Reservation(t.Context(), overdue); answers <- err }()
		}
		time.Sleep(100 * time.Millisecond) // for those that would take more connections
		soon, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		should.Fail(t, s.InTx(soon, func(tx *repo.Tx) error { _, err := tx.GoodsForUpdate(soon, 2); return err }), nil, "another item waits for what comes back to the locked one")
		return nil
	}))
	for range cap(answers) {
		should.Do(t, <-answers)
	}
	wantSums(t, s, 19, 1, 4, 4)
}
