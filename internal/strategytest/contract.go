package strategytest

import (
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

func sellsAndReportsWhatIsLeft(t *testing.T, s *subject) {
	goods := s.create(t, 10)
	outcomes, err := s.deduct(t.Context(), goods, buy(3))
	if err != nil {
		t.Fatal(err)
	}
	if outcomes[0].Rejected != nil {
		t.Fatalf("rejected: %v", outcomes[0].Rejected)
	}
	order := outcomes[0].Order
	if order.ID == "" {
		t.Error("the order has no id")
	}
	want(t, "quantity of the order", order.Quantity, 3)
	want(t, "what the order says is left", order.Remaining, 7)
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 7)
	want(t, "sold", audit.Sold, 3)
	want(t, "orders in the ledger", audit.Orders, 1)
}

func sellsTheLastUnit(t *testing.T, s *subject) {
	goods := s.create(t, 3)
	for range 2 {
		outcomes, err := s.deduct(t.Context(), goods, buy(1))
		if err != nil || outcomes[0].Rejected != nil {
			t.Fatalf("a unit of three was not sold: %v, %v", err, outcomes)
		}
	}
	outcomes, err := s.deduct(t.Context(), goods, buy(1))
	if err != nil || outcomes[0].Rejected != nil {
		t.Fatalf("the last unit was not sold: %v, %v", err, outcomes)
	}
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 0)
	want(t, "sold", audit.Sold, 3)
}

// keepsALargeStock sells quantities of every size from the largest stock that the suite
// can afford everywhere.
func keepsALargeStock(t *testing.T, s *subject) {
	const units = 200_000
	goods, left := s.create(t, units), int64(units)
	for _, quantity := range []int64{1, 999, 1000, 1001, 100_000} {
		outcomes, err := s.deduct(t.Context(), goods, buy(quantity))
		if err != nil || outcomes[0].Rejected != nil {
			t.Fatalf("%d of %d were not sold: %v, %v", quantity, left, err, outcomes)
		}
		left -= quantity
		want(t, "what the order says is left", outcomes[0].Order.Remaining, left)
	}
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, left)
	want(t, "sold", audit.Sold, units-left)
}

func rejectsWhatDoesNotFit(t *testing.T, s *subject) {
	goods := s.create(t, 2)
	for _, units := range []int64{3, stock.MaxQuantity} {
		outcomes, err := s.deduct(t.Context(), goods, buy(units))
		if err != nil {
			t.Fatal(err)
		}
		if !errors.Is(outcomes[0].Rejected, stock.ErrInsufficientStock) {
			t.Errorf("%d of 2 got %v, want a rejection", units, outcomes[0])
		}
	}
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 2)
	want(t, "orders in the ledger", audit.Orders, 0)
	// A rejection must not outlive its reason.
	s.restock(t, goods, 1)
	outcomes, err := s.deduct(t.Context(), goods, buy(3))
	if err != nil || outcomes[0].Rejected != nil {
		t.Errorf("3 of 3 were not sold after a restock: %v, %v", err, outcomes)
	}
	if outcomes, err := s.deduct(t.Context(), goods, buy(1)); err != nil || !errors.Is(outcomes[0].Rejected, stock.ErrInsufficientStock) {
		t.Errorf("one more than all got %v, %v: a restock that is reported twice counts twice", err, outcomes)
	}
}

// rejectsWhatAnotherStrategySoldOut asks for a unit of what another strategy has sold to
// the last one.
func rejectsWhatAnotherStrategySoldOut(t *testing.T, s *subject) {
	goods := s.create(t, 2)
	if err := oneOf(s.another(t, "sql-conditional").bare[0].Deduct(t.Context(), goods, []stock.Purchase{buy(2)})); err != nil {
		t.Fatal(err)
	}
	if err := oneOf(s.deduct(t.Context(), goods, buy(1))); !errors.Is(err, stock.ErrInsufficientStock) {
		t.Errorf("a purchase is answered with %v, want %v", err, stock.ErrInsufficientStock)
	}
}

