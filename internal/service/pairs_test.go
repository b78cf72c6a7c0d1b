package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service/redisstock"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// TestEveryPairSellsAllThatIsLeft is what a user does who changes the strategy: each one
// sells what is left, wherever the one before it has kept the units, and what is
// restocked then.
func TestEveryPairSellsAllThatIsLeft(t *testing.T) {
	eachPair(t, lab.EachServer, isElsewhere, sellsAllThatIsLeft)
}

func sellsAllThatIsLeft(t *testing.T, s shop, first, second string, goods int64) {
	s.create(t, goods, 13)
	s.sells(t, first, goods, 2, 2)
	s.sells(t, second, goods, 3, 3, 3)
	s.rejects(t, second, goods)
	must.Get(s.inventory.Restock(t.Context(), goods, 5, ""))(t)
	s.sells(t, first, goods, 1, 2, 2)
	s.rejects(t, first, goods)
	s.settles(t, goods, 18)
	must.Get(s.inventory.Restock(t.Context(), goods, 1, ""))(t)
	s.sells(t, second, goods, 1)
	s.settles(t, goods, 19)
}

// TestEveryPairSellsAtTheSameTime has two strategies sell one item on two replicas until
// it is sold out. Which of them is on which replica makes no difference.
func TestEveryPairSellsAtTheSameTime(t *testing.T) {
	once := func(first, second string) bool { return first <= second && isElsewhere(first, second) }
	eachPair(t, lab.EachServer, once, sellsAtTheSameTime)
}

func sellsAtTheSameTime(t *testing.T, s shop, first, second string, goods int64) {
	s.sellsOut(t, goods, first, second)
}

// isElsewhere picks the pairs of which one at least keeps units, or a copy of the stock,
// outside of the row. Of the locks, which all sell from the row in the same way, two stand for all. TestProve… has the
// others.
func isElsewhere(first, second string) bool {
	elsewhere := []string{"sql-bucket", "sql-unit", "redis-get-set-locked", "redis-decr", "redis-list", "redis-stock"}
	return (slices.Contains(elsewhere, first) || slices.Contains(elsewhere, second)) && standsForOthers(first) && standsForOthers(second)
}

// standsForOthers picks the strategies without a lock, and two with one.
func standsForOthers(name string) bool {
	isLock := slices.ContainsFunc(registry.Locks(), func(l lock.Entry) bool { return l.Name == name })
	return !isLock || name == "redis-reentrant" || name == "sql-row-lock"
}

// onServers runs a test on databases.
type onServers func(t *testing.T, test func(t *testing.T, d *servers.Database))

// eachPair runs a test for the ordered pairs that are picked of the strategies that are
// safe across replicas.
func eachPair(t *testing.T, on onServers, picked func(first, second string) bool, test func(t *testing.T, s shop, first, second string, goods int64)) {
	t.Helper()
	on(t, func(t *testing.T, d *servers.Database) {
		s := openAll(t, d)
		names := safeNames()
		goods := mathrand.Int64N(1 << 40) // other tests may sell on the same shards
		for _, first := range names {
			for _, second := range names {
				goods++
				if !picked(first, second) {
					continue
				}
				t.Run(first+" "+second, func(t *testing.T) { test(t, s, first, second, goods) })
			}
		}
	})
}

func safeNames() (names []string) {
	for _, entry := range strategy.Registry() {
		if entry.Guarantees.ExclusiveAcrossReplicas {
			names = append(names, entry.Name)
		}
	}
	return names
}

// openAll opens two replicas that have every backend.
func openAll(t *testing.T, d *servers.Database) shop {
	t.Helper()
	return openOn(t, 0, d, d)
}

// openOn has a replica on each of the nodes, which are one database. The consumers of redis-stock wait between two batches.
func openOn(t *testing.T, linger time.Duration, nodes ...*servers.Database) shop {
	t.Helper()
	prefix := rand.Text() // items have the same ids in every database
	return openEach(t, nodes, 10*time.Second, func(d *servers.Database) strategy.Deps {
		return strategy.Deps{
			LockWait: 5 * time.Second, Lock: lab.Locks(t, d, backend.Redis, backend.Redlock, backend.ZooKeeper, backend.Etcd),
			Buckets: 4, UnitRows: 4, RedisStock: redisstock.Options{Prefix: prefix, Linger: linger},
		}
	})
}

// sells buys on both replicas in turns, and must get everything. The purchases have keys:
// without one, redis-stock rejects what it knew to be sold out until the message of a
// restock has come.
func (s shop) sells(t *testing.T, name string, goods int64, quantities ...int64) {
	t.Helper()
	for i, quantity := range quantities {
		outcome, err := s.strategy(t, i%2, name).Deduct(t.Context(), goods, keyed(rand.Text(), quantity))
		if err != nil || outcome.Rejected != nil {
			t.Fatalf("%s: purchase %d of %d units: %v, %v", name, i+1, quantity, err, outcome.Rejected)
		}
	}
}

func (s shop) rejects(t *testing.T, name string, goods int64) {
	t.Helper()
	for replica := range s.replicas {
		outcome := must.Get(s.strategy(t, replica, name).Deduct(t.Context(), goods, stock.Purchase{Quantity: 1}))(t)
		should.Fail(t, outcome.Rejected, stock.ErrInsufficientStock, name, "a unit of an item that is sold out")
	}
}

