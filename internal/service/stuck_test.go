package service_test

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
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
	"github.com/stockd/stockd/internal/testlog"
)

// stuckShop is one replica, whose connections all share.
type stuckShop struct {
	buyers

	store        *repo.Store
	inventory    *service.Inventory
	reservations *service.Reservations
	feed         *service.Feed
}

// operations are what may be done with an item, each under its name, so often. What they need is made before.
func (s stuckShop) operations(t *testing.T, item int64, times int) map[string][]func(context.Context) error {
	t.Helper()
	all := make(map[string][]func(context.Context) error)
	yes := true
	buy := func(ctx context.Context, p stock.Purchase, grouped *bool) (string, error) {
		p.Quantity, p.UserID, p.RequestID = 1, "ann", rand.Text()
		asked := stock.Choice{Strategy: "sql-conditional", Group: grouped}
		o, err := s.Buy(ctx, service.Request{GoodsID: item, Purchase: p, Asked: asked})
		return o.Order.ID, err
	}
	held := func(ttl time.Duration) string {
		return must.Get(buy(t.Context(), stock.Purchase{TTL: ttl}, nil))(t)
	}
	for range times {
		order, paid, let, longer := must.Get(buy(t.Context(), stock.Purchase{}, nil))(t), held(time.Hour), held(time.Hour), held(time.Hour)
		for name, do := range map[string]func(context.Context) error{
			"sale":         func(ctx context.Context) error { _, err := buy(ctx, stock.Purchase{}, nil); return err },
			"grouped sale": func(ctx context.Context) error { _, err := buy(ctx, stock.Purchase{Keyed: true}, &yes); return err },
			"hold":         func(ctx context.Context) error { _, err := buy(ctx, stock.Purchase{TTL: time.Hour}, nil); return err },
			"confirm":      func(ctx context.Context) error { return errOf(s.reservations.Confirm(ctx, paid, paid)) },
			"release":      func(ctx context.Context) error { return errOf(s.reservations.Release(ctx, let)) },
			"extend":       func(ctx context.Context) error { _, err := s.reservations.Extend(ctx, longer, time.Hour); return err },
			"return": func(ctx context.Context) error {
				return errOf(s.reservations.GiveBack(ctx, order, 1, "", false))
			},
			"basket": func(ctx context.Context) error {
				_, err := s.BuyBasket(ctx, &service.Basket{RequestID: rand.Text(), UserID: "ann", Asked: s.asked, Lines: []stock.Line{{GoodsID: item, Quantity: 1}, {GoodsID: item + 1, Quantity: 1}}})
				return err
			},
			"restock": func(ctx context.Context) error { _, err := s.inventory.Restock(ctx, item, 1, ""); return err },
			"limit":   func(ctx context.Context) error { _, err := s.inventory.SetLimit(ctx, item, 90_000); return err },
			"look":    func(ctx context.Context) error { _, err := s.inventory.Goods(ctx, item); return err },
			"audit":   func(ctx context.Context) error { _, err := s.inventory.Audit(ctx, item); return err },
			"order":   func(ctx context.Context) error { _, err := s.Order(ctx, order); return err },
			"feed": func(ctx context.Context) error {
				return errOf(s.feed.List(ctx, "", service.Page{GoodsID: item}, 10))
			},
		} {
			all[name] = append(all[name], do)
		}
	}
	return all
}

