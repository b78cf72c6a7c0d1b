package strategytest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// crowd is a sale of the suite: more buyers than units, so that it sells out.
type crowd struct {
	units    int64
	clients  int
	attempts int // each client's
	proofs   int // how often it must do no damage
}

// chances is how often a strategy that claims no exclusion is tried until it
// does damage.
const chances = 20

// locks reports whether the strategy sells under a lock on a server: a sale takes it several round trips, one after
// the other, and locktest proves its exclusion with far more holds.
func (s *subject) locks() bool { return s.entry.Guarantees.Fenceable || s.entry.Watchdog }

// crowd is smaller for a strategy that locks.
func (s *subject) crowd() crowd {
	if s.locks() {
		return crowd{units: 20, clients: 8, attempts: 5, proofs: 1}
	}
	return crowd{units: 60, clients: 12, attempts: 12, proofs: 3}
}

// saleWithin ends a sale that is not sold out: a lock that stalls, as one does
// that is here for that, leaves its buyers an honest busy.
const saleWithin = 6 * time.Second

// exclusion proves the claim, or shows the damage where there is none.
func exclusion(t *testing.T, s *subject, claimed bool, replicas []strategy.Deduct) {
	if claimed {
		for range s.crowd().proofs {
			assertSoldOut(t, s, replicas)
		}
		return
	}
	if caveat := s.entry.Caveat(s.store.Dialect()); caveat.Hides {
		t.Skip(caveat.Words)
	}
	for range chances {
		if audit, _ := sellOut(t, s, replicas); !audit.Clean {
			assertDamage(t, s.entry.Damage, audit)
			return
		}
	}
	t.Fatalf("guarantees no exclusion on %d replicas, and was consistent %d times", len(replicas), chances)
}

// assertDamage holds what was found against the damage that the entry names.
func assertDamage(t *testing.T, damage strategy.Damage, a stock.Audit) {
	t.Helper()
	shown := map[strategy.Damage]bool{
		strategy.LostUpdates: a.Lost > 0 && a.Stock >= 0,
		strategy.BelowZero:   a.Lost == 0 && a.Stock < 0,
	}
	if !shown[damage] {
		t.Errorf("its damage should be %q, and is %d oversold, %d updates lost, %d left", damage, a.Oversold, a.Lost, a.Stock)
	}
}

// assertSoldOut holds a sale to what a strategy guarantees that is consistent: everything
// is sold. What is left where a purchase was answered busy can be bought after the crowd.
func assertSoldOut(t *testing.T, s *subject, replicas []strategy.Deduct) {
	t.Helper()
	audit, busy := sellOut(t, s, replicas)
	if rest := s.crowd().units - audit.Sold; rest > 0 && busy > 0 {
		should.Fail(t, oneOf(insist(t, replicas[0], audit.GoodsID, buy(rest))), nil, "… units are left after a crowd of which … got busy, and a purchase of them is answered", rest, busy)
	}
	if !audit.Clean || audit.Sold == 0 || audit.Sold != s.crowd().units && busy == 0 {
		t.Fatalf("guarantees a consistent ledger on %d replicas, and with %d busy purchases the audit is %+v", len(replicas), busy, audit)
	}
}

// sellOut sends a crowd to the replicas in turn, and returns the audit after it
// and how many got busy.
func sellOut(t *testing.T, s *subject, replicas []strategy.Deduct) (audit stock.Audit, busy int64) {
	t.Helper()
	sale := s.crowd()
	goods := s.create(t, sale.units)
	var sold, rejected, turn atomic.Int64
	var buyers sync.WaitGroup
	end := time.Now().Add(saleWithin)
	for range sale.clients {
		buyers.Go(func() {
			for range sale.attempts {
				if time.Now().After(end) {
					rejected.Add(1)
					return
				}
				deduct := replicas[turn.Add(1)%int64(len(replicas))]
				outcomes, err := deduct(t.Context(), goods, []stock.Purchase{buy(1)})
				switch {
				case errors.Is(err, stock.ErrBusy):
					rejected.Add(1)
				case err != nil:
					t.Errorf("in a crowd: %v", err)
				case outcomes[0].Rejected == nil:
					sold.Add(1)
				case !errors.Is(outcomes[0].Rejected, stock.ErrInsufficientStock):
					t.Errorf("in a crowd a purchase is rejected with %v", outcomes[0].Rejected)
				}
			}
		})
	}
	buyers.Wait()
	audit = s.audit(t, goods)
	want(t, "orders in the ledger, against the accepted purchases,", audit.Orders, sold.Load())
	return audit, rejected.Load()
}

// waitsNoLongerThanAPurchaseSays has a purchase ask for a lock in the middle of another one.
func waitsNoLongerThanAPurchaseSays(t *testing.T, s *subject) {
	const wait = 50 * time.Millisecond
	bare, seen := s.withMiddle(t)
	if _, ok := bare.(strategy.Waiter); !ok || !s.entry.Guarantees.ExclusiveInProcess {
		t.Skip("no purchase of it waits for another one")
	}
	goods, impatient := s.create(t, 2), buy(1)
	impatient.MaxWait = wait
	var late error
	var waited time.Duration
	ask := func() {
		begun := time.Now()
		late = oneOf(bare.Deduct(t.Context(), goods, []stock.Purchase{impatient}))
		waited = time.Since(begun)
	}
	seen.next.Store(&ask)
	must.Do(t, oneOf(bare.Deduct(t.Context(), goods, []stock.Purchase{buy(1)})))
	if !errors.Is(late, stock.ErrBusy) || waited < wait || waited > lockWait-wait {
		t.Errorf("a purchase that waits for %s is answered with %v after %s", wait, late, waited)
	}
}

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
	must.Get(s.store.As(s.entry.Name).ClaimFence(t.Context(), goods, ahead))(t)
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
	must.Get(s.store.As("another").ClaimFence(t.Context(), goods, 1))(t)
	should.Be(t, oneOf(deduct(t.Context(), goods, []stock.Purchase{buy(1)})), nil, "after another strategy had sold")
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
	should.Fail(t, err, stock.ErrFenced, "a sale whose item was claimed in its middle is answered with")
	s.wantBooks(t, goods, 10, 0)
}
