package strategytest

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// A sale of the suite: more buyers than units, so that it sells out.
const (
	units    = 60
	clients  = 12
	attempts = 12 // each client's
)

// chances is how often a strategy that claims no exclusion is tried until it
// does damage; and how often one that claims it must do none.
const (
	chances = 20
	proofs  = 3
)

func onOneReplica(t *testing.T, s *subject) {
	exclusion(t, s, s.entry.Claims.ExclusiveInProcess, s.replicas[:1])
}

func onThreeReplicas(t *testing.T, s *subject) {
	exclusion(t, s, s.entry.Claims.ExclusiveAcrossReplicas, s.replicas)
}

// exclusion proves the claim, or shows the damage where there is none.
func exclusion(t *testing.T, s *subject, claimed bool, replicas []strategy.Strategy) {
	if claimed {
		for range proofs {
			if audit := sellOut(t, s, replicas); !audit.Clean || audit.Sold != units {
				t.Fatalf("claims to be clean on %d replicas: %+v", len(replicas), audit)
			}
		}
		return
	}
	if caveat := s.entry.Caveat(s.store.Dialect()); caveat.Hides {
		t.Skip(caveat.Words)
	}
	for range chances {
		if audit := sellOut(t, s, replicas); !audit.Clean {
			assertDamage(t, s.entry.Damage, audit)
			return
		}
	}
	t.Fatalf("claims no exclusion on %d replicas, and came out clean %d times", len(replicas), chances)
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

// sellOut sends a crowd to the replicas in turn, and returns the audit after it.
func sellOut(t *testing.T, s *subject, replicas []strategy.Strategy) stock.Audit {
	t.Helper()
	goods := s.create(t, units)
	var sold, turn atomic.Int64
	var crowd sync.WaitGroup
	for range clients {
		crowd.Go(func() {
			for range attempts {
				replica := replicas[turn.Add(1)%int64(len(replicas))]
				outcomes, err := replica.Deduct(t.Context(), goods, []stock.Purchase{buy(1)})
				switch {
				case errors.Is(err, stock.ErrBusy): // an honest answer in a crowd
				case err != nil:
					t.Errorf("in a crowd: %v", err)
				case outcomes[0].Refused == nil:
					sold.Add(1)
				}
			}
		})
	}
	crowd.Wait()
	audit := s.audit(t, goods)
	want(t, "orders in the ledger, against buyers who were told that they have one,", audit.Orders, sold.Load())
	return audit
}
