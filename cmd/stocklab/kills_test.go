package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/pkg/client"
)

// killed is a strategy and what is killed while it sells, in turn.
type killed struct {
	strategy string
	beside   []string // further strategies that sell the same item, purchase by purchase
	group    bool
	items    int // that are sold at the same time; 0 is one
	fence    bool
	durable  string // where an order is before it is answered
	victims  []string
}

// of is the strategy of a purchase.
func (k killed) of(n int) string {
	if n %= 1 + len(k.beside); n > 0 {
		return k.beside[n-1]
	}
	return k.strategy
}

func (k killed) String() string {
	name := strings.Join(append([]string{k.strategy}, k.beside...), " ")
	if k.group {
		name += " grouped"
	}
	if k.items > 1 {
		name += fmt.Sprintf(" %d items", k.items)
	}
	if k.fence {
		name += " fence=true"
	}
	return strings.TrimSpace(name + " " + k.durable)
}

// purchase is one of an item, by its number.
func (k killed) purchase(n int, item int64, key string) client.Purchase {
	return client.Purchase{RequestID: key, GoodsID: item, Strategy: k.of(n), Group: &k.group, Fence: &k.fence, Durable: k.durable}
}

func redisStockKilled() killed {
	return killed{strategy: "redis-stock", victims: []string{"database", "replica", "redis"}}
}

// groupedAndKilled is a strategy with its purchases grouped. The Redis of a lock is
// left alone: one that loses its memory has two holders.
func groupedAndKilled(strategy string) killed {
	return killed{strategy: strategy, group: true, victims: []string{"replica", "database"}}
}

// manyItemsAndKilled sells several items in one transaction.
func manyItemsAndKilled(strategy string) killed {
	k := groupedAndKilled(strategy)
	k.items = 20
	return k
}

// fencedAndKilled is a strategy that reads, computes and writes, with its writes fenced.
func fencedAndKilled() killed {
	return killed{strategy: "redis-reentrant", group: true, fence: true, victims: []string{"replica", "redis", "database"}}
}

// movingAndKilled moves the units between the row, buckets, unit rows and Redis all the time, so
// that kills come in the middle of recalls.
func movingAndKilled() killed {
	return killed{strategy: "redis-stock", beside: []string{"sql-conditional", "sql-bucket", "sql-unit"}, victims: []string{"replica", "redis", "database"}}
}

// One kill of each kind, in the middle of a sale and among reservations that are made, paid, released and that expire; the
// proofs make fifty of each.
func TestAShopSurvivesKills(t *testing.T) {
	t.Parallel()
	s := startToKill(t, servers.MariaDB)
	t.Run("the changes of a day", s.changes)
	t.Run("sales", func(t *testing.T) {
		s.sales(t, 1, redisStockKilled(), groupedAndKilled("sql-conditional"), manyItemsAndKilled("sql-conditional"), fencedAndKilled(), movingAndKilled())
	})
	t.Run("reservations", func(t *testing.T) { s.reservations(t, 1, redisStockKilled(), groupedAndKilled("sql-conditional")) })
}

// sales sells one item after the other through three replicas, and kills
// a replica with its queues and consumers, the Redis, or the database at a random
// moment of each sale. Redis keeps its data on its disk. Never may more be sold than
// there was; every answered order must be in the ledger in the end, and every unit
// sold, with those that are restocked meanwhile.
func (k killable) sales(t *testing.T, each int, subjects ...killed) {
	t.Helper()
	for _, subject := range subjects {
		t.Run(subject.String(), func(t *testing.T) {
			var again, replayed int
			rounds := each * len(subject.victims)
			for round := range rounds {
				sale := &killedSale{killable: k, subject: subject, units: 1500, victim: subject.victims[round%len(subject.victims)], reported: make(map[string]string)}
				sale.goods = k.lab.goods.Add(sale.items()) - sale.items() + 1
				t.Run(fmt.Sprintf("%d-%s", round+1, sale.victim), sale.run)
				again, replayed = again+sale.again, replayed+sale.replayed
			}
			t.Logf("%d kills: %d times a buyer without an answer asked again, %d times its order was there already", rounds, again, replayed)
			if again == 0 {
				t.Error("no kill came in the middle of anything")
			}
		})
	}
}

