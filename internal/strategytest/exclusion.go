package strategytest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/service/strategy"
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

// crowd is smaller for a strategy whose lock is on a server: a sale takes it
// several round trips, and locktest proves its exclusion with far more holds.
func (s *subject) crowd() crowd {
	if s.entry.Guarantees.Fenceable {
		return crowd{units: 20, clients: 8, attempts: 5, proofs: 1}
	}
	return crowd{units: 60, clients: 12, attempts: 12, proofs: 3}
}

// saleWithin ends a sale that is not sold out: a lock that stalls, as one does
// that is here for that, leaves its buyers an honest busy.
const saleWithin = 6 * time.Second

func onOneReplica(t *testing.T, s *subject) {
	exclusion(t, s, s.entry.Guarantees.ExclusiveInProcess, s.replicas[:1])
}

func onThreeReplicas(t *testing.T, s *subject) {
	exclusion(t, s, s.entry.Guarantees.ExclusiveAcrossReplicas, s.replicas)
}

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
		if err := oneOf(insist(t, replicas[0], audit.GoodsID, buy(rest))); err != nil {
			t.Errorf("%d units are left after a crowd of which %d got busy, and a purchase of them is answered with %v", rest, busy, err)
		}
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
	seen := new(middle)
	deps := s.deps(t, s.store)
	deps.Failpoints = seen
	bare := s.entry.New(deps)
	closeAfter(t, bare)
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
	if err := oneOf(bare.Deduct(t.Context(), goods, []stock.Purchase{buy(1)})); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(late, stock.ErrBusy) || waited < wait || waited > lockWait-wait {
		t.Errorf("a purchase that waits for %s is answered with %v after %s", wait, late, waited)
	}
}
