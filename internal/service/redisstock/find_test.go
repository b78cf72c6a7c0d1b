package redisstock_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// backlog is a replica with so many pending orders, which no consumer writes.
func backlog(t *testing.T, orders int) (s *shop, r *redisstock.Stock, pending []stock.Order) {
	t.Helper()
	s = open(t, lab.OwnRedis(t), int64(orders)+1)
	r = s.replica(t, "a", idle)
	begin(t, r)
	batch := make([]stock.Purchase, orders)
	for i := range batch {
		batch[i] = buy(1)
	}
	outcomes := must.Get(r.Deduct(t.Context(), goods, batch))(t)
	for _, o := range outcomes {
		if o.Rejected != nil {
			t.Fatal(o.Rejected)
		}
		pending = append(pending, o.Order)
	}
	return s, r, pending
}

func TestPendingOrdersAreFoundWhereverTheyAre(t *testing.T) {
	s, r, pending := backlog(t, 1200) // three pages
	for _, order := range []stock.Order{pending[0], pending[600], pending[1199]} {
		for name, find := range map[string]func() (stock.Order, bool, error){
			"number":     func() (stock.Order, bool, error) { return r.FindOrder(t.Context(), order.ID) },
			"request id": func() (stock.Order, bool, error) { return r.FindRequest(t.Context(), order.RequestID) },
		} {
			if got, ok, err := find(); err != nil || !ok || got != order {
				t.Errorf("by its %s it is %+v, %v, %v; want %+v", name, got, ok, err, order)
			}
		}
	}
	// Another replica offers them again in the next epoch: they keep their names and time.
	s.rebuild(t, r)
	if got, ok, err := r.FindOrder(t.Context(), pending[7].ID); err != nil || !ok || got != pending[7] {
		t.Errorf("after a rebuild it is %+v, %v, %v; want %+v", got, ok, err, pending[7])
	}
}

// Without a counter it is unknown what is pending, but where the ledger has all that was allocated.
func TestPendingUnitsAreUnknownWithoutACounter(t *testing.T) {
	s := open(t, lab.Redis(t), 3)
	forget := func() {
		must.Do(t, s.client.Del(t.Context(), s.key("goods:1")).Err())
	}
	a := s.replica(t, "a", idle)
	sell(t, a, buy(1))
	forget()
	if pending, err := a.Pending(t.Context(), goods); !errors.Is(err, stock.ErrBackendUnavailable) || pending != 0 {
		t.Errorf("of a sale that is not in the ledger, %d units are pending (%v)", pending, err)
	}
	b := s.replica(t, "b")
	sell(t, b, buy(2))
	settle(t, b)
	forget()
	should.Be(t, must.Get(b.Pending(t.Context(), goods))(t), 0, "the pending units of sales that are in the ledger")
}

// The time in an order's number is its replica's, and the place on the stream that of Redis: a clock that
// is up to half an hour ahead hides no order.
func TestAnOrderOfAReplicaWithAFastClockIsFound(t *testing.T) {
	s := open(t, lab.Redis(t), 10)
	r := s.replica(t, "a", idle)
	begin(t, r)
	for _, ahead := range []time.Duration{0, time.Minute, 29 * time.Minute} {
		number := uuid.Must(uuid.NewV7())
		binary.BigEndian.PutUint64(number[:8], uint64(time.Now().Add(ahead).UnixMilli())<<16|0x7000)
		p := buy(1)
		p.Number = number.String()
		order := sell(t, r, p)
		if got, ok, err := r.FindOrder(t.Context(), order.ID); err != nil || !ok || got != order || order.ID != p.Number {
			t.Errorf("a clock that is %s ahead: it is %+v, %v, %v; want %+v", ahead, got, ok, err, order)
		}
	}
}

func TestARedisThatDoesNotAnswerHasNoAnswer(t *testing.T) {
	s, r, pending := backlog(t, 1)
	if _, ok, err := r.FindOrder(t.Context(), "018bcfe5-6800-7000-8000-000000000000"); err != nil || ok {
		t.Errorf("an unknown number is found: %v", err)
	}
	must.Do(t, s.redis.Pause(t.Context()))
	begun := time.Now()
	_, _, byNumber := r.FindOrder(t.Context(), pending[0].ID)
	_, _, byRequest := r.FindRequest(t.Context(), "never")
	for _, err := range []error{byNumber, byRequest} {
		if backend, ok := errors.AsType[*stock.BackendError](err); !ok || backend.Backend != "redis" {
			t.Errorf("a paused Redis is %v", err)
		}
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("both took %s", took)
	}
	must.Do(t, s.redis.Resume(t.Context()))
}

// A replica that was asked before anything was sold from Redis finds what is pending later.
func TestPendingOrdersAreFoundByAReplicaThatLookedBefore(t *testing.T) {
	s := open(t, lab.OwnRedis(t), 10) // nothing was sold from it
	r := s.replica(t, "a", idle)
	_, byRequest, err := r.FindRequest(t.Context(), "never")
	_, byNumber, err2 := r.FindOrder(t.Context(), "018bcfe5-6800-7000-8000-000000000000")
	if err := errors.Join(err, err2); err != nil || byRequest || byNumber {
		t.Fatalf("before the first sale orders are found: %t, %t (%v)", byRequest, byNumber, err)
	}
	begin(t, r)
	order := sell(t, r, buy(1))
	if got, ok, err := r.FindRequest(t.Context(), order.RequestID); err != nil || !ok || got != order {
		t.Errorf("by its request it is %+v, %t (%v)", got, ok, err)
	}
	if got, ok, err := r.FindOrder(t.Context(), order.ID); err != nil || !ok || got != order {
		t.Errorf("by its number it is %+v, %t (%v)", got, ok, err)
	}
}