// killable is three replicas on a Redis that keeps its data, and their store.
type killable struct {
	lab   testLab
	redis *servers.Redis
	store *repo.Store
}

func startToKill(t *testing.T, database string) killable {
	t.Helper()
	cmdtest.NeedLocal(t)
	cmdtest.NeedDatabase(t, database)
	cmdtest.NeedRedis(t)
	server := must.Get(servers.StartDurableRedis(t.Context(), labtest.StartSupervisor(t)))(t)
	l := startLabOf(t,
		servers.Choice{Mode: servers.Local, Database: database, Redis: servers.None, ZooKeeper: servers.None, Etcd: servers.None},
		shop.Replicas{Count: 3, Env: append(server.Conn().Env(), "STOCKD_LOCK_TTL=2s")})
	store := must.Get(l.database.Open(t.Context(), "test", 4))(t)
	t.Cleanup(func() { _ = store.Close() }) // the test is over
	return killable{l, server, store}
}

// killedSale is one sale in the middle of which something is killed.
type killedSale struct {
	killable

	subject killed
	victim  string
	goods   int64 // the first of its items; the others follow
	units   int64 // of all

	mu       sync.Mutex
	reported map[string]string // order numbers by request id
	again    int               // requests that were sent again
	replayed int               // answers to them that had been given before
}

// kill ends the victim without a warning, and starts it again a moment later.
func (s *killedSale) kill(ctx context.Context) error {
	switch s.victim {
	case "replica":
		replica := s.lab.cluster.Replicas[rand.N(3)]
		if err := replica.Kill(ctx); err != nil {
			return err
		}
		time.Sleep(rand.N(300 * time.Millisecond))
		return replica.Start(ctx)
	case "redis":
		return s.redis.Restart(ctx)
	default:
		if err := s.lab.database.Kill(ctx); err != nil {
			return err
		}
		return s.lab.database.Restart(ctx)
	}
}

func (s *killedSale) items() int64 { return int64(max(1, s.subject.items)) }

// item is the item of a purchase, or of a restock: all in turn.
func (s *killedSale) item(n int) int64 { return s.goods + int64(n)%s.items() }

func (s *killedSale) run(t *testing.T) {
	for n := range s.items() {
		must.Do(t, s.lab.cluster.Client().CreateGoods(t.Context(), s.goods+n, (s.units-restocks*restockUnits)/s.items()))
	}
	var restocked sync.WaitGroup
	restocked.Go(func() { s.restock(t) })
	s.sell(t, s.kill)
	restocked.Wait()
	// Units that were kept back for orders whose fate Redis had forgotten are there
	// again when the ledger has them all: another buyer takes them.
	s.audit(t)
	s.buy(t, 24)
	audit := s.audit(t)
	if !audit.Clean || audit.Sold != s.units || audit.Orders != int64(len(s.reported)) {
		t.Errorf("%d orders reported, the audit is %+v", len(s.reported), audit)
	}
	if lost := s.lost(t); len(lost) > 0 {
		t.Errorf("%d orders that were reported are not in the ledger: %v", len(lost), lost)
	}
}

// What is added in the course of a sale, of its units.
const (
	restocks     = 10
	restockUnits = 50
)

// restock restocks through one replica after the other while others sell and
// something is killed. What is not answered is sent again under its key.
func (s *killedSale) restock(t *testing.T) {
	for n := range restocks {
		if err := s.until(n, func(c client.Client) error {
			_, err := c.Restock(t.Context(), s.item(n), restockUnits, fmt.Sprintf("%d-restock-%d", s.goods, n))
			return err
		}); err != nil {
			t.Errorf("restock %d is not answered: %v", n, err)
			return
		}
		time.Sleep(rand.N(80 * time.Millisecond))
	}
}

// at is a replica as a shop's server asks it.
func (s *killedSale) at(replica int) client.Client {
	at := s.lab.cluster.Replicas[replica%3]
	return client.Client{URL: at.URL, AdminURL: at.AdminURL, Token: s.lab.cluster.Client().Token, Tries: 1, HTTP: &http.Client{Timeout: 5 * time.Second}}
}

