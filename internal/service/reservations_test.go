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
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// ends counts the reservations that have ended, and the payments that were late.
type ends struct {
	confirmed, released, expired, late atomic.Int64
}

func (e *ends) ReservationsEnded(state stock.State, reservations int) {
	counts := map[stock.State]*atomic.Int64{stock.Confirmed: &e.confirmed, stock.Released: &e.released, stock.Expired: &e.expired}
	counts[state].Add(int64(reservations))
}

func (e *ends) PaidLate() { e.late.Add(1) }

// reservations are those of each replica of a shop, with what all of them have ended.
func (s shop) reservations(t *testing.T, d *servers.Database) ([]*service.Reservations, *ends) {
	t.Helper()
	counted, all := &ends{}, make([]*service.Reservations, len(s.replicas))
	for i, catalogue := range s.replicas {
		r := service.NewReservations(labtest.Open(t, d, "replica"), catalogue, time.Hour, counted)
		t.Cleanup(func() {
			should.Do(t, r.Close()) // close reservations
		})
		all[i] = r
	}
	return all, counted
}

// holds reserves a unit each, through the first replica.
func (s shop) holds(t *testing.T, name string, goods int64, units int, ttl time.Duration) (numbers []string) {
	t.Helper()
	for range units {
		outcome, err := s.strategy(t, 0, name).Deduct(t.Context(), goods, stock.Purchase{Quantity: 1, TTL: ttl})
		if err != nil || outcome.Rejected != nil {
			t.Fatalf("%s: %v, %v", name, err, outcome.Rejected)
		}
		numbers = append(numbers, outcome.Order.ID)
	}
	return numbers
}

// told is a strategy that keeps a copy of the stock, and notes what it is notified of.
type told struct {
	strategy.Strategy
	service.Ahead

	mu    sync.Mutex
	units []int64
}

func (c *told) Restocked(_ context.Context, _, units int64, _ ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.units = append(c.units, units)
	return nil
}

// What is accepted is read again, and is held no longer than reservations may be.
func TestAReservationIsHeldAsLongAsItAsksForAndNoLongerThanTheLongest(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := open(t, d, 1)
	all, _ := s.reservations(t, d) // an hour is the longest
	s.create(t, 1, 10)
	p := keyed(rand.Text(), 3)
	p.TTL = 10 * time.Minute
	outcome, err := s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), 1, p)
	if err != nil || outcome.Rejected != nil {
		t.Fatal(err, outcome.Rejected)
	}
	for ttl, want := range map[time.Duration]error{10 * time.Minute: nil, 0: nil, 9 * time.Minute: stock.ErrKeyReused, 11 * time.Minute: stock.ErrKeyReused} {
		if r, err := all[0].Accepted(t.Context(), ttl, outcome); !errors.Is(err, want) || r.Number != outcome.Order.ID || r.Quantity != 3 {
			t.Errorf("asked to be held for %s it is %+v, %v; want %v", ttl, r, err, want)
		}
	}
	if _, err := all[0].Accepted(t.Context(), p.TTL, stock.Outcome{}); !errors.Is(err, stock.ErrUnknownOutcome) || !errors.Is(err, stock.ErrUnknownReservation) {
		t.Errorf("one that cannot be read: %v, want %v with the cause", err, stock.ErrUnknownOutcome)
	}
	for _, c := range []struct{ ttl, held time.Duration }{{30 * time.Minute, 30 * time.Minute}, {2 * time.Hour, time.Hour}} {
		r, err := all[0].Extend(t.Context(), outcome.Order.ID, c.ttl)
		if held := r.ExpiresAt.Sub(r.HeldAt); err != nil || held < c.held || held > c.held+time.Minute {
			t.Errorf("extended by %s it is held for %s (%v), want %s", c.ttl, held, err, c.held)
		}
	}
	if r, err := all[0].Accepted(t.Context(), p.TTL, outcome); err != nil {
		t.Errorf("extended, it is %+v (%v) to a client that asks for the same again", r, err)
	}
}

