package strategytest

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

func sellsAndReportsWhatIsLeft(t *testing.T, s *subject) {
	goods := s.create(t, 10)
	outcomes := s.sell(t, goods, buy(3))
	wantSoldOf(t, outcomes, true)
	order := outcomes[0].Order
	if order.ID == "" {
		t.Error("the order has no id")
	}
	want(t, "quantity of the order", order.Quantity, 3)
	want(t, "what the order says is left", order.Remaining, 7)
	want(t, "orders in the ledger", s.wantBooks(t, goods, 7, 3).Orders, 1)
}

// copyWithin bounds the copy of a large stock, which a strategy may make before its first sale.
const copyWithin = 30 * time.Second

// keepsALargeStock sells quantities of every size from the largest stock that the suite
// can afford everywhere.
func keepsALargeStock(t *testing.T, s *subject) {
	const units = 200_000
	goods, left := s.create(t, units), int64(units)
	for _, quantity := range []int64{1, 999, 1000, 1001, 100_000} {
		outcomes, err := s.deduct(t.Context(), goods, buy(quantity))
		for end := time.Now().Add(copyWithin); quantity == 1 && errors.Is(err, stock.ErrBusy) && time.Now().Before(end); {
			outcomes, err = s.deduct(t.Context(), goods, buy(quantity)) // its buyer asks again, until the stock is copied
		}
		if err != nil || outcomes[0].Rejected != nil {
			t.Fatalf("%d of %d were not sold: %v, %v", quantity, left, err, outcomes)
		}
		left -= quantity
		want(t, "what the order says is left", outcomes[0].Order.Remaining, left)
	}
	s.wantBooks(t, goods, left, units-left)
}

func rejectsWhatDoesNotFit(t *testing.T, s *subject) {
	goods := s.create(t, 2)
	for _, units := range []int64{3, stock.MaxQuantity} {
		s.wantRejected(t, goods, units, stock.ErrInsufficientStock)
	}
	s.wantBooks(t, goods, 2, 0)
	// A rejection must not outlive its reason.
	s.restock(t, goods, 1)
	s.wantSold(t, goods, 3)
	s.wantRejected(t, goods, 1, stock.ErrInsufficientStock) // a restock that is reported twice counts once
}

// rejectsWhatAnotherStrategySoldOut asks for a unit of what another strategy has sold to
// the last one.
func rejectsWhatAnotherStrategySoldOut(t *testing.T, s *subject) {
	goods := s.create(t, 2)
	must.Do(t, oneOf(s.another(t, "sql-conditional").bare[0].Deduct(t.Context(), goods, []stock.Purchase{buy(2)})))
	s.wantRejected(t, goods, 1, stock.ErrInsufficientStock)
}

func servesABatchFirstComeFirstServed(t *testing.T, s *subject) {
	goods := s.create(t, 5)
	outcomes := s.sell(t, goods, buy(3), buy(4), buy(2))
	wantSoldOf(t, outcomes, true, false, true)
	want(t, "what the first order says is left", outcomes[0].Order.Remaining, 2)
	want(t, "what the last order says is left", outcomes[2].Order.Remaining, 0)
	if outcomes[0].Order.ID == outcomes[2].Order.ID {
		t.Errorf("two orders have the id %s", outcomes[0].Order.ID)
	}
	want(t, "orders in the ledger", s.wantBooks(t, goods, 0, 5).Orders, 2)
}

func changesNoOtherItem(t *testing.T, s *subject) {
	bought, other := s.create(t, 10), s.create(t, 10)
	s.sell(t, bought, buy(4))
	want(t, "stock of the item that was bought", s.audit(t, bought).Stock, 6)
	want(t, "stock of another item", s.audit(t, other).Stock, 10)
}

func rejectsAnUnknownItem(t *testing.T, s *subject) {
	unknown := s.goods.Add(1)
	purchase := buy(1)
	_, err := s.deduct(t.Context(), unknown, purchase)
	should.Fail(t, err, stock.ErrUnknownGoods, "a purchase of an unknown item got")
	orders, err := s.store.Orders(t.Context(), purchase.RequestID)
	if err != nil || len(orders) > 0 {
		t.Errorf("the ledger has %v of an unknown item (%v)", orders, err)
	}
	// The answer must not outlive its reason.
	must.Do(t, s.store.CreateGoods(t.Context(), unknown, 1, rand.Text()))
	should.Be(t, oneOf(s.deduct(t.Context(), unknown, buy(1))), nil, "an item that was created after a purchase asked for it")
}

