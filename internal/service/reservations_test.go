package service_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
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
			if err := r.Close(); err != nil {
				t.Errorf("close reservations: %v", err)
			}
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

// Both replicas sweep. What has expired is sold to its last unit, through either of them, by
// strategies that keep the stock in the row, in buckets, and in Redis.
//
//contract:service.Reservations Units of a reservation
//contract:service.Reservations No unit comes back twice
func TestUnitsOfReservationsThatExpireAreSoldAgain(t *testing.T) {
	d := lab.Database(t, servers.MariaDB)
	s := openAll(t, d)
	all, counted := s.reservations(t, d)
	ctx, stop := context.WithCancel(t.Context())
	var sweeping sync.WaitGroup
	for _, r := range all {
		sweeping.Go(func() { r.KeepExpiring(ctx, func(err error) { t.Error(err) }) })
	}
	defer sweeping.Wait()
	defer stop()
	const units = 3
	names := []string{"sql-conditional", "sql-bucket", "redis-decr", "redis-stock", "redis-stock grouped"}
	for i, name := range names {
		goods := int64(i + 1)
		s.create(t, goods, units)
		s.holds(t, name, goods, units, time.Second)
	}
	for i, name := range names {
		goods, sold := int64(i+1), int64(0)
		if !labtest.Eventually(30*time.Second, func() bool {
			outcome, err := s.strategy(t, int(sold)%2, name).Deduct(t.Context(), goods, stock.Purchase{Quantity: 1})
			if err != nil {
				t.Fatal(err)
			}
			if outcome.Rejected == nil {
				sold++
			}
			return sold == units
		}) {
			t.Errorf("%s has sold %d of the %d units that came back", name, sold, units)
		}
		s.rejects(t, name, goods)
		s.settles(t, goods, units)
	}
	if n := counted.expired.Load(); n != int64(units*len(names)) {
		t.Errorf("%d reservations are counted as expired, want %d", n, units*len(names))
	}
}

func TestWhatBecomesOfReservationsIsCountedOnce(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := open(t, d, 1)
	all, counted := s.reservations(t, d)
	r := all[0]
	s.create(t, 1, 10)
	numbers := s.holds(t, "sql-conditional", 1, 3, time.Hour)
	for range 2 {
		if _, _, err := r.Confirm(t.Context(), numbers[0], "paid"); err != nil {
			t.Fatal(err)
		}
		if _, _, err := r.Release(t.Context(), numbers[1]); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := r.Confirm(t.Context(), numbers[1], "paid, and released"); !errors.Is(err, stock.ErrReleased) {
		t.Errorf("a payment after the release: %v, want %v", err, stock.ErrReleased)
	}
	late := s.holds(t, "sql-conditional", 1, 1, time.Nanosecond)
	if _, _, err := r.Confirm(t.Context(), late[0], "paid, and late"); err == nil {
		t.Error("a payment after the expiry is taken")
	}
	for range 2 {
		if _, err := r.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if c, l, e, late := counted.confirmed.Load(), counted.released.Load(), counted.expired.Load(), counted.late.Load(); c != 1 || l != 1 || e != 1 || late != 1 {
		t.Errorf("counted as confirmed %d, released %d, expired %d and paid late %d times; want 1 each", c, l, e, late)
	}
}

// told is a strategy that keeps a copy of the stock, and notes what it is notified of.
type told struct {
	strategy.Strategy

	mu    sync.Mutex
	units []int64
}

func (c *told) Restocked(_ context.Context, _, units int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.units = append(c.units, units)
	return nil
}

// However units come back, the strategies that keep a copy of the stock are notified, once.
func TestCopiesAreNotifiedOfUnitsThatComeBack(t *testing.T) {
	copied := &told{}
	entries := slices.DeleteFunc(strategy.Registry(), func(e strategy.Entry) bool { return e.Name != "sql-conditional" })
	entries = append(entries, strategy.Entry{Name: "another", New: func(strategy.Deps) strategy.Strategy { return copied }})
	store, catalogue, err := openEntries(t, entries...)
	if err != nil {
		t.Fatal(err)
	}
	s := shop{service.NewInventory(store, catalogue), []*service.Catalogue{catalogue}}
	s.create(t, 1, 10)
	r := service.NewReservations(store, catalogue, time.Hour, &ends{})
	held := func(units int64, ttl time.Duration) string {
		outcome, err := s.strategy(t, 0, "sql-conditional").Deduct(t.Context(), 1, stock.Purchase{Quantity: units, TTL: ttl})
		if err != nil || outcome.Rejected != nil {
			t.Fatal(err, outcome.Rejected)
		}
		return outcome.Order.ID
	}
	released, paid := held(1, time.Hour), held(2, time.Hour)
	held(4, time.Nanosecond)
	for range 2 { // the second time nothing comes back
		_, _, failed := r.Release(t.Context(), released)
		_, _, unpaid := r.Confirm(t.Context(), paid, "paid")
		_, _, kept := r.Return(t.Context(), paid, 2, "back")
		_, late := r.Expire(t.Context())
		if err := errors.Join(failed, unpaid, kept, late); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(copied.units); !slices.Equal(copied.units, []int64{1, 2, 4}) {
		t.Errorf("it was notified of %d units, want 1, 2 and 4", copied.units)
	}
}
