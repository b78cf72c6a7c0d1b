package service_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// outbox is a strategy that accepts orders ahead of the ledger. Its last pending order
// reaches the ledger when it is looked at.
type outbox struct {
	service.Ahead // nil: the tests call no other method of it
	settle        func()
	closed        atomic.Int64
}

func (o *outbox) Close() error {
	o.closed.Add(1)
	return nil
}

func (o *outbox) Pending(context.Context, int64) (int64, error) {
	o.settle()
	return 0, nil
}

func (*outbox) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, stock.ErrBusy
}

// openEntries opens a replica that has these strategies, and SQLite alone.
func openEntries(t *testing.T, entries ...strategy.Entry) (*repo.Store, *service.Catalogue) {
	t.Helper()
	return openEntriesOn(t, lab.Database(t, servers.SQLite), entries...)
}

// openEntriesOn has the database given.
func openEntriesOn(t *testing.T, d *servers.Database, entries ...strategy.Entry) (*repo.Store, *service.Catalogue) {
	t.Helper()
	store := labtest.Open(t, d, "replica-1")
	catalogue := service.NewCatalogue(t.Context(), entries, strategy.Deps{
		Store: store, Lock: lock.Deps{Clients: new(backend.Clients)}, Retry: strategy.Retry{Tries: 1}, Buckets: 2, UnitRows: 2,
		Group: strategy.Group{Batch: 10, Units: 100, Queue: 10},
	}, copiesWait)
	return store, catalogue
}

// held sells a batch when it is let go, and says before how large it is.
type held struct{ batches, let chan int }

func (h held) Deduct(_ context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	h.batches <- len(batch)
	<-h.let
	return make([]stock.Outcome, len(batch)), nil
}

// A strategy that sells together what waits does so whether the requests ask for it or not.
func TestWhatWaitsIsSoldTogetherWithoutBeingAskedTo(t *testing.T) {
	h := held{make(chan int), make(chan int)}
	store, c := openEntries(t, strategy.Entry{Name: "held", Together: true, New: func(strategy.Deps) strategy.Strategy { return h }})
	must.Do(t, store.CreateGoods(t.Context(), 1, 10, "created"))
	var buyers sync.WaitGroup
	buy := func(mode service.Mode) {
		buyers.Go(func() {
			if _, err := buyersOf(c, nil, mode).Deduct(t.Context(), 1, stock.Purchase{Quantity: 1}); err != nil {
				t.Error(err)
			}
		})
	}
	alone := service.Mode{Strategy: "held"}
	buy(alone)
	should.Be(t, <-h.batches, 1, "the first is written")
	for i := range 4 {
		buy(service.Mode{Strategy: "held", Group: i == 0})
	}
	if !labtest.Eventually(5*time.Second, func() bool { return c.Waiting()["held"] == 4 }) {
		t.Fatalf("%v wait, want 4", c.Waiting())
	}
	h.let <- 1
	should.Be(t, <-h.batches, 4, "are sold together")
	h.let <- 4
	buyers.Wait()
}

func TestAStrategyNeedsItsMinimumVersionOfRedis(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	deps := strategy.Deps{Store: labtest.Open(t, d, "replica-1"), Lock: lab.Locks(t, d, backend.Redis)}
	for least, want := range map[string]error{"99.1": service.ErrStrategyRejected, "3.0": nil} {
		c := service.NewCatalogue(t.Context(), []strategy.Entry{{
			Name: "modern", MinRedis: least,
			New: func(strategy.Deps) strategy.Strategy { return new(outbox) },
		}}, deps, copiesWait)
		_, err := c.In(service.Mode{Strategy: "modern"})
		if old, _ := errors.AsType[*service.UnconfiguredError](err); !errors.Is(err, want) || want != nil && (old == nil || old.Backend != "redis") {
			t.Errorf("with Redis %s as the minimum: %v, want %v", least, err, want)
		}
		if want != nil && !strings.Contains(err.Error(), "99.1 or later") {
			t.Errorf("%q does not name what is needed", err)
		}
		should.Be(t, c.Describe(t.Context())[0].Available, want == nil, "with Redis … as the minimum it is available", least)
	}
}

