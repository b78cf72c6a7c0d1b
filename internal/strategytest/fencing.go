package strategytest

import (
	"context"
	"errors"
	"testing"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// fenced is the subject with its writes fenced, or a skip where nothing of it
// could be.
func (s *subject) fenced(t *testing.T) []strategy.Deduct {
	t.Helper()
	list := make([]strategy.Deduct, 0, len(s.bare))
	for _, replica := range s.bare {
		fencer, ok := replica.(strategy.Fencer)
		if ok != s.entry.Guarantees.Fenceable {
			t.Fatalf("guarantees Fenceable %v, and is %v", s.entry.Guarantees.Fenceable, ok)
		}
		if !ok {
			t.Skip("it has no lock whose token could be checked, and guarantees none")
		}
		list = append(list, s.group(t, fencer.DeductFenced))
	}
	return list
}

func sellsOutFencedOnThreeReplicas(t *testing.T, s *subject) {
	assertSoldOut(t, s, s.fenced(t))
}

// writesTheTokenThatItClaimed shows that the token of the answer is the one in
// the ledger and the one in the row, and that it grows.
func writesTheTokenThatItClaimed(t *testing.T, s *subject) {
	replicas := s.fenced(t)
	goods := s.create(t, 10)
	var last uint64
	for i := range 6 {
		outcomes, err := replicas[i%len(replicas)](t.Context(), goods, []stock.Purchase{buy(1)})
		if err != nil {
			t.Fatal(err)
		}
		token := outcomes[0].Order.Token
		if token <= last {
			t.Errorf("token %d came after %d", token, last)
		}
		last = token
		row, err := s.store.Goods(t.Context(), goods)
		if err != nil || row.Fence != token {
			t.Errorf("the row was claimed by %d (%v), the buyer got %d", row.Fence, err, token)
		}
	}
}

// ahead is a token that is far above those of a lock.
const ahead = 1 << 60

// rejectsAWriteAfterALaterClaim has another holder claim the item with a token that is far
// ahead, as after the loss of a counter: the next sale is rejected, not lost, and
// where the tokens can be lifted the one after it is served.
func rejectsAWriteAfterALaterClaim(t *testing.T, s *subject) {
	deduct := s.fenced(t)[0]
	goods := s.create(t, 10)
	if _, err := s.store.As(s.entry.Name).ClaimFence(t.Context(), goods, ahead); err != nil {
		t.Fatal(err)
	}
	outcomes, err := deduct(t.Context(), goods, []stock.Purchase{buy(1)})
	left := int64(10)
	switch {
	case errors.Is(err, stock.ErrFenced):
	case err != nil || outcomes[0].Rejected != nil:
		t.Fatalf("shut out by a later token it says %+v, %v, want %v", outcomes, err, stock.ErrFenced)
	default:
		left--
		if token := outcomes[0].Order.Token; token <= ahead {
			t.Errorf("it sold with the token %d after a claim with %d", token, uint64(ahead))
		}
	}
	want(t, "stock after a later claim", s.audit(t, goods).Stock, left)
	// Another strategy's tokens do not compare: the last claim wins.
	if _, err := s.store.As("another").ClaimFence(t.Context(), goods, 1); err != nil {
		t.Fatal(err)
	}
	if err := oneOf(deduct(t.Context(), goods, []stock.Purchase{buy(1)})); err != nil {
		t.Errorf("after another strategy had sold: %v", err)
	}
	want(t, "stock after another strategy's claim", s.audit(t, goods).Stock, left-1)
}

// rejectsAWriteAfterAClaimInItsMiddle has another holder claim the item when a sale has read it, as
// where its holder is paused for longer than its lease.
func rejectsAWriteAfterAClaimInItsMiddle(t *testing.T, s *subject) {
	bare, seen := s.withMiddle(t)
	fencer, ok := bare.(strategy.Fencer)
	if !ok {
		t.Skip("it has no lock whose token could be checked, and guarantees none")
	}
	goods, claimed := s.create(t, 10), false
	claim := func() {
		ctx, cancel := context.WithTimeout(t.Context(), lockWait)
		defer cancel()
		_, err := s.store.As(s.entry.Name).ClaimFence(ctx, goods, ahead)
		claimed = err == nil // a sale that keeps the row in its middle lets no other holder claim it
	}
	seen.next.Store(&claim)
	err := oneOf(s.group(t, fencer.DeductFenced)(t.Context(), goods, []stock.Purchase{buy(1)}))
	if !claimed {
		t.Skip("no other holder can claim an item in the middle of its sales")
	}
	if !errors.Is(err, stock.ErrFenced) {
		t.Errorf("a sale whose item was claimed in its middle is answered with %v, want %v", err, stock.ErrFenced)
	}
	audit := s.audit(t, goods)
	want(t, "stock", audit.Stock, 10)
	want(t, "orders in the ledger", audit.Orders, 0)
}