func servesABatchFirstComeFirstServed(t *testing.T, s *subject) {
	goods := s.create(t, 5)
	outcomes, err := s.deduct(t.Context(), goods, buy(3), buy(4), buy(2))
	if err != nil {
		t.Fatal(err)
	}
	if len(outcomes) != 3 {
		t.Fatalf("%d answers to a batch of 3", len(outcomes))
	}
	for i, sold := range []bool{true, false, true} {
		if got := outcomes[i].Rejected == nil; got != sold {
			t.Errorf("purchase %d of 3, 4, 2 out of 5: sold is %v, want %v", i+1, got, sold)
		}
	}
	want(t, "what the first order says is left", outcomes[0].Order.Remaining, 2)
	want(t, "what the last order says is left", outcomes[2].Order.Remaining, 0)
	if outcomes[0].Order.ID == outcomes[2].Order.ID {
		t.Errorf("two orders have the id %s", outcomes[0].Order.ID)
	}
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 0)
	want(t, "orders in the ledger", audit.Orders, 2)
}

func changesNoOtherItem(t *testing.T, s *subject) {
	bought, other := s.create(t, 10), s.create(t, 10)
	if _, err := s.deduct(t.Context(), bought, buy(4)); err != nil {
		t.Fatal(err)
	}
	want(t, "stock of the item that was bought", s.audit(t, bought).Stock, 6)
	want(t, "stock of another item", s.audit(t, other).Stock, 10)
}

func rejectsAnUnknownItem(t *testing.T, s *subject) {
	unknown := s.goods.Add(1)
	purchase := buy(1)
	_, err := s.deduct(t.Context(), unknown, purchase)
	if !errors.Is(err, stock.ErrUnknownGoods) {
		t.Errorf("a purchase of an unknown item got %v, want %v", err, stock.ErrUnknownGoods)
	}
	orders, err := s.store.Orders(t.Context(), purchase.RequestID)
	if err != nil || len(orders) > 0 {
		t.Errorf("the ledger has %v of an unknown item (%v)", orders, err)
	}
	// The answer must not outlive its reason.
	if err := s.store.CreateGoods(t.Context(), unknown, 1, rand.Text()); err != nil {
		t.Fatal(err)
	}
	if err := oneOf(s.deduct(t.Context(), unknown, buy(1))); err != nil {
		t.Errorf("an item that was created after a purchase asked for it is answered with %v", err)
	}
}

// takesARequestIDOnce sends a request id again, in a batch and for another item. Where the item has
// a limit, none of that counts for the buyer.
func takesARequestIDOnce(t *testing.T, s *subject) {
	for _, most := range []int64{0, 5} {
		goods := s.createLimited(t, 10, most)
		first := by("a", 2)
		answered, err := s.deduct(t.Context(), goods, first)
		if err := oneOf(answered, err); err != nil {
			t.Fatal(err)
		}
		outcomes, err := s.deduct(t.Context(), goods, by("a", 1), first)
		sold, orders := int64(2), int64(1)
		_, answersAhead := s.bare[0].(strategy.Outbox)
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
		// What an Outbox accepts, not knowing it, is left out of the ledger, which has the first.
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
			if err := oneOf(s.deduct(t.Context(), item, by("a", most-has))); err != nil {
				t.Errorf("what is left of a limit of %d after %d units is answered with %v", most, has, err)
			}
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
	if _, err := s.deduct(t.Context(), goods, known); err != nil {
		t.Fatal(err)
	}
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
			if !errors.Is(err, wanted) {
				t.Errorf("buyer %d is answered with %v, want %v", i, err, wanted)
			}
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
	outcomes, err := s.deduct(t.Context(), goods, batch...)
	if err != nil {
		t.Fatal(err)
	}
	s.settle(t, goods)
	for i, purchase := range batch {
		orders, err := s.store.Orders(t.Context(), purchase.RequestID)
		if err != nil {
			t.Fatal(err)
		}
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
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	batch := []stock.Purchase{buy(1), buy(20)} // the second one does not fit
	outcomes, err := s.group(t, broken.Deduct)(t.Context(), goods, batch)
	if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend == "" {
		t.Errorf("without its database it answers %+v, %v, want an error that names the backend", outcomes, err)
	}
	if closer, ok := broken.(io.Closer); ok { // before its consumers find orders of others
		if err := closer.Close(); err != nil {
			t.Error(err)
		}
	}
	s.wantSold(t, goods, 10)
}
