package strategy_test

import (
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// After a failover of Redis that lost the last increment, or in a split with two
// masters, two holders have the same fencing token: the counters of both give the same
// numbers. The last one to claim the item writes; nothing of either is lost.
func TestTwoHoldersOfOneTokenLoseNoUpdate(t *testing.T) {
	masters := []*servers.Redis{lab.OwnRedis(t), lab.OwnRedis(t)}
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		var goods int64
		for _, entry := range registry.Locks() {
			if entry.Family != lock.FamilyRedis || !entry.Guarantees.Fences || len(entry.Needs) != 1 || entry.Needs[0] != backend.Redis {
				continue
			}
			goods++
			t.Run(entry.Name, func(t *testing.T) { assertSplitLosesNothing(t, d, masters, entry, goods) })
		}
		if goods == 0 {
			t.Error("no lock on one Redis gives a fencing token")
		}
	})
}

// splitSales is how many purchases each side of the split makes.
const splitSales = 60

func assertSplitLosesNothing(t *testing.T, d *servers.Database, masters []*servers.Redis, entry lock.Entry, goods int64) {
	t.Helper()
	store := labtest.Open(t, d, "replica-1")
	if err := store.CreateGoods(t.Context(), goods, 10*splitSales, rand.Text()); err != nil {
		t.Fatal(err)
	}
	// Both counters begin at the same number, as a replicated one does.
	sides := make([]strategy.Deduct, 0, len(masters))
	for _, master := range masters {
		sides = append(sides, splitSide(t, d, store, master, entry))
	}
	var sold, shared atomic.Int64
	tokens := new(sync.Map)
	var all sync.WaitGroup
	for _, side := range sides {
		all.Go(func() {
			for range splitSales {
				outcomes, err := side(t.Context(), goods, []stock.Purchase{{RequestID: rand.Text(), Quantity: 1}})
				switch {
				case err == nil && outcomes[0].Rejected == nil:
					sold.Add(1)
					if _, twice := tokens.LoadOrStore(outcomes[0].Order.Token, true); twice {
						shared.Add(1)
					}
				case !errors.Is(err, stock.ErrFenced) && !errors.Is(err, stock.ErrBusy):
					t.Errorf("in a split: %v", err)
				}
			}
		})
	}
	all.Wait()
	audit, err := store.Audit(t.Context(), goods)
	if err != nil || !audit.Clean || audit.Sold != sold.Load() {
		t.Errorf("%d were sold, %d of them under a token that another sale had: the audit is %+v (%v)", sold.Load(), shared.Load(), audit, err)
	}
}

// splitSide is the strategy of a lock on one of the masters, with its writes fenced.
func splitSide(t *testing.T, d *servers.Database, store *repo.Store, master *servers.Redis, entry lock.Entry) strategy.Deduct {
	t.Helper()
	deps := lab.Locks(t, d)
	deps.RedisOptions = labtest.RedisOptions(master)
	deps.Redis = backend.NewRedis(deps.RedisOptions)
	made := strategy.Locked(entry).New(strategy.Deps{Store: store.As(entry.Name), LockWait: 5 * time.Second, Lock: deps})
	closeAfter(t, made)
	return made.(strategy.Fencer).DeductFenced //nolint:forcetypeassert // a panic fails the test as well
}