// until asks one replica after the other until there is an answer that is final.
func (s *killedSale) until(first int, ask func(client.Client) error) error {
	for try, end := 0, time.Now().Add(saleWithin); ; try++ {
		err := ask(s.at(first + try))
		final := err == nil || errors.Is(err, client.ErrSoldOut) || errors.Is(err, client.ErrReservationExpired)
		if final || time.Now().After(end) {
			s.mu.Lock()
			s.again += try
			s.mu.Unlock()
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lost are the requests whose buyers got an order that the ledger does not
// have.
func (s *killedSale) lost(t *testing.T) (lost []string) {
	t.Helper()
	orders := must.Get(s.store.Orders(t.Context(), slices.Collect(maps.Keys(s.reported))...))(t)
	for id, number := range s.reported {
		if orders[id].ID != number {
			lost = append(lost, id)
		}
	}
	return lost
}

// sell sells until nothing is left, and kills at a random moment.
func (s *killedSale) sell(t *testing.T, kill func(context.Context) error) {
	t.Helper()
	var buyers sync.WaitGroup
	for i := range 24 {
		buyers.Go(func() { s.buy(t, i) })
	}
	time.Sleep(rand.N(400 * time.Millisecond))
	must.Do(t, kill(t.Context()))
	buyers.Wait()
}

// audit waits until nothing is pending, and sums up the items.
func (s *killedSale) audit(t *testing.T) stock.Audit {
	t.Helper()
	first := s.lab.cluster.ClientOf(0)
	all := stock.Audit{Clean: true}
	for n := range s.items() {
		one := must.Get(first.Audit(t.Context(), s.goods+n))(t)
		all.Sold, all.Orders, all.Stock = all.Sold+one.Sold, all.Orders+one.Orders, all.Stock+one.Stock
		all.Oversold, all.Lost, all.Clean = all.Oversold+one.Oversold, all.Lost+one.Lost, all.Clean && one.Clean
	}
	return all
}

// saleWithin bounds a sale, and with it the time for which a buyer asks again.
const saleWithin = 60 * time.Second

// buy buys one unit after the other until nothing is left, and retries under the same key where it
// gets no answer.
func (s *killedSale) buy(t *testing.T, buyer int) {
	gone := make(map[int64]bool)
	for n := 0; int64(len(gone)) < s.items(); n++ {
		item := s.item(buyer + n)
		if gone[item] {
			continue
		}
		var sale client.Sale
		id := fmt.Sprintf("%d-%d-%d", s.goods, buyer, n)
		err := s.until(buyer+n, func(c client.Client) (err error) {
			sale, err = c.Deduct(t.Context(), s.subject.purchase(n, item, id))
			return err
		})
		switch {
		case errors.Is(err, client.ErrSoldOut):
			gone[item] = true
		case err != nil:
			t.Errorf("buyer %d has no answer for %s after %s: %v", buyer, id, saleWithin, err)
			return
		default:
			s.tell(id, sale)
		}
	}
}

func (s *killedSale) tell(id string, sale client.Sale) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reported[id] = sale.OrderID
	if sale.Replayed {
		s.replayed++
	}
}

// reservations has clients take reservations to their ends through three replicas, and kills a
// replica, the database or Redis, each so often, at a random moment. Every reservation must end once, as its
// client was answered, and every unit be sold or back.
func (k killable) reservations(t *testing.T, each int, subjects ...killed) {
	t.Helper()
	for _, subject := range subjects {
		t.Run(subject.String(), func(t *testing.T) {
			again, ends, rounds := 0, make(map[string]int), each*len(subject.victims)
			for round := range rounds {
				r := &killedReservations{
					killedSale: killedSale{killable: k, subject: subject, goods: k.lab.goods.Add(1), units: 120, victim: subject.victims[round%len(subject.victims)]},
					wanted:     make(map[string]string),
				}
				t.Run(fmt.Sprintf("%d-%s", round+1, r.victim), r.run)
				again += r.again
				for _, end := range r.wanted {
					ends[end]++
				}
			}
			t.Logf("%d kills: %v, and %d times a client without an answer asked again", rounds, ends, again)
			if again == 0 {
				t.Error("no kill came in the middle of anything")
			}
		})
	}
}

// killedReservations are those of one item, in the middle of which something is killed.
type killedReservations struct {
	killedSale

	// wanted is how each reservation must have ended, by what its client was answered; empty
	// where it was to expire.
	wanted map[string]string
}

func (r *killedReservations) run(t *testing.T) {
	must.Do(t, r.lab.cluster.Client().CreateGoods(t.Context(), r.goods, r.units))
	var clients sync.WaitGroup
	for i := range 12 {
		clients.Go(func() {
			for n := range 10 {
				time.Sleep(rand.N(80 * time.Millisecond)) // so that they are not over before the kill
				if err := r.live(t.Context(), i, n); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	time.Sleep(rand.N(300 * time.Millisecond))
	must.Do(t, r.kill(t.Context()))
	clients.Wait()
	r.compare(t)
}

// live takes a reservation to its end, and notes which it must be.
func (r *killedReservations) live(ctx context.Context, who, n int) error {
	var held client.Reservation
	p := r.subject.purchase(0, r.goods, fmt.Sprintf("%d-%d-%d", r.goods, who, n))
	err := r.until(who+n, func(c client.Client) (err error) { held, err = c.Reserve(ctx, p, time.Second); return err })
	if errors.Is(err, client.ErrSoldOut) {
		return nil
	}
	if err != nil {
		return err
	}
	end, id := "", held.ReservationID
	switch n % 3 {
	case 0:
		end = client.StepConfirmed
		err = r.until(who+n, func(c client.Client) error { _, err := c.Confirm(ctx, id, "paid-"+id); return err })
	case 1:
		end = client.StepReleased
		err = r.until(who+n, func(c client.Client) error { _, err := c.Release(ctx, id); return err })
	}
	if errors.Is(err, client.ErrReservationExpired) {
		end, err = client.StepExpired, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted[id] = end
	return err
}

// compare waits until nothing is held, and compares the ledger with what the clients know.
func (r *killedReservations) compare(t *testing.T) {
	t.Helper()
	var audit client.Audit
	if !labtest.Eventually(saleWithin, func() (done bool) {
		var err error
		audit, err = r.at(0).AuditInFull(t.Context(), r.goods)
		return err == nil && audit.Held == 0 && audit.Pending != nil && *audit.Pending == 0
	}) {
		t.Fatalf("something stays held: %+v", audit)
	}
	steps, paid := make(map[string][]string), int64(0)
	rows := must.Get(readLedger(t.Context(), r.lab.database, r.goods))(t)
	for _, row := range rows {
		switch row.Kind {
		case "restock": // the first units
			continue
		case client.StepConfirmed:
			paid++
		}
		steps[row.Order] = append(steps[row.Order], row.Kind)
	}
	for id, end := range r.wanted {
		if end == "" {
			end = client.StepExpired
		}
		had, want := slices.Sorted(slices.Values(steps[id])), slices.Sorted(slices.Values([]string{client.StepHeld, end}))
		should.Equal(t, had, want, "reservation … has had", id)
	}
	if !audit.Clean || audit.Sold != paid || audit.Stock != r.units-paid || len(steps) != len(r.wanted) {
		t.Errorf("%d reservations of %d that were answered, %d are paid, and the audit is %+v", len(steps), len(r.wanted), paid, audit)
	}
}

// The database keeps each change of a shop's day in its middle until its replica is killed. Asked again elsewhere, each is done
// once and whole.
func (k killable) changes(t *testing.T) {
	const imported = 20 // items
	l := k.lab
	db := must.Get(l.database.Raw())(t)
	t.Cleanup(func() { _ = db.Close() }) // the test is over
	var order string
	late := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, keep string // keep is what another transaction has written or locked of an item
		ask        func(c client.Client, goods int64) error
		stock      int64
		sums       stock.Sums
	}{
		{
			"correct", `INSERT INTO tb_stock_ledger (goods_id, kind, quantity, request_id, strategy, replica, created_at)
				VALUES (?, 'correct', 1, 'november correct', '', '', NOW())`,
			func(c client.Client, goods int64) error {
				_, err := c.Correct(t.Context(), goods, client.Correction{By: -5, Reason: "inventory", RequestID: "november"})
				return err
			}, 92,
			stock.Sums{Restocked: 100, Corrected: -5, Sold: 3, Orders: 1},
		},
		{
			"damaged return", `UPDATE tb_goods_stock SET version = version + 1 WHERE goods_id = ?`,
			func(c client.Client, _ int64) error {
				_, err := c.ReturnDamaged(t.Context(), order, 2, "refund")
				return err
			}, 97,
			stock.Sums{Restocked: 100, Corrected: -2, Sold: 3, Orders: 1, Returned: 2},
		},
		{
			"close", `UPDATE tb_stock_place SET epoch = epoch + 1 WHERE goods_id = ?`, // once the row is withheld, and before the buckets are
			func(c client.Client, goods int64) error {
				closed, err := c.CloseSale(t.Context(), goods)
				if a := closed.Audit; err == nil && (!a.Clean || a.Stock != 97 || a.Pending == nil || *a.Pending != 0) {
					t.Errorf("the final audit is %+v", a)
				}
				return err
			}, 97, stock.Sums{Restocked: 100, Sold: 3, Orders: 1},
		},
		{
			"delay", `UPDATE tb_stock_place SET epoch = epoch + 1 WHERE goods_id = ?`,
			func(c client.Client, goods int64) error {
				_, err := c.Change(t.Context(), goods, client.Change{StartsAt: &late})
				return err
			}, 97,
			stock.Sums{Restocked: 100, Sold: 3, Orders: 1},
		},
		{
			"import", `INSERT INTO tb_goods_stock (goods_id, stock) VALUES (? + 5, 1)`,
			func(c client.Client, goods int64) error {
				lines := make([]any, 0, imported)
				for n := range int64(imported) {
					lines = append(lines, client.NewItem{GoodsID: goods + n, Stock: 100, Choice: &client.Choice{Strategy: "sql-bucket"}})
				}
				done, err := c.Import(t.Context(), lines...)
				for _, line := range done {
					if line.Problem != nil || line.GoodsID > goods && line.Item.Stock != 100 {
						t.Errorf("%+v", line)
					}
				}
				return err
			}, 97,
			stock.Sums{Restocked: 100, Sold: 3, Orders: 1},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, goods := &killedSale{killable: k}, l.goods.Add(imported)-imported+1
			must.Do(t, l.cluster.Client().CreateGoods(t.Context(), goods, 100))
			order = must.Get(s.at(1).Deduct(t.Context(), client.Purchase{GoodsID: goods, Quantity: 3, Strategy: "sql-bucket"}))(t).OrderID
			keeper := must.Get(db.BeginTx(t.Context(), nil))(t)
			must.Get(keeper.ExecContext(t.Context(), c.keep, goods))(t)
			asked := make(chan error, 1)
			go func() { asked <- c.ask(s.at(0), goods) }()
			var name, waiting string
			if !labtest.Eventually(saleWithin, func() bool {
				err := db.QueryRowContext(t.Context(), `SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'`).Scan(&name, &waiting)
				return err == nil && waiting != "0"
			}) {
				t.Fatalf("nothing waits in the database: %v", <-asked)
			}
			must.Do(t, l.cluster.Replicas[0].Kill(t.Context()), keeper.Rollback())
			if err := <-asked; err == nil {
				t.Error("it was done before the kill")
			}
			must.Do(t, s.until(1, func(at client.Client) error { return c.ask(at, goods) }), l.cluster.Replicas[0].Start(t.Context()))
			want := stock.AuditOf(goods, c.stock, c.sums)
			should.Be(t, must.Get(l.cluster.ClientOf(0).Audit(t.Context(), goods))(t), want, "the audit")
			full := must.Get(l.cluster.ClientOf(0).AuditInFull(t.Context(), goods))(t)
			full.Buyers = nil
			should.Be(t, full, want, "the full audit")
		})
	}
}