// Each row returns units of an order of five, after those before it.
func TestAKeyReturnsUnitsOfAnOrderOnce(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := open(t, d, 1)
	all, _ := s.reservations(t, d)
	s.create(t, 1, 20)
	buy := func() string {
		outcome, err := s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), 1, stock.Purchase{Quantity: 5})
		if err != nil || outcome.Rejected != nil {
			t.Fatal(err, outcome.Rejected)
		}
		return outcome.Order.ID
	}
	order, other := buy(), buy()
	for _, c := range []struct {
		name, number, key string
		units, back       int64
		again             bool
		want              error
	}{
		{"a unit without a key", order, "", 1, 1, false, nil},
		{"two with one", order, "k", 2, 2, false, nil},
		{"the same again", order, "k", 2, 2, true, nil},
		{"its key with all that are left", order, "k", 0, 2, true, nil},
		{"its key with other units", order, "k", 1, 0, false, stock.ErrKeyReused},
		{"its key for another order", other, "k", 2, 0, false, stock.ErrKeyReused},
		{"its key for all of another order", other, "k", 0, 0, false, stock.ErrKeyReused},
		{"more than are left", order, "more", 3, 0, false, stock.ErrReturned},
		{"all that are left", order, "rest", 0, 2, false, nil},
		{"all again", order, "rest", 0, 2, true, nil},
		{"one more", order, "", 1, 0, false, stock.ErrReturned},
		{"of an unknown order", "0190c7a0-0000-7000-8000-000000000000", "u", 1, 0, false, stock.ErrUnknownOrder},
	} {
		back, again, err := all[0].GiveBack(t.Context(), c.number, c.units, c.key, false)
		if !errors.Is(err, c.want) || again != c.again || c.want == nil && (back.Quantity != c.back || back.ID != order || back.GoodsID != 1) {
			t.Errorf("%s: %+v, again %v, %v; want %d units, again %v, %v", c.name, back, again, err, c.back, c.again, c.want)
		}
	}
	should.Be(t, must.Get(s.inventory.Goods(t.Context(), 1))(t).Stock, 15, "are in stock")
}

// promised is an outbox that has an order pending, and cannot be asked for another.
type promised struct {
	service.Ahead
	number, hidden string
}

func (promised) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, stock.ErrBusy
}

func (p promised) FindOrder(_ context.Context, number string) (stock.Order, bool, error) {
	if number == p.hidden {
		return stock.Order{}, false, &stock.BackendError{Backend: "redis", Err: errors.New("refused")}
	}
	return stock.Order{ID: number, Kind: stock.Deduction}, number == p.number, nil
}

func TestAnOrderThatIsPendingCannotBeReturnedYet(t *testing.T) {
	const number, hidden = "0190c7a0-0000-7000-8000-000000000000", "0190c7a0-0000-7000-8000-000000000002"
	store, catalogue := openEntries(t, strategy.Entry{Name: "promised", New: func(strategy.Deps) strategy.Strategy { return promised{number: number, hidden: hidden} }})
	r := service.NewReservations(store, catalogue, time.Hour, &ends{})
	should.Fail(t, errOf(r.GiveBack(t.Context(), number, 1, "", false)), stock.ErrBusy)
	if _, _, err := r.GiveBack(t.Context(), number[:35]+"1", 1, "", false); !errors.Is(err, stock.ErrUnknownOrder) || errors.Is(err, stock.ErrBusy) {
		t.Errorf("an unknown one is answered with %v, want %v", err, stock.ErrUnknownOrder)
	}
	if _, _, err := r.GiveBack(t.Context(), hidden, 1, "", false); !errors.Is(err, stock.ErrBackendUnavailable) || errors.Is(err, stock.ErrUnknownOrder) {
		t.Errorf("one that cannot be searched for is answered with %v, want %v", err, stock.ErrBackendUnavailable)
	}
	should.Do(t, r.Close())
}