// takesARequestIDOnce sends a request id again, in a batch and for another item. Where the item has
// a limit, none of that counts for the buyer.
func takesARequestIDOnce(t *testing.T, s *subject) {
	for _, most := range []int64{0, 5} {
		goods := s.createLimited(t, 10, most)
		first := by("a", 2)
		answered, err := s.deduct(t.Context(), goods, first)
		must.Do(t, oneOf(answered, err))
		outcomes, err := s.deduct(t.Context(), goods, by("a", 1), first)
		sold, orders := int64(2), int64(1)
		_, answersAhead := s.bare[0].(*redisstock.Stock)
		if answersAhead && err == nil {
			// It knows the first answer, and gives it again; the others of the batch buy.
			if again := outcomes[1]; !again.Replayed || again.Order.ID != answered[0].Order.ID || !again.Order.Answers(goods, first) || again.Order.Remaining != 8 {
				t.Errorf("a request id that is taken was answered with %+v, want the first answer again", again)
			}
			sold, orders = 3, 2
		} else if !errors.Is(err, stock.ErrDuplicateRequest) {
			t.Errorf("a batch with a request id that is taken was answered with %v, want %v", err, stock.ErrDuplicateRequest)
		}
		other := s.createLimited(t, 10, most)
		// What redis-stock accepts, not knowing it, is left out of the ledger, which has the first.
		s.settle(t, goods)
		if outcomes, err := s.deduct(t.Context(), other, first); !answersAhead && !errors.Is(err, stock.ErrDuplicateRequest) {
			t.Errorf("a request id of another item was answered with %+v, %v, want %v", outcomes, err, stock.ErrDuplicateRequest)
		}
		want(t, "stock", s.audit(t, goods).Stock, 10-sold)
		want(t, "orders in the ledger", s.audit(t, goods).Orders, orders)
		want(t, "stock of the other item", s.audit(t, other).Stock, 10)
		if most == 0 {
			continue
		}
		for item, has := range map[int64]int64{goods: sold, other: 0} {
			should.Fail(t, oneOf(s.deduct(t.Context(), item, by("a", most-has))), nil, "what is left of a limit of … after … units is answered", most, has)
		}
		s.wantSoldInAll(t, goods, 10, most)
		s.wantSoldInAll(t, other, 10, most)
	}
}

// duplicatesInACrowdChangeNoOtherPurchase has many buy at once, every fourth one what was
// bought before: those get the duplicate, and no sale of the others is lost or made
// twice.
func duplicatesInACrowdChangeNoOtherPurchase(t *testing.T, s *subject) {
	goods := s.create(t, 1000)
	known := buy(1)
	s.sell(t, goods, known)
	const calls, copies = 24, 6
	var buyers sync.WaitGroup
	start := make(chan struct{})
	for i := range calls {
		buyers.Go(func() {
			purchase, wanted := buy(1), error(nil)
			if i%(calls/copies) == 0 {
				purchase, wanted = known, stock.ErrDuplicateRequest
			}
			<-start
			outcomes, err := s.deduct(t.Context(), goods, purchase)
			if err == nil && wanted != nil && outcomes[0].Replayed && outcomes[0].Order.RequestID == known.RequestID {
				return // it gets the first answer again
			}
			should.Fail(t, err, wanted, "buyer … is answered with", i)
			if err == nil && (outcomes[0].Rejected != nil || outcomes[0].Order.RequestID != purchase.RequestID) {
				t.Errorf("buyer %d of %s is answered with %+v", i, purchase.RequestID, outcomes[0])
			}
		})
	}
	close(start)
	buyers.Wait()
	want(t, "orders in the ledger", s.audit(t, goods).Orders, 1+calls-copies)
}

// recordsBuyerItemAndReplica sells a batch of several buyers, in which one may not repeat its
// purchase: the ledger does not have what that one left.
func recordsBuyerItemAndReplica(t *testing.T, s *subject) {
	goods := s.create(t, 10)
	batch := []stock.Purchase{by("小明", 2), by("a", 1), by("b", 3)}
	batch[0].Keyed, batch[2].Keyed = true, true
	outcomes := s.sell(t, goods, batch...)
	s.settle(t, goods)
	for i, purchase := range batch {
		orders := must.Get(s.store.Orders(t.Context(), purchase.RequestID))(t)
		written, answered := orders[purchase.RequestID], outcomes[i].Order
		if purchase.Keyed && written != answered {
			t.Errorf("the ledger has %+v, the answer was %+v", written, answered)
		}
		for _, order := range []stock.Order{written, answered} {
			if !order.Answers(goods, purchase) {
				t.Errorf("%+v does not answer %+v", order, purchase)
			}
		}
		if written.ID != answered.ID || written.Strategy != s.entry.Name || written.Replica != "replica-1" {
			t.Errorf("order %s is written as %s by %s on %s, want %s on replica-1", answered.ID, written.ID, written.Strategy, written.Replica, s.entry.Name)
		}
	}
}