// A lock that is not renewed here does not guarantee that it is.
func TestALockWithoutItsWatchdogDoesNotRenew(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	for _, unrenewed := range []bool{false, true} {
		c := service.NewCatalogue(t.Context(), []strategy.Entry{
			{Name: "watched", Watchdog: true, Guarantees: strategy.Guarantees{Renews: true, Fair: true}, New: func(strategy.Deps) strategy.Strategy { return new(outbox) }},
			{Name: "session", Guarantees: strategy.Guarantees{Renews: true}, New: func(strategy.Deps) strategy.Strategy { return &notifiedLate{} }},
		}, strategy.Deps{Store: labtest.Open(t, d, "replica-1"), Lock: lock.Deps{Clients: new(backend.Clients), Unrenewed: unrenewed}}, copiesWait)
		list := c.Describe(t.Context())
		if watched := list[0].Guarantees; watched.Renews == unrenewed || !watched.Fair || !list[1].Guarantees.Renews {
			t.Errorf("unrenewed %v: %+v", unrenewed, list)
		}
	}
}

// gated writes each batch when it may, and is not to be closed before.
type gated struct {
	strategy.Observer

	t       *testing.T
	may     chan struct{}
	writing atomic.Int64
	batches atomic.Int64
	closed  atomic.Bool
}

func (g *gated) Batched(int) { g.batches.Add(1) }

func (*gated) Deducted(stock.Outcome, error, time.Duration) {}

func (g *gated) Deduct(_ context.Context, _ int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	g.writing.Add(1)
	defer g.writing.Add(-1)
	<-g.may
	if g.closed.Load() {
		g.t.Error("the strategy is closed in the middle of a batch")
	}
	return make([]stock.Outcome, len(batch)), nil
}

func (g *gated) DeductFenced(ctx context.Context, goodsID int64, batch []stock.Purchase) ([]stock.Outcome, error) {
	return g.Deduct(ctx, goodsID, batch)
}

func (g *gated) Close() error {
	g.closed.Store(true)
	return nil
}

// The queues of a strategy, fenced and not, are counted together; a closed catalogue rejects what waits
// there, and closes the strategy when the last batch is written.
func TestTheQueuesOfAStrategyAreCountedAndClosed(t *testing.T) {
	store, g := labtest.Open(t, lab.Database(t, servers.SQLite), "replica-1"), &gated{t: t, may: make(chan struct{})}
	c := service.NewCatalogue(t.Context(), []strategy.Entry{{Name: "gated", New: func(strategy.Deps) strategy.Strategy { return g }}}, strategy.Deps{
		Store: store, Lock: lock.Deps{Clients: new(backend.Clients)}, Group: strategy.Group{Batch: 10, Units: 10, Queue: 10},
		Observe: func(string) strategy.Observer { return g },
	}, copiesWait)
	s := shop{service.NewInventory(store, c), []*service.Catalogue{c}, 1}
	s.create(t, 1, 10)
	var buyers sync.WaitGroup
	var sold, busy atomic.Int64
	buy := func(fence bool) {
		seller := s.in(t, 0, service.Mode{Strategy: "gated", Group: true, Fence: fence})
		buyers.Go(func() {
			switch _, err := seller.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1}); {
			case err == nil:
				sold.Add(1)
			case errors.Is(err, stock.ErrBusy):
				busy.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	for _, fence := range []bool{false, true} {
		buy(fence)
	}
	soon(t, "a batch of each is being written", func() bool { return g.writing.Load() == 2 })
	for _, fence := range []bool{false, true, true} {
		buy(fence)
	}
	soon(t, "three wait", func() bool { return c.Waiting()["gated"] == 3 })
	closing := make(chan error)
	go func() { closing <- c.Close() }()
	soon(t, "what waits is rejected", func() bool { return busy.Load() == 3 && c.Waiting()["gated"] == 0 })
	close(g.may)
	if err := <-closing; err != nil || !g.closed.Load() {
		t.Errorf("closed %v, with %v", g.closed.Load(), err)
	}
	buyers.Wait()
	if sold.Load() != 2 || g.batches.Load() != 2 {
		t.Errorf("%d were sold, in %d batches that are observed; want 2", sold.Load(), g.batches.Load())
	}
}
