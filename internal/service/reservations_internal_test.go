package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// seen is a strategy that keeps a copy of the stock, and an observer of reservations: it has what it was
// notified of.
type seen struct {
	Ahead
	fails error

	mu   sync.Mutex
	list []string
}

func (s *seen) notef(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, fmt.Sprintf(format, args...))
}

// take is what came since the last time.
func (s *seen) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	return list
}

func (s *seen) Restocked(_ context.Context, goodsID, units int64, _ ...string) error {
	s.notef("%d units of item %d", units, goodsID)
	return s.fails
}

func (s *seen) ReservationsEnded(state stock.State, n int) { s.notef("%d %s", n, state) }
func (s *seen) PaidLate()                                  { s.notef("paid late") }

// holder has reservations on SQLite that are seen.
func holder(t *testing.T, log *slog.Logger) (r *Reservations, of *seen, held func(number string, ttl time.Duration)) {
	t.Helper()
	store := opened(t, filepath.Join(t.TempDir(), "s.db"))
	of = &seen{}
	r = NewReservations(store, &Catalogue{
		redis: of, batch: 100, log: log, timeout: time.Minute,
	}, time.Hour, of)
	t.Cleanup(func() {
		should.Do(t, errors.Join(r.Close(), store.Close()))
	})
	items := int64(0)
	return r, of, func(number string, ttl time.Duration) {
		t.Helper()
		items++
		must.Get(hold(t.Context(), store, items, stock.Purchase{RequestID: number, Number: number, Quantity: 1, TTL: ttl}))(t)
	}
}

// Each end of a reservation is counted once, and its units are announced once.
func TestTheEndOfAReservationIsCountedAndAnnouncedOnce(t *testing.T) {
	r, of, held := holder(t, slog.New(slog.DiscardHandler))
	const paid, released, unknown = "018bcfe5-6800-7000-8000-000000000001", "018bcfe5-6800-7000-8000-000000000002", "018bcfe5-6800-7000-8000-000000000003"
	const late = "018bcfe5-6800-7000-8000-000000000004"
	held(paid, time.Hour)
	held(released, time.Hour)
	held(late, time.Nanosecond)
	expire := func() (stock.Reservation, bool, error) {
		_, err := r.Expire(t.Context())
		return stock.Reservation{}, false, err
	}
	for i, c := range []struct {
		take  func() (stock.Reservation, bool, error)
		again bool
		err   error
		seen  []string
	}{
		{func() (stock.Reservation, bool, error) { return r.Confirm(t.Context(), paid, "p") }, false, nil, []string{"1 confirmed"}},
		{func() (stock.Reservation, bool, error) { return r.Confirm(t.Context(), paid, "p") }, true, nil, nil},
		{func() (stock.Reservation, bool, error) { return r.Confirm(t.Context(), unknown, "q") }, false, stock.ErrUnknownReservation, nil},
		{func() (stock.Reservation, bool, error) { return r.Release(t.Context(), released) }, false, nil, []string{"1 released", "1 units of item 2"}},
		{func() (stock.Reservation, bool, error) { return r.Release(t.Context(), released) }, true, nil, nil},
		{func() (stock.Reservation, bool, error) { return r.Release(t.Context(), unknown) }, false, stock.ErrUnknownReservation, nil},
		{func() (stock.Reservation, bool, error) { return r.Release(t.Context(), paid) }, false, stock.ErrConfirmed, nil},
		{func() (stock.Reservation, bool, error) { return r.Confirm(t.Context(), released, "q") }, false, stock.ErrReleased, nil},
		{func() (stock.Reservation, bool, error) { return r.Confirm(t.Context(), late, "q") }, false, stock.ErrExpired, []string{"paid late"}},
		{expire, false, nil, []string{"1 expired", "1 units of item 3"}},
		{expire, false, nil, []string{"0 expired"}},
	} {
		_, again, err := c.take()
		if got := of.take(); again != c.again || !errors.Is(err, c.err) || !slices.Equal(got, c.seen) {
			t.Errorf("step %d: again %t (%v), and %q was seen; want %t (%v) and %q", i+1, again, err, got, c.again, c.err, c.seen)
		}
	}
	broken := errors.New("broken")
	r.confirming = share(func(context.Context, ...*repo.Payment) (map[*repo.Payment]repo.Confirmation, error) {
		return nil, broken
	})
	if _, again, err := r.Confirm(t.Context(), paid, "p"); again || !errors.Is(err, broken) {
		t.Errorf("a payment that fails is answered with %t, %v", again, err)
	}
}

