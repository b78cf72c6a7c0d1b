package service_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/hot"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/stock"
)

// cancelling cancels a request when it is notified of a restock, which is after the
// commit.
type cancelling struct {
	cancel context.CancelFunc
	ended  error // what it sees of that
}

func (*cancelling) Deduct(context.Context, int64, []stock.Purchase) ([]stock.Outcome, error) {
	return nil, nil
}

func (c *cancelling) Restocked(ctx context.Context, _, _ int64) error {
	c.cancel()
	c.ended = context.Cause(ctx)
	return c.ended
}

func TestARestockReachesTheCopiesOfACancelledRequest(t *testing.T) {
	for _, name := range []string{"redis-decr", "redis-list", "redis-get-set-locked", "redis-stock"} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			d := lab.Database(t, servers.SQLite)
			store := labtest.Open(t, d, "replica-1")
			entries := slices.DeleteFunc(strategy.Registry(), func(e strategy.Entry) bool { return e.Name != name })
			first := &cancelling{cancel: cancel}
			entries = append([]strategy.Entry{{Name: "cancelling", New: func(strategy.Deps) strategy.Strategy { return first }}}, entries...)
			catalogue, err := service.NewCatalogue(t.Context(), entries, strategy.Deps{
				Store: store, LockWait: copiesWait, Lock: lab.Locks(t, d, backend.Redis), Retry: strategy.Retry{Tries: 1},
				Hot: hot.Options{Prefix: "test-" + rand.Text()},
			}, copiesWait)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := catalogue.Close(); err != nil {
					t.Error(err)
				}
			})
			inventory := service.NewInventory(store, catalogue)
			if _, err := inventory.Create(ctx, 1, 1, 0, stock.Choice{}, ""); err != nil {
				t.Fatal(err)
			}
			sv, err := catalogue.In(service.Mode{Strategy: name})
			if err != nil {
				t.Fatal(err)
			}
			sell := func() error {
				outcome, err := sv.Deduct(t.Context(), 1, stock.Purchase{Quantity: 1})
				if err != nil {
					return err
				}
				return outcome.Rejected
			}
			if err := sell(); err != nil {
				t.Fatal(err)
			}
			_, _ = inventory.Restock(ctx, 1, 1, "") // its client has left
			if err := inventory.Close(); err != nil {
				t.Fatal(err)
			}
			if first.ended != nil {
				t.Errorf("a copy was notified for no longer than the request lasts: %v", first.ended)
			}
			if err := sell(); err != nil {
				t.Errorf("the unit of the restock is answered with %v", err)
			}
		})
	}
}

// openBeside opens a replica on SQLite that has sql-conditional and one strategy more.
func openBeside(t *testing.T, another strategy.Strategy) shop {
	t.Helper()
	entries := slices.DeleteFunc(strategy.Registry(), func(e strategy.Entry) bool { return e.Name != "sql-conditional" })
	entries = append(entries, strategy.Entry{Name: "another", New: func(strategy.Deps) strategy.Strategy { return another }})
	store, catalogue, err := openEntries(t, entries...)
	if err != nil {
		t.Fatal(err)
	}
	return shop{service.NewInventory(store, catalogue), []*service.Catalogue{catalogue}}
}

// notifiedLate is a copy of the stock that cannot be notified at first.
type notifiedLate struct {
	strategy.Strategy
	notified []int64
}

func (n *notifiedLate) Restocked(_ context.Context, _, units int64) error {
	if n.notified = append(n.notified, units); len(n.notified) == 1 {
		return stock.ErrBackendUnavailable
	}
	return nil
}

// A restock that could not notify a copy of the stock is sent again under its key: the
// copy is notified, and the units are added once.
func TestARepeatedRestockNotifiesTheCopies(t *testing.T) {
	copied := &notifiedLate{}
	s := openBeside(t, copied)
	s.create(t, 1, 5)
	if _, err := s.inventory.Restock(t.Context(), 1, 3, "delivery"); !errors.Is(err, stock.ErrUnknownOutcome) {
		t.Fatalf("a restock that could not notify a copy is answered with %v, want %v", err, stock.ErrUnknownOutcome)
	}
	goods, err := s.inventory.Restock(t.Context(), 1, 3, "delivery")
	if err != nil || goods.Stock != 8 {
		t.Errorf("again it is answered with %d units, %v; want 8", goods.Stock, err)
	}
	if !slices.Equal(copied.notified, []int64{3, 3}) {
		t.Errorf("the copy was notified of %v, want 3 units twice", copied.notified)
	}
}

