package service_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// shop is a number of replicas on one database, in one process: they share
// nothing but the database.
type shop struct {
	inventory *service.Inventory
	replicas  []*service.Catalogue
	nodes     int // of the database that the replicas write to
}

func open(t *testing.T, d *servers.Database, replicas int) shop {
	t.Helper()
	return openWith(t, d, d, replicas)
}

// openWith has the locks on a database of their own.
func openWith(t *testing.T, d, locks *servers.Database, replicas int) shop {
	t.Helper()
	return openEach(t, slices.Repeat([]*servers.Database{d}, replicas), 2*copiesWait, func(*servers.Database) strategy.Deps {
		return strategy.Deps{LockWait: copiesWait, Lock: lab.Locks(t, locks)}
	})
}

// openEach opens a replica on each of the nodes of a database.
func openEach(t *testing.T, nodes []*servers.Database, wait time.Duration, having func(*servers.Database) strategy.Deps) shop {
	t.Helper()
	s := shop{nodes: len(slices.Compact(slices.Clone(nodes)))}
	for i, d := range nodes {
		replica, deps := fmt.Sprintf("replica-%d", i+1), having(d)
		deps.Store = labtest.Open(t, d, replica)
		deps.Retry = strategy.Retry{Tries: 500, Step: time.Millisecond, Max: 50 * time.Millisecond}
		deps.Group = strategy.Group{Batch: 50, Units: 1000, Queue: 200}
		catalogue := service.NewCatalogue(t.Context(), strategy.Registry(), deps, wait)
		t.Cleanup(func() {
			should.Fail(t, catalogue.Close(), nil, "close …", replica)
		})
		s.inventory = service.NewInventory(deps.Store, catalogue)
		s.replicas = append(s.replicas, catalogue)
	}
	return s
}

// copiesWait is long enough for a hundred copies at a lock that is polled, on a
// busy machine: busy would be an honest answer, but not
// the one that is asked for here.
const copiesWait = 45 * time.Second

// create makes an item of the strategy's own.
func (s shop) create(t *testing.T, goodsID, units int64) {
	t.Helper()
	must.Get(s.inventory.Create(t.Context(), stock.NewItem{GoodsID: goodsID, Units: units}, ""))(t)
}

// grouped marks the name of a strategy whose purchases are to be grouped.
const grouped = " grouped"

// buyers are those of one replica who ask for a mode.
type buyers struct {
	*service.Shop
	asked stock.Choice
}

// Deduct buys. A rejection is in the outcome.
func (b buyers) Deduct(ctx context.Context, goodsID int64, p stock.Purchase) (o stock.Outcome, err error) {
	p.RequestID = cmp.Or(p.RequestID, b.NewKey(goodsID, ""))
	o, err = b.Buy(ctx, service.Request{GoodsID: goodsID, Purchase: p, Asked: b.asked})
	if errors.Is(err, stock.ErrInsufficientStock) || errors.Is(err, stock.ErrUserLimit) || errors.Is(err, stock.ErrUserUnknown) {
		o.Rejected, err = err, nil
	}
	o.Order.RequestID = p.RequestID
	return o, err
}

func (s shop) strategy(t *testing.T, replica int, name string) buyers {
	t.Helper()
	name, group := strings.CutSuffix(name, grouped)
	return s.in(t, replica, service.Mode{Strategy: name, Group: group})
}

func (s shop) in(t *testing.T, replica int, mode service.Mode) buyers {
	t.Helper()
	must.Get(s.replicas[replica].In(mode))(t)
	return buyersOf(s.replicas[replica], nil, mode)
}

func buyersOf(c *service.Catalogue, r *service.Reservations, mode service.Mode) buyers {
	return buyers{service.NewShop(c, r, service.Admission{Choose: true}), stock.Choice{Strategy: mode.Strategy, Group: &mode.Group, Fence: &mode.Fence}}
}

func keyed(key string, units int64) stock.Purchase {
	return stock.Purchase{RequestID: key, Keyed: true, Quantity: units}
}

// names lists the strategies that need nothing but the database: what the
// service does around a strategy is the same for every other.
func (s shop) names() []string {
	var names []string
	for _, d := range s.replicas[0].Describe(context.Background()) {
		if d.Available {
			names = append(names, d.Name)
		}
	}
	return names
}