// buysOut buys units until none is left. A busy answer is tried again.
func (s shop) buysOut(t *testing.T, replica int, name string, goods int64) (sold int64) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(min(s.nodes, 2))*30*time.Second) // nodes conflict
	defer cancel()
	purchase := stock.Purchase{Quantity: 1}
	for ctx.Err() == nil {
		outcome, err := s.strategy(t, replica, name).Deduct(ctx, goods, purchase)
		switch {
		case errors.Is(err, stock.ErrBusy) && !errors.Is(err, stock.ErrUnknownOutcome):
		case s.nodes > 1 && errors.Is(err, stock.ErrUnknownGoods): // not there yet on this node
		case s.nodes > 1 && strings.HasPrefix(name, "sql-procedure") && errors.Is(err, stock.ErrUnknownOutcome): // Galera may garble an answer
			purchase = keyed(outcome.Order.RequestID, 1)
		case err != nil:
			t.Errorf("%s: %v", name, err)
			return sold
		case errors.Is(outcome.Rejected, stock.ErrInsufficientStock):
			return sold
		case outcome.Rejected != nil:
			t.Errorf("%s: rejected with %v", name, outcome.Rejected)
			return sold
		default:
			sold++
			purchase = stock.Purchase{Quantity: 1}
		}
	}
	t.Errorf("%s does not come to an end", name)
	return sold
}

// settles waits until the ledger has what was accepted, and compares.
func (s shop) settles(t *testing.T, goods, sold int64) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		audit := must.Get(s.inventory.AuditInFull(t.Context(), goods))(t)
		if done := audit.Pending != nil && *audit.Pending == 0; done || time.Now().After(end) {
			if !done || audit.Sold != sold || !audit.Clean || audit.Stock != audit.Initial+audit.Corrected-sold {
				t.Errorf("the audit is %+v, want %d sold and consistent", audit, sold)
			}
			return
		}
	}
}

// TestStrategiesInTurnsMoveUnitsSeldom has two strategies sell one item at the same time.
// A strategy that keeps an allocation takes half of what another one sells: the moves grow
// with the logarithm of the units, and not with the purchases.
func TestStrategiesInTurnsMoveUnitsSeldom(t *testing.T) { sellInTurns(t, 2_000) }

func sellInTurns(t *testing.T, units int64) {
	t.Helper()
	const buyers = 8
	s := openAll(t, lab.Database(t, servers.MariaDB))
	for i, pair := range [][2]string{
		{"sql-conditional", "sql-conditional"},
		{"sql-bucket", "sql-bucket"},
		{"redis-stock", "redis-stock"},
		{"sql-conditional", "sql-bucket"},
		{"sql-conditional", "redis-stock"},
		{"sql-bucket", "redis-stock"},
	} {
		t.Run(pair[0]+" "+pair[1], func(t *testing.T) {
			goods := int64(i + 1)
			s.create(t, goods, units)
			var sold, fromRow atomic.Int64
			var buying sync.WaitGroup
			begun := time.Now()
			for buyer := range buyers {
				name := pair[buyer%2]
				buying.Go(func() {
					n := s.buysOut(t, buyer/2%2, name, goods)
					sold.Add(n)
					if name == "sql-conditional" {
						fromRow.Add(n)
					}
				})
			}
			buying.Wait()
			took := time.Since(begun)
			item := must.Get(s.inventory.Goods(t.Context(), goods))(t)
			// Each sale from the row, and each move to or from it, makes a version.
			moves, most := item.Version-fromRow.Load(), int64(8*math.Log2(float64(units)))
			if sold.Load() != units || moves > most {
				t.Errorf("sold %d of %d with %d moves, want all with at most %d", sold.Load(), units, moves, most)
			}
			t.Logf("%.0f sales/s, %d of %d from the row, %d moves", float64(units)/took.Seconds(), fromRow.Load(), units, moves)
			s.settles(t, goods, units)
		})
	}
}

// An order is pending that redis-stock has accepted as the first after a recall: its key sells nothing more through
// another strategy at the same moment, on any replica.
func TestAKeyThatIsPendingInRedisIsNotSoldByAnotherStrategy(t *testing.T) {
	s := openAll(t, lab.Database(t, servers.MariaDB))
	s.create(t, 1, 100)
	for round := range int64(10) {
		s.sells(t, "redis-stock", 1, 1)
		s.settles(t, 1, 2*round+1)
		must.Get(s.inventory.Recall(t.Context(), 1))(t)
		for _, c := range s.replicas {
			must.Do(t, c.LookAtSwitches(t.Context()))
		}
		p := keyed(rand.Text(), 1)
		first, err := s.strategy(t, 0, "redis-stock").Deduct(t.Context(), 1, p)
		must.Do(t, errors.Join(err, first.Rejected))
		again, err := s.strategy(t, int(round%2), "sql-conditional").Deduct(t.Context(), 1, p)
		if err != nil || !again.Replayed || again.Order.ID != first.Order.ID {
			t.Fatalf("round %d: it is sold as %+v, and then %+v (%v)", round, first.Order, again.Order, err)
		}
		s.settles(t, 1, 2*round+2)
	}
}