// Under its key an order gives units back once, and they are announced once.
func TestAReturnIsAnnouncedOnce(t *testing.T) {
	r, of, held := holder(t, slog.New(slog.DiscardHandler))
	const number = "018bcfe5-6800-7000-8000-000000000001"
	held(number, time.Hour)
	if _, _, err := r.Confirm(t.Context(), number, "p"); err != nil {
		t.Fatal(err)
	}
	of.take()
	for _, want := range []bool{false, true} {
		back, again, err := r.GiveBack(t.Context(), number, 1, "k", false)
		if err != nil || again != want || back.Quantity != 1 || back.ID != number {
			t.Errorf("answered with %+v, %t (%v), want %t", back, again, err, want)
		}
		if got := of.take(); (len(got) == 1) == want {
			t.Errorf("again %t, %q was announced", want, got)
		}
	}
	_, _, err := r.GiveBack(t.Context(), number, 1, "another", false)
	should.Fail(t, err, stock.ErrReturned, "more than was bought")
}

// A strategy that was not notified is named in the log, and the release is one all the same.
func TestAStrategyThatWasNotNotifiedIsLogged(t *testing.T) {
	for _, fails := range []error{nil, errors.New("hangs")} {
		var log bytes.Buffer
		r, of, held := holder(t, slog.New(slog.NewTextHandler(&log, nil)))
		of.fails = fails
		const number = "018bcfe5-6800-7000-8000-000000000001"
		held(number, time.Hour)
		if _, _, err := r.Release(t.Context(), number); err != nil {
			t.Fatal(err)
		}
		should.Be(t, strings.Contains(log.String(), "was not notified"), fails != nil, "a notification that ends", fails, &log)
	}
}

// A search that fails when it has found a reservation does not know whether it is an order.
func TestAReservationThatCannotBeReadIsNoUnknownOrder(t *testing.T) {
	calls := 0
	c := &Catalogue{requests: share(func(_ context.Context, ids ...string) (map[string]stock.Order, error) {
		if calls++; calls > 1 {
			return nil, &stock.BackendError{Backend: "database", Err: errors.New("cut")}
		}
		return map[string]stock.Order{ids[0]: {ID: "7", Kind: stock.Hold, RequestID: ids[0]}}, nil
	})}
	should.Reject(c.OrderOf(t.Context(), "k", ""))(t, stock.ErrBackendUnavailable, "it is answered with")
}

// A basket is rejected, and Redis hangs: all lines are given back at once all the same.
func TestALineIsGivenBackWhileABackendHangs(t *testing.T) {
	const lines = 20
	path := filepath.Join(t.TempDir(), "s.db")
	synctest.Test(t, func(t *testing.T) {
		store, copied := opened(t, path), unresponsive{notified: make(chan int64, lines)}
		r := NewReservations(store, &Catalogue{redis: copied, log: slog.New(slog.DiscardHandler), timeout: time.Minute}, time.Hour, uncounted{})
		basket := Basket{RequestID: "key"}
		for id := range int64(lines) {
			basket.Lines = append(basket.Lines, stock.Line{GoodsID: id + 1, Quantity: 1})
		}
		var held []string
		_, err := r.Sell(t.Context(), basket, func(ctx context.Context, goodsID int64, p stock.Purchase) (stock.Outcome, error) {
			if goodsID == lines {
				return stock.Outcome{}, stock.ErrInsufficientStock
			}
			held = append(held, p.Number)
			return hold(ctx, store, goodsID, p)
		})
		should.Fail(t, err, stock.ErrInsufficientStock, "the basket is answered with")
		for _, number := range held {
			should.Be(t, must.Get(r.Read(t.Context(), number))(t).State, stock.Released, "line …", number)
		}
		for range held {
			<-copied.notified
		}
		should.Do(t, errors.Join(r.Close(), store.Close()))
	})
}
