package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// maxHeld is what one buyer may hold in these tests.
const maxHeld = 3

// holders are those of a replica who may hold maxHeld units.
func (s shop) holders(t *testing.T, replica int, r *service.Reservations, name string) buyers {
	t.Helper()
	b := s.strategy(t, replica, name)
	b.Shop = service.NewShop(s.replicas[replica], r, service.Admission{Choose: true, Held: maxHeld})
	return b
}

func heldBy(user string, units int64) stock.Purchase {
	return stock.Purchase{Quantity: units, UserID: user, TTL: time.Minute}
}

// reserveAtOnce has one buyer send many reservations of two items at the same time, over all replicas, and returns how
// many were accepted.
func reserveAtOnce(t *testing.T, replicas []buyers, user string, first int64) int64 {
	t.Helper()
	var accepted atomic.Int64
	var asking sync.WaitGroup
	for i := range 8 * len(replicas) {
		asking.Go(func() {
			_, err := replicas[i%len(replicas)].Deduct(t.Context(), first+int64(i/len(replicas)%2), heldBy(user, 1))
			if err == nil {
				accepted.Add(1)
			} else if limit, ok := errors.AsType[*stock.HoldLimitError](err); !ok || limit.MaxHeld != maxHeld {
				t.Errorf("beyond the limit the answer is %v, want %v", err, stock.ErrHoldLimit)
			}
		})
	}
	asking.Wait()
	return accepted.Load()
}

// The limit is exact for what one replica accepts. Another one that is asked in the same moment accepts one purchase
// more at the most.
func TestABuyerHoldsNoMoreThanTheLimit(t *testing.T) {
	s := openAll(t, lab.Database(t, servers.MariaDB))
	for i, name := range []string{"sql-conditional", "sql-conditional" + grouped, "sql-bucket", "redis-lua", "redis-stock", "redis-stock" + grouped} {
		t.Run(name, func(t *testing.T) {
			goods, user := int64(2*i+1), rand.Text()
			s.create(t, goods, 100)
			s.create(t, goods+1, 100)
			one, two := s.holders(t, 0, nil, name), s.holders(t, 1, nil, name)
			should.Be(t, reserveAtOnce(t, []buyers{one}, user, goods), maxHeld, "one replica accepted reservations")
			if n := reserveAtOnce(t, []buyers{one, two}, user+"2", goods); n < maxHeld || n > maxHeld+1 {
				t.Errorf("two replicas accepted %d reservations, want %d or one more", n, maxHeld)
			}
		})
	}
}

func TestWhatIsNotHeldAnyMoreDoesNotCount(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := open(t, d, 1)
	s.create(t, 1, 100)
	store, held := labtest.Open(t, d, "r"), s.holders(t, 0, nil, "sql-conditional")
	number := func(p stock.Purchase) string {
		t.Helper()
		return must.Get(held.Deduct(t.Context(), 1, p))(t).Order.ID
	}
	full := func() {
		t.Helper()
		should.Reject(held.Deduct(t.Context(), 1, heldBy("ann", 1)))(t, stock.ErrHoldLimit)
	}
	again := heldBy("ann", 2)
	again.RequestID, again.Keyed = "key", true
	released, first := number(heldBy("ann", 1)), number(again)
	full()
	should.Be(t, number(again), first, "a copy at the limit did not get the first answer")
	number(heldBy("bob", maxHeld))
	if _, err := held.Deduct(t.Context(), 1, stock.Purchase{Quantity: 5, UserID: "ann"}); err != nil {
		t.Errorf("a sale at the limit is answered with %v", err)
	}
	must.Do(t, errOf(store.Release(t.Context(), released)))
	number(heldBy("ann", 1))
	full()
	should.Fail(t, must.Get(held.Deduct(t.Context(), 1, heldBy("", 1)))(t).Rejected, stock.ErrUserUnknown, "a reservation without a buyer is answered with")
}

// A copy that waits for the turn of its buyer finds the limit reached by what it is a copy of.
func TestCopiesOfTheLastReservationHaveOneAnswer(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 1)
	s.create(t, 1, 100)
	held := s.holders(t, 0, nil, "sql-conditional")
	p := heldBy("ann", maxHeld)
	p.RequestID, p.Keyed = "key", true
	var numbers sync.Map
	var asking sync.WaitGroup
	for range 10 {
		asking.Go(func() {
			o, err := held.Deduct(t.Context(), 1, p)
			if err != nil {
				t.Error(err)
			}
			numbers.Store(o.Order.ID, true)
		})
	}
	asking.Wait()
	n := 0
	numbers.Range(func(any, any) bool { n++; return true })
	should.Be(t, n, 1, "copies got … numbers")
}

func TestABasketHoldsNoMoreThanTheLimit(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := open(t, d, 1)
	s.create(t, 1, 100)
	s.create(t, 2, 100)
	all, _ := s.reservations(t, d)
	held := s.holders(t, 0, all[0], "sql-conditional")
	buy := func(ctx context.Context, units int64) error {
		_, err := held.BuyBasket(ctx, &service.Basket{RequestID: rand.Text(), UserID: "ann", Asked: held.asked, Lines: []stock.Line{{GoodsID: 1, Quantity: 2}, {GoodsID: 2, Quantity: units}}})
		return err
	}
	for range 2 {
		must.Do(t, buy(t.Context(), maxHeld-2)) // what is sold is held no more
	}
	err := buy(t.Context(), maxHeld-1)
	if line, ok := errors.AsType[*stock.LineError](err); !ok || line.GoodsID != 2 || !errors.Is(err, stock.ErrHoldLimit) {
		t.Errorf("a basket beyond the limit is answered with %v, want %v of item 2", err, stock.ErrHoldLimit)
	}
	should.Be(t, must.Get(s.inventory.Goods(t.Context(), 1))(t).Stock, 96, "are in stock of item 1")
}