// One round ends all that are over, also where they are more than one transaction has, and the copies
// of the stock are notified of the sum.
func TestARoundEndsAllReservationsThatAreOver(t *testing.T) {
	const over = 501
	d, copied, counted := lab.Database(t, servers.SQLite), &told{}, &ends{}
	store, catalogue := openEntriesOn(t, d, strategy.Entry{Name: "copied", New: func(strategy.Deps) strategy.Strategy { return copied }})
	expired(t, store, d, over)
	r := service.NewReservations(store, catalogue, time.Hour, counted)
	ended, err := r.Expire(t.Context())
	if err != nil || ended != over || counted.expired.Load() != over {
		t.Errorf("%d were ended and %d counted (%v), want %d", ended, counted.expired.Load(), err, over)
	}
	should.Do(t, r.Close())
	should.Equal(t, copied.units, []int64{2 * over}, "the copy was notified of units")
}

// failingLater closes its store when the first reservations have ended.
type failingLater struct {
	ends
	close func() error
	err   error
}

func (f *failingLater) ReservationsEnded(state stock.State, reservations int) {
	f.ends.ReservationsEnded(state, reservations)
	f.err = errors.Join(f.err, f.close())
}

// A round that fails half way has notified the copies of what came back until then.
func TestARoundThatFailsNotifiesOfWhatCameBackBefore(t *testing.T) {
	const over, atOnce = 501, 500
	d, copied := lab.Database(t, servers.SQLite), &told{}
	store, catalogue := openEntriesOn(t, d, strategy.Entry{Name: "copied", New: func(strategy.Deps) strategy.Strategy { return copied }})
	expired(t, store, d, over)
	counted := &failingLater{close: store.Close}
	r := service.NewReservations(store, catalogue, time.Hour, counted)
	if ended, err := r.Expire(t.Context()); err == nil || counted.err != nil || ended != atOnce {
		t.Errorf("%d were ended (%v, %v), want %d and a failure", ended, err, counted.err, atOnce)
	}
	should.Do(t, r.Close())
	should.Equal(t, copied.units, []int64{2 * atOnce}, "the copy was notified of units")
}

// expired makes item 1, and so many reservations of two units of it that are over.
func expired(t *testing.T, store *repo.Store, d *servers.Database, count int) {
	t.Helper()
	must.Do(t, store.CreateGoods(t.Context(), 1, 10, "create"))
	if _, err := openPool(t, d).ExecContext(t.Context(), `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
		INSERT INTO tb_reservation (number, goods_id, quantity, user_id, strategy, state, ttl, held_at, expires_at)
		SELECT 'n' || i, 1, 2, '', 'sql-conditional', 'held', 1, '2001-01-01 00:00:00', '2001-01-01 00:00:01' FROM n`, count); err != nil {
		t.Fatal(err)
	}
}

// A reservation is an order under its key from its payment on.
func TestAReservationIsFoundByItsKeyOnceItIsPaid(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := open(t, d, 1)
	all, _ := s.reservations(t, d)
	s.create(t, 1, 10)
	for key, end := range map[string]func(number string) error{
		"paid":     func(number string) error { return errOf(all[0].Confirm(t.Context(), number, "p")) },
		"released": func(number string) error { return errOf(all[0].Release(t.Context(), number)) },
	} {
		p := keyed(stock.BuyerKey(key, "ann"), 2)
		p.UserID, p.TTL = "ann", time.Hour
		held, err := s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), 1, p)
		if err != nil || held.Rejected != nil {
			t.Fatal(err, held.Rejected)
		}
		should.Reject(s.replicas[0].OrderOf(t.Context(), key, "ann"))(t, stock.ErrUnknownOrder, "before it is", key, "it is found as")
		must.Do(t, end(held.Order.ID))
		found, err := s.replicas[0].OrderOf(t.Context(), key, "ann")
		if key == "released" {
			should.Fail(t, err, stock.ErrUnknownOrder, "released it is found as …", found)
		} else if err != nil || found.ID != held.Order.ID || found.Quantity != 2 || found.Kind != stock.Confirmation {
			t.Errorf("paid it is found as %+v (%v), want order %s", found, err, held.Order.ID)
		}
	}
}

// A strategy that no purchase waits for has a queue of none.
func TestEachStrategyHasAQueueFromTheStart(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), 1)
	waiting := s.replicas[0].Waiting()
	for _, d := range s.replicas[0].Describe(t.Context()) {
		if n, ok := waiting[d.Name]; !ok || n != 0 {
			t.Errorf("for %s %d purchases wait, known: %t", d.Name, n, ok)
		}
	}
}

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