// namesTheDatabaseThatFails has a replica lose its database: it blames the backend, calls nothing
// sold out, and keeps no lock from the replicas that still have it.
func namesTheDatabaseThatFails(t *testing.T, s *subject) {
	store := s.bench.Open(t, "replica-0")
	broken := s.entry.New(s.deps(t, store))
	goods := s.create(t, 10)
	must.Do(t, store.Close())
	batch := []stock.Purchase{buy(1), buy(20)} // the second one does not fit
	outcomes, err := s.group(t, broken.Deduct)(t.Context(), goods, batch)
	if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend == "" {
		t.Errorf("without its database it answers %+v, %v, want an error that names the backend", outcomes, err)
	}
	if closer, ok := broken.(io.Closer); ok { // before its consumers find orders of others
		should.Do(t, closer.Close())
	}
	s.wantSold(t, goods, 10)
}

func doesNothingForACancelledRequest(t *testing.T, s *subject) {
	goods := s.create(t, 10)
	gone := errors.New("the buyer hung up")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	_, err := s.deduct(ctx, goods, buy(1))
	should.Fail(t, err, gone, "a cancelled request was answered")
	s.wantBooks(t, goods, 10, 0)
}

// isAnswerToLeaver reports whether an error is that of a buyer that left so long ago, or one that came before: no
// backend is to blame for the end of a request, unless it was asked before and has not answered since.
func isAnswerToLeaver(err, gone error, ago time.Duration) bool {
	if errors.Is(err, stock.ErrBackendUnavailable) {
		return errors.Is(err, stock.ErrUnknownOutcome) && ago >= backend.AnswerWithin
	}
	return errors.Is(err, gone) || errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrUnknownOutcome)
}

// sellsNothingAfterAFailedAnswer cancels purchases at random moments: a client that
// got an error that is not "unknown" must have bought nothing, and no purchase may
// still be in the middle of it when the answers are in.
func sellsNothingAfterAFailedAnswer(t *testing.T, s *subject) {
	goods, gone := s.create(t, 1_000_000), errors.New("the buyer hung up")
	var mu sync.Mutex
	fates := make(map[string]error)
	var buyers sync.WaitGroup
	for range 8 {
		buyers.Go(func() {
			for i := range 10 {
				purchase, limit := buy(1), mathrand.N(8*time.Millisecond)
				leaves := time.Now().Add(limit)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				if hangsUp := i%2 == 0; hangsUp {
					cancel()
					var hangUp context.CancelCauseFunc
					ctx, hangUp = context.WithCancelCause(t.Context())
					timer := time.AfterFunc(limit, func() { hangUp(gone) })
					cancel = func() { timer.Stop(); hangUp(nil) }
				}
				_, err := s.deduct(ctx, goods, purchase)
				if left := errors.Is(context.Cause(ctx), gone); left && err != nil && !isAnswerToLeaver(err, gone, time.Since(leaves)) {
					t.Errorf("a buyer that hung up is answered with %v, want %v", err, gone)
				}
				cancel()
				mu.Lock()
				fates[purchase.RequestID] = err
				mu.Unlock()
			}
		})
	}
	buyers.Wait()
	s.settle(t, goods)
	for id, err := range fates {
		orders, failed := s.store.Orders(t.Context(), id)
		if failed != nil {
			t.Fatal(failed)
		}
		_, sold := orders[id]
		if unknown := errors.Is(err, stock.ErrUnknownOutcome); sold != (err == nil) && !unknown {
			t.Errorf("the buyer got %v, and sold is %t", err, sold)
		}
	}
	before := s.audit(t, goods)
	time.Sleep(50 * time.Millisecond)
	should.Be(t, s.audit(t, goods), before, "the item after every buyer had an answer")
	if s.entry.Guarantees.ExclusiveInProcess && !before.Clean {
		t.Errorf("units were lost or oversold: %+v", before)
	}
}