// Once nothing is pending, the audit has every order.
func TestAnAuditWithNothingPendingHasEveryOrder(t *testing.T) {
	pending := new(outbox)
	s := openBeside(t, pending)
	for goods, audit := range map[int64]func(context.Context, int64) (service.Audit, error){1: s.inventory.Audit, 2: s.inventory.AuditInFull} {
		s.create(t, goods, 5)
		pending.settle = func() { s.sells(t, "sql-conditional", goods, 1) }
		got, err := audit(t.Context(), goods)
		if err != nil || *got.Pending != 0 || got.Orders != 1 {
			t.Errorf("the audit of item %d has %d orders, and %d are pending (%v); want 1 and 0", goods, got.Orders, *got.Pending, err)
		}
	}
}

// limits is a strategy that checks the limit of a buyer by itself, and cannot be notified at first.
type limits struct {
	strategy.Strategy
	notified []int64
	left     time.Duration // that it had for the last
}

func (l *limits) LimitChanged(ctx context.Context, goodsID int64) error {
	until, _ := ctx.Deadline()
	l.left = time.Until(until)
	if l.notified = append(l.notified, goodsID); len(l.notified) == 1 {
		return stock.ErrBackendUnavailable
	}
	return nil
}

// A limit is checked everywhere, or it is unknown whether it is; setting it again finds out.
func TestALimitThatWasNotNotifiedIsUnknown(t *testing.T) {
	elsewhere := &limits{}
	s := openBeside(t, elsewhere)
	s.create(t, 7, 5)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.inventory.SetLimit(ended, 7, 2); !errors.Is(err, context.Canceled) || errors.Is(err, stock.ErrUnknownOutcome) {
		t.Errorf("a request that has ended is answered with %v, want %v", err, context.Canceled)
	}
	if goods, err := s.inventory.Goods(t.Context(), 7); err != nil || goods.PerUser != 0 || len(elsewhere.notified) != 0 {
		t.Errorf("it has begun something: %+v, %v", goods, err)
	}
	if _, err := s.inventory.SetLimit(t.Context(), 7, 2); !errors.Is(err, stock.ErrUnknownOutcome) || !errors.Is(err, stock.ErrBackendUnavailable) {
		t.Errorf("a limit that is not checked everywhere is answered with %v, want %v with the cause", err, stock.ErrUnknownOutcome)
	}
	if goods, err := s.inventory.SetLimit(t.Context(), 7, 2); err != nil || goods.PerUser != 2 || !slices.Equal(elsewhere.notified, []int64{7, 7}) {
		t.Errorf("again it is answered with %+v, %v, and notified of %v", goods, err, elsewhere.notified)
	}
	if elsewhere.left > 30*time.Second {
		t.Errorf("the notification may take %s", elsewhere.left)
	}
}

// There is no drift of an item that does not exist, and none where no strategy sells ahead of the ledger.
func TestTheDriftOfAnItem(t *testing.T) {
	s := openBeside(t, &limits{})
	s.create(t, 7, 5)
	if drift, err := s.inventory.Drift(t.Context(), 7); err != nil || drift != (hot.Drift{GoodsID: 7}) {
		t.Errorf("the drift is %+v, %v", drift, err)
	}
	if drift, err := s.inventory.Drift(t.Context(), 8); !errors.Is(err, stock.ErrUnknownGoods) {
		t.Errorf("the drift of an unknown item is %+v, %v", drift, err)
	}
}

// Running totals that are wrong are found by the full audit alone.
func TestAFullAuditDoesNotTrustTheTotals(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := open(t, d, 1)
	s.create(t, 1, 5)
	if _, err := openPool(t, d).ExecContext(t.Context(), `INSERT INTO tb_ledger_total (goods_id, sold) VALUES (1, 3)`); err != nil {
		t.Fatal(err)
	}
	if audit, err := s.inventory.Audit(t.Context(), 1); err != nil || audit.Clean || audit.Sold != 3 {
		t.Errorf("by the totals the audit is %+v, %v", audit, err)
	}
	if audit, err := s.inventory.AuditInFull(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 0 {
		t.Errorf("in full the audit is %+v, %v", audit, err)
	}
}