// each runs a test for every strategy that needs nothing but the database, alone
// and grouped.
func each(t *testing.T, replicas int, test func(t *testing.T, s shop, name string, goods int64)) {
	t.Helper()
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := open(t, d, replicas)
		for i, name := range s.names() {
			t.Run(name, func(t *testing.T) { test(t, s, name, int64(2*i+1)) })
			t.Run(name+grouped, func(t *testing.T) { test(t, s, name+grouped, int64(2*i+2)) })
		}
	})
}

// Many copies of one purchase arrive at once, on three replicas, and
// there is just enough for one: every copy must hear of the same order.
func TestManyCopiesAtOnceAreOneSale(t *testing.T) {
	each(t, 3, func(t *testing.T, s shop, name string, goods int64) {
		s.create(t, goods, 2)
		key := rand.Text()
		answers := make([]stock.Outcome, 40)
		var copies sync.WaitGroup
		for i := range answers {
			copies.Go(func() {
				var err error
				answers[i], err = s.strategy(t, i%3, name).Deduct(t.Context(), goods, keyed(key, 2))
				if err != nil || answers[i].Rejected != nil {
					t.Errorf("copy %d: %v, %v", i, err, answers[i].Rejected)
				}
			})
		}
		copies.Wait()
		for i, a := range answers {
			must.Be(t, a.Order, answers[0].Order, "copy", i, "and copy 0 have the orders")
		}
		assertSold(t, s, goods, 2)
	})
}

func TestAnUnknownOutcomeTellsWhatToSendAgain(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		through, cut := labtest.Through(t, d)
		s := openWith(t, through, d, 1) // so that the cut is the sale's, and not the lock's
		for i, name := range append(s.names(), "sql-conditional"+grouped) {
			t.Run(name, func(t *testing.T) {
				goods := int64(i + 1)
				s.create(t, goods, 5)
				commit, nth := "COMMIT", 1
				switch name {
				case "sql-procedure": // it commits by itself
					commit = "CALL stockd_sell"
				case "sql-unit": // it fills its rows first
					nth = 2
				}
				labtest.LoseNth(cut, nth, commit, true)
				sv := s.strategy(t, 0, name)
				lost, err := sv.Deduct(t.Context(), goods, stock.Purchase{Quantity: 1})
				if !errors.Is(err, stock.ErrUnknownOutcome) || lost.Order.RequestID == "" {
					t.Fatalf("%v with request id %q, want %v with one", err, lost.Order.RequestID, stock.ErrUnknownOutcome)
				}
				found, err := sv.Deduct(t.Context(), goods, keyed(lost.Order.RequestID, 1))
				if err != nil || !found.Replayed {
					t.Errorf("sent again: %v, %+v, want the order that was made", err, found)
				}
				assertSold(t, s, goods, 1)
			})
		}
	})
}

// assertSold holds the ledger against what must have been sold.
func assertSold(t *testing.T, s shop, goods, sold int64) {
	t.Helper()
	audit := must.Get(s.inventory.Audit(t.Context(), goods))(t)
	if audit.Sold != sold || !audit.Clean {
		t.Errorf("audit is %+v, want %d sold, clean", audit, sold)
	}
}

// lossy is a strategy whose outcomes are unknown.
type lossy struct{ strategy.Strategy }

// lossyOutbox is one whose outcomes are not the row's.
type lossyOutbox struct {
	lossy
	service.Ahead
}

func (lossy) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, stock.ErrUnknownOutcome
}

// After a batch of unknown outcome the row is waited for before the next is written, unless the
// outcomes of the strategy are not the row's.
func TestABatchOfUnknownOutcomeIsWaitedForAtTheRow(t *testing.T) {
	for by, want := range map[strategy.Strategy]error{lossy{}: stock.ErrBackendUnavailable, lossyOutbox{}: stock.ErrUnknownOutcome} {
		store, c := openEntries(t, strategy.Entry{Name: "lossy", New: func(strategy.Deps) strategy.Strategy { return by }})
		s := shop{service.NewInventory(store, c), []*service.Catalogue{c}, 1}
		s.create(t, 1, 10)
		seller := s.in(t, 0, service.Mode{Strategy: "lossy", Group: true})
		should.Reject(seller.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1}))(t, stock.ErrUnknownOutcome, "a sale")
		must.Do(t, store.Close())
		if _, err := seller.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1}); !errors.Is(err, want) || errors.Is(err, stock.ErrUnknownOutcome) != errors.Is(want, stock.ErrUnknownOutcome) {
			t.Errorf("%T: where the row cannot be read, the next batch is answered with %v, want %v", by, err, want)
		}
	}
}
