package hot_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/stock"
)

// A master dies before its replica and the ledger have an order that its
// buyer got: that one is lost, and nothing else. Its units are sold to others,
// and each unit once.
func TestAFailoverLosesWhatOnlyTheMasterKnewAndNothingElse(t *testing.T) {
	pair := lab.OwnRedisPair(t)
	s := open(t, pair.Primary, 10)
	s.address = pair.Front.Address
	a := s.replica(t, "a", idle)
	reported := orders(sell(t, a, buy(1)))
	settle(t, a)
	reported = append(reported, sell(t, a, buy(2)))
	if err := pair.AwaitSync(t.Context()); err != nil {
		t.Fatal(err)
	}
	pair.Link.Cut()
	lost := buy(3)
	sell(t, a, lost)
	if err := pair.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := s.replica(t, "b")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := b.Await(ctx, reported[1]); err != nil { // the new master knew it
		t.Fatal(err)
	}
	reported = append(reported, crowd(t, b)...)
	s.assertExact(t, b, reported)
	if sold := s.audit(t).Sold; sold != 10 {
		t.Errorf("%d of 10 were sold in the end", sold)
	}
	lost.Keyed = true
	if o, err := deduct(t, b, lost); err != nil || !errors.Is(o.Rejected, stock.ErrInsufficientStock) {
		t.Errorf("a read of the lost order got %+v (%v)", o, err)
	}
}