// expires holds a unit whose time is over at once, and returns when it is in stock again.
func (s stuckShop) expires(ctx context.Context, item int64) error {
	before, err := s.inventory.Goods(ctx, item)
	if err != nil {
		return err
	}
	hold := stock.Purchase{Quantity: 1, UserID: "ann", TTL: time.Millisecond, RequestID: rand.Text()}
	if _, err := s.Buy(ctx, service.Request{GoodsID: item, Purchase: hold, Asked: s.asked}); err != nil {
		return err
	}
	for {
		switch goods, err := s.inventory.Goods(ctx, item); {
		case err != nil, goods.Stock == before.Stock:
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// openStuckShop has three items, and a replica that expires their reservations.
func openStuckShop(t *testing.T) (stuckShop, *servers.Database) {
	t.Helper()
	d := lab.Database(t, servers.MariaDB)
	store := must.Get(repo.Open(t.Context(), backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 8, LockWait: lockWait, ConnectTimeout: 5 * time.Second,
	}, repo.Options{Replica: "replica-1"}))(t)
	closeAfter(t, store)
	must.Get(store.MigrateUp(t.Context()))(t)
	log := new(testlog.Lines)
	catalogue := service.NewCatalogue(t.Context(), strategy.Registry(), strategy.Deps{
		Store: store, Lock: lock.Deps{Clients: new(backend.Clients)}, Retry: strategy.Retry{Tries: 1}, Buckets: 2, UnitRows: 2,
		Group: strategy.Group{Batch: 10, Units: 100, Queue: 10}, Log: slog.New(slog.NewTextHandler(log, nil)),
	}, copiesWait)
	reservations := service.NewReservations(store, catalogue, time.Hour, &ends{})
	s := stuckShop{buyersOf(catalogue, reservations, service.Mode{Strategy: "sql-conditional"}), store, service.NewInventory(store, catalogue), reservations, service.NewFeed(store)}
	closeAfter(t, reservations)
	closeAfter(t, s.inventory)
	for id := range int64(3) {
		must.Get(s.inventory.Create(t.Context(), stock.NewItem{GoodsID: id + 1, Units: 1_000_000, PerUser: 100_000}, ""))(t)
	}
	ctx, stop := context.WithCancel(context.Background())
	var sweeping sync.WaitGroup
	sweeping.Go(func() { reservations.KeepExpiring(ctx) })
	t.Cleanup(func() {
		stop()
		sweeping.Wait()
		should.Be(t, log.Contains("reservations not ended"), false, "a round of expiries fails", log.String())
	})
	return s, d
}

// locks are what a statement locks of item 1.
var locks = map[string]string{
	"its row":          `SELECT * FROM tb_goods_stock WHERE goods_id = 1 FOR UPDATE`,
	"its buyer":        `SELECT * FROM tb_stock_user WHERE goods_id = 1 FOR UPDATE`,
	"its reservations": `SELECT * FROM tb_reservation WHERE goods_id = 1 FOR UPDATE`,
}

// Whatever of item 1 is locked, with more callers waiting for it than there are connections, everything goes on for item 2:
// nothing of it takes as long as a row is waited for.
func TestOneThingThatIsStuckHoldsUpNothingElse(t *testing.T) {
	s, d := openStuckShop(t)
	for what, lock := range locks {
		t.Run(what, func(t *testing.T) {
			others := s.operations(t, 2, 2)
			stuck, stopped := s.stick(t, d, lock)
			for name, each := range others {
				for _, do := range each {
					s.goesOn(t, name, do)
				}
			}
			s.goesOn(t, "expiry", func(ctx context.Context) error { return s.expires(ctx, 2) })
			stopped()
			stuck.Wait()
		})
	}
}

// lockWait is how long a row is waited for: nothing that waits for item 1 gives up in the time that others have.
const lockWait = time.Minute

// goesOn does something within less than a row is waited for.
func (stuckShop) goesOn(t *testing.T, name string, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lockWait/2)
	defer cancel()
	should.Fail(t, do(ctx), nil, "… of another item is answered", name)
}

// stick has four callers of each operation of item 1 wait for what a statement locks, until it is stopped.
func (s stuckShop) stick(t *testing.T, d *servers.Database, lock string) (stuck *sync.WaitGroup, stop func()) {
	t.Helper()
	mine := s.operations(t, 1, 4)
	must.Get(s.Buy(t.Context(), service.Request{GoodsID: 1, Purchase: stock.Purchase{Quantity: 1, UserID: "ann", TTL: 300 * time.Millisecond, RequestID: rand.Text()}, Asked: s.asked}))(t) // over while it is stuck
	locking := must.Get(openPool(t, d).BeginTx(t.Context(), nil))(t)
	must.Get(locking.ExecContext(t.Context(), lock))(t)
	ctx, cancel := context.WithCancel(t.Context())
	stuck, answered := new(sync.WaitGroup), make(chan error, 1)
	for _, each := range mine {
		for _, do := range each {
			stuck.Go(func() {
				for ctx.Err() == nil && do(ctx) != nil { // what is locked for too long is busy, and asks again
				}
			})
		}
	}
	labtest.AwaitRowWait(t, d, "%", answered)
	return stuck, func() { cancel(); must.Do(t, locking.Rollback()) }
}
