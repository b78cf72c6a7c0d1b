package strategytest

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// reserve is a purchase that holds its units for an hour.
func reserve(units int64) stock.Purchase {
	p := buy(units)
	p.TTL, p.Number, p.Durable = time.Hour, uuid.Must(uuid.NewV7()).String(), stock.InSQL
	return p
}

// wantReservation waits for the ledger, and compares a reservation of it.
func (s *subject) wantReservation(t *testing.T, p stock.Purchase, goodsID int64) {
	t.Helper()
	s.settle(t, goodsID)
	r, err := s.store.Reservation(t.Context(), p.Number)
	if err != nil || r.State != stock.Held || r.GoodsID != goodsID || r.Quantity != p.Quantity || r.UserID != p.UserID ||
		r.Strategy != s.entry.Name || r.TTL != p.TTL || r.ExpiresAt.Sub(r.HeldAt).Round(time.Second) != p.TTL {
		t.Errorf("the reservation is %+v (%v), and was asked for by %+v", r, err, p)
	}
}

// holdsUnits reserves in a batch with a purchase, in which one does not fit.
func holdsUnits(t *testing.T, s *subject) {
	goods := s.create(t, 10)
	first, second, large := reserve(3), reserve(1), reserve(8)
	first.UserID, second.UserID, second.TTL = "a", "b", 2*time.Hour
	outcomes, err := s.deduct(t.Context(), goods, first, buy(2), large, second)
	if err != nil {
		t.Fatal(err)
	}
	for i, sold := range []bool{true, true, false, true} {
		if (outcomes[i].Rejected == nil) != sold {
			t.Errorf("purchase %d is answered with %+v", i, outcomes[i])
		}
	}
	if !errors.Is(outcomes[2].Rejected, stock.ErrInsufficientStock) {
		t.Errorf("8 of 5 are answered with %v", outcomes[2].Rejected)
	}
	if o := outcomes[0].Order; o.ID != first.Number || o.Kind != stock.Hold || o.Remaining != 7 || !o.Answers(goods, first) {
		t.Errorf("the first is answered with %+v", o)
	}
	if o := outcomes[1].Order; o.ID == "" || o.Kind != stock.Deduction || o.Remaining != 5 {
		t.Errorf("the purchase is answered with %+v", o)
	}
	s.wantReservation(t, first, goods)
	s.wantReservation(t, second, goods)
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 4)
	want(t, "held", audit.Held, 4)
	want(t, "sold", audit.Sold, 2)
	want(t, "orders in the ledger", audit.Orders, 1)
	s.wantConsistent(t, audit)
}

// sellsWhatComesBack has two of three reservations end, one of them after its time.
func sellsWhatComesBack(t *testing.T, s *subject) {
	goods := s.create(t, 10)
	kept, released, confirmed := reserve(2), reserve(5), reserve(3)
	for _, p := range []stock.Purchase{kept, released, confirmed} {
		if err := oneOf(s.deduct(t.Context(), goods, p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := oneOf(s.deduct(t.Context(), goods, buy(1))); !errors.Is(err, stock.ErrInsufficientStock) {
		t.Errorf("a purchase of an item that is held is answered with %v", err)
	}
	s.settle(t, goods)
	if _, _, err := s.store.ConfirmAll(t.Context(), []string{confirmed.Number}); err != nil {
		t.Fatal(err)
	}
	s.giveBack(t, released)
	if err := s.deductSoon(t, goods, buy(4)); err != nil {
		t.Errorf("4 of 5 that have come back: %v", err)
	}
	if err := oneOf(s.deduct(t.Context(), goods, reserve(1))); err != nil {
		t.Errorf("the last one that has come back: %v", err)
	}
	if err := oneOf(s.deduct(t.Context(), goods, buy(1))); !errors.Is(err, stock.ErrInsufficientStock) {
		t.Errorf("one more than have come back is answered with %v", err)
	}
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 0)
	want(t, "held", audit.Held, 3)
	want(t, "sold", audit.Sold, 7)
	s.wantConsistent(t, audit)
}

// deductSoon sells a purchase as soon as the first replica has been notified of units: until then,
// for a second at most, it may know the item as sold out.
func (s *subject) deductSoon(t *testing.T, goodsID int64, p stock.Purchase) (err error) {
	t.Helper()
	for end := time.Now().Add(settleWithin); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if err = oneOf(s.deduct(t.Context(), goodsID, p)); !errors.Is(err, stock.ErrInsufficientStock) {
			break
		}
	}
	return err
}

// giveBack releases a reservation, as a client of another replica does.
func (s *subject) giveBack(t *testing.T, p stock.Purchase) {
	t.Helper()
	r, _, err := s.store.Release(t.Context(), p.Number)
	if err != nil {
		t.Fatal(err)
	}
	if copied, ok := s.bare[1].(strategy.Restocker); ok {
		if err := copied.Restocked(t.Context(), r.GoodsID, r.Quantity); err != nil {
			t.Fatal(err)
		}
	}
}

// countsWhatABuyerHolds has a buyer reserve up to the limit, and buy again what was released.
func countsWhatABuyerHolds(t *testing.T, s *subject) {
	goods := s.createLimited(t, 100, perUser)
	held := reserve(perUser)
	held.UserID = "小明"
	if err := oneOf(s.deduct(t.Context(), goods, held)); err != nil {
		t.Fatal(err)
	}
	if err := oneOf(s.deduct(t.Context(), goods, by("小明", 1))); !errors.Is(err, stock.ErrUserLimit) {
		t.Errorf("one more than the limit is answered with %v", err)
	}
	s.wantReservation(t, held, goods)
	s.giveBack(t, held)
	if err := oneOf(s.deduct(t.Context(), goods, by("小明", perUser))); err != nil {
		t.Errorf("what was released is answered with %v", err)
	}
	s.wantSoldInAll(t, goods, 100, perUser)
}