// returnsWhenItIsCancelledBesideAnother has one buyer leave while the purchase of another one is
// in its middle: the one that left returns, and only then does the other one go on.
func returnsWhenItIsCancelledBesideAnother(t *testing.T, s *subject) {
	bare, seen := s.withMiddle(t)
	deduct := s.group(t, bare.Deduct)
	goods, gone := s.create(t, 10), errors.New("the buyer hung up")
	var left error
	met, returned := false, false
	meet := func() {
		met = true
		ctx, cancel := context.WithCancelCause(t.Context())
		timer := time.AfterFunc(middleWithin, func() { cancel(gone) })
		defer timer.Stop()
		done := make(chan struct{})
		go func() {
			defer close(done)
			left = oneOf(deduct(ctx, goods, []stock.Purchase{buy(1)}))
		}()
		select {
		case <-done:
			returned = true
		case <-time.After(settleWithin):
		}
	}
	seen.next.Store(&meet)
	err := oneOf(deduct(t.Context(), goods, []stock.Purchase{buy(1)}))
	if !met {
		t.Skip("its purchases have no middle")
	}
	if err != nil && !errors.Is(err, stock.ErrBusy) {
		t.Errorf("the purchase that was not cancelled is answered with %v", err)
	}
	if !returned || left != nil && !errors.Is(left, gone) && !errors.Is(left, stock.ErrUnknownOutcome) {
		t.Errorf("a purchase that was cancelled while another one went on has returned: %t, with %v, want %v", returned, left, gone)
	}
}

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
	outcomes := s.sell(t, goods, first, buy(2), large, second)
	wantSoldOf(t, outcomes, true, true, false, true)
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
	audit := s.wantBooks(t, goods, 4, 2)
	want(t, "held", audit.Held, 4)
	want(t, "orders in the ledger", audit.Orders, 1)
	s.wantConsistent(t, audit)
}

// sellsWhatComesBack has two of three reservations end, one of them after its time.
func sellsWhatComesBack(t *testing.T, s *subject) {
	goods := s.create(t, 10)
	kept, released, confirmed := reserve(2), reserve(5), reserve(3)
	for _, p := range []stock.Purchase{kept, released, confirmed} {
		must.Do(t, oneOf(s.deduct(t.Context(), goods, p)))
	}
	s.wantRejected(t, goods, 1, stock.ErrInsufficientStock)
	s.settle(t, goods)
	if _, _, err := s.store.ConfirmAll(t.Context(), []string{confirmed.Number}); err != nil {
		t.Fatal(err)
	}
	s.giveBack(t, released)
	should.Be(t, s.deductSoon(t, goods, buy(4)), nil, "4 of 5 that have come back")
	should.Be(t, oneOf(s.deduct(t.Context(), goods, reserve(1))), nil, "the last one that has come back")
	s.wantRejected(t, goods, 1, stock.ErrInsufficientStock)
	audit := s.wantBooks(t, goods, 0, 7)
	want(t, "held", audit.Held, 3)
	s.wantConsistent(t, audit)
}

// deductSoon sells a purchase as soon as the first replica has been notified of units: until then,
// for a second at most, it may know the item as sold out.
func (s *subject) deductSoon(t *testing.T, goodsID int64, p stock.Purchase) (err error) {
	t.Helper()
	labtest.Eventually(settleWithin, func() bool {
		err = oneOf(s.deduct(t.Context(), goodsID, p))
		return !errors.Is(err, stock.ErrInsufficientStock)
	})
	return err
}

// giveBack releases a reservation, as a client of another replica does.
func (s *subject) giveBack(t *testing.T, p stock.Purchase) {
	t.Helper()
	r, _, err := s.store.Release(t.Context(), p.Number)
	if err != nil {
		t.Fatal(err)
	}
	if copied, ok := s.bare[1].(*redisstock.Stock); ok {
		must.Do(t, copied.Restocked(t.Context(), r.GoodsID, r.Quantity, r.UserID))
	}
}

// countsWhatABuyerHolds has a buyer reserve up to the limit, and buy again what was released.
func countsWhatABuyerHolds(t *testing.T, s *subject) {
	goods := s.createLimited(t, 100, perUser)
	held := reserve(perUser)
	held.UserID = "小明"
	must.Do(t, oneOf(s.deduct(t.Context(), goods, held)))
	should.Fail(t, oneOf(s.deduct(t.Context(), goods, by("小明", 1))), stock.ErrUserLimit, "one more than the limit is answered")
	s.wantReservation(t, held, goods)
	s.giveBack(t, held)
	should.Be(t, oneOf(s.deduct(t.Context(), goods, by("小明", perUser))), nil, "what was released")
	s.wantSoldInAll(t, goods, 100, perUser)
}
