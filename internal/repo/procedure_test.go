package repo_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// call takes units of an item by the procedure.
func call(ctx context.Context, s *repo.Store, goodsID int64, batch ...stock.Purchase) error {
	outcomes, err := s.SellByProcedure(ctx, goodsID, batch)
	for _, o := range outcomes {
		err = errors.Join(err, o.Rejected)
	}
	return err
}

// one is a purchase of one unit.
func one(requestID string) stock.Purchase { return stock.Purchase{RequestID: requestID, Quantity: 1} }

// blocker holds the row of item 1 until it is committed.
type blocker struct {
	*sql.Tx

	t  *testing.T
	d  *servers.Database
	db *sql.DB
}

func block(t *testing.T, d *servers.Database) blocker {
	t.Helper()
	db, _ := labtest.Connect(t, d)
	t.Cleanup(func() { db.Close() }) //nolint:errcheck // the test is over
	tx := must.Get(db.BeginTx(context.WithoutCancel(t.Context()), nil))(t)
	b := blocker{Tx: tx, t: t, d: d, db: db}
	b.exec(`UPDATE tb_goods_stock SET version = version + 1 WHERE goods_id = 1`)
	return b
}

func (b blocker) exec(statement string, args ...any) {
	b.t.Helper()
	must.Get(b.ExecContext(b.t.Context(), statement, args...))(b.t)
}

// awaitWaiters waits until so many statements wait for the row.
func (b blocker) awaitWaiters(n int) {
	b.t.Helper()
	if !labtest.Eventually(10*time.Second, func() bool { return labtest.WaitingWriters(b.t, b.d) == n }) {
		b.t.Fatalf("%d statements wait for the row, want %d", labtest.WaitingWriters(b.t, b.d), n)
	}
}

// connected reports whether the server has a connection.
func (b blocker) connected(id int64) (is bool) {
	b.t.Helper()
	must.Do(b.t, b.db.QueryRowContext(b.t.Context(), `SELECT COUNT(*) FROM information_schema.processlist WHERE id = ?`, id).Scan(&is))
	return is
}

func (b blocker) commit() {
	b.t.Helper()
	must.Do(b.t, b.Commit())
}

// wantOrders compares the orders of item 1 in the ledger, and all that belongs to them.
func wantOrders(t *testing.T, s *repo.Store, sold int64) {
	t.Helper()
	audit, err := s.AuditInFull(t.Context(), 1)
	if err != nil || !audit.Clean || audit.Orders != sold || audit.Buyers != nil && *audit.Buyers != (stock.Buyers{}) {
		t.Errorf("the audit is %+v, of buyers %+v (%v); want %d orders", audit, audit.Buyers, err, sold)
	}
}

// A connection that the server has ended is found to be dead before anything is sent by it.
func TestACallPassesOverDeadConnections(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, proxy := bounded(t, d, 5*time.Second)
		must.Do(t, call(t.Context(), s, 1, one("first")))
		proxy.Cut()
		must.Do(t, proxy.Mend())
		should.Do(t, call(t.Context(), s, 1, one("second")))
		wantOrders(t, s, 2)
	})
}

// The running totals rely on it, and so does the client that was told nothing: the procedure
// rolls back what it could not finish in time, also where no one waits for it any more.
func TestACallThatIsLateIsNotCommitted(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, _ := bounded(t, d, 300*time.Millisecond)
		row := block(t, d)
		err := ends(t, 300*time.Millisecond, 300*time.Millisecond+soon, func() error { return call(t.Context(), s, 1, one("late")) })
		should.Fail(t, err, stock.ErrUnknownOutcome, "it ended with")
		row.awaitWaiters(1) // the server does not look whether its client is there
		row.commit()
		row.awaitWaiters(0)
		should.Do(t, call(t.Context(), s, 1, one("late")))
		wantOrders(t, s, 1)
	})
}

func TestACallWaitsForARowNoLongerThanItMay(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		create(t, labtest.Open(t, d, "r"), 1, 10)
		s := impatient(t, d)
		must.Do(t, s.SetLimit(t.Context(), 1, 1))
		bought := stock.Purchase{RequestID: "waits", Quantity: 1, UserID: "u"}
		row := block(t, d)
		should.Fail(t, call(t.Context(), s, 1, bought), stock.ErrBusy)
		row.commit()
		should.Do(t, call(t.Context(), s, 1, bought))
		wantOrders(t, s, 1)
	})
}

// A statement that is killed may leave the transaction of the procedure open, in the middle: MySQL
// asks no handler then. The next sale of the pool must not commit that, so the connection ends.
func TestAKilledCallLeavesNothing(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		create(t, labtest.Open(t, d, "r"), 1, 10)
		s := impatient(t, d)
		row := block(t, d)
		killed := make(chan error, 1)
		go func() { killed <- call(t.Context(), s, 1, one("killed")) }()
		row.awaitWaiters(1)
		var id int64
		must.Do(t, row.db.QueryRowContext(t.Context(),
			`SELECT id FROM information_schema.processlist WHERE info LIKE 'UPDATE tb_goods_stock%'`).Scan(&id))
		row.exec(fmt.Sprintf(`KILL QUERY %d`, id))
		should.Fail(t, <-killed, stock.ErrUnknownOutcome)
		should.Be(t, labtest.Eventually(10*time.Second, func() bool { return !row.connected(id) }), true, "the connection of the call that was killed is in the pool")
		row.commit()
		for range 2 {
			must.Do(t, sell(t.Context(), s, 1, rand.Text()))
		}
		wantOrders(t, s, 2)
	})
}

// The procedure has its buyer and waits for the row, whose holder then wants the buyer.
func TestACallThatIsADeadlocksVictimIsRetried(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		var retried atomic.Int64
		create(t, labtest.Open(t, d, "r"), 1, 10)
		s := open(t, d, backend.SQLOptions{MaxOpen: 2, LockWait: 5 * time.Second, ConnectTimeout: 5 * time.Second},
			repo.Options{Retried: func(string) { retried.Add(1) }})
		must.Do(t, s.SetLimit(t.Context(), 1, 5))
		row := block(t, d)
		for range 100 { // the victim is the transaction that has changed fewer rows
			row.exec(`INSERT INTO tb_stock_user (goods_id, user_id, units) VALUES (2, ?, 1)`, rand.Text())
		}
		done := make(chan error, 1)
		go func() { done <- call(t.Context(), s, 1, stock.Purchase{RequestID: "victim", Quantity: 2, UserID: "u"}) }()
		row.awaitWaiters(1)
		row.exec(`INSERT INTO tb_stock_user (goods_id, user_id, units) VALUES (1, 'u', 0)`)
		row.commit()
		if err := <-done; err != nil || retried.Load() == 0 {
			t.Errorf("the victim ended with %v after %d retries, want a sale", err, retried.Load())
		}
		wantOrders(t, s, 1)
	})
}

// The batch is a document: what a request id or a buyer may be made of comes through it.
func TestTheProcedureTakesEveryName(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 100)
		must.Do(t, s.SetLimit(t.Context(), 1, 1))
		users := []string{"null", `"`, `\`, `\u0041`, "'; DROP TABLE x", "<&>", "小明", "😀", "a ", "a", "A", "e\u0301", "é", "\u2028", "$[0]"}
		batch := make([]stock.Purchase, 0, len(users))
		for _, user := range users {
			batch = append(batch, stock.Purchase{RequestID: rand.Text() + ` "\'[]{}<&>`, Quantity: 1, UserID: user})
		}
		outcomes, err := s.SellByProcedure(t.Context(), 1, batch)
		must.Do(t, err)
		ids := make([]string, 0, len(batch))
		for _, p := range batch {
			ids = append(ids, p.RequestID)
		}
		orders, err := s.Orders(t.Context(), ids...)
		must.Do(t, err)
		for i, o := range outcomes {
			if o.Rejected != nil || orders[ids[i]].UserID != users[i] || orders[ids[i]].ID != o.Order.ID {
				t.Errorf("the buyer %q got %+v, and the ledger has %+v", users[i], o, orders[ids[i]])
			}
		}
		slices.Reverse(batch)
		for i := range batch {
			batch[i].RequestID = rand.Text()
		}
		if outcomes, err = s.SellByProcedure(t.Context(), 1, batch); err != nil {
			t.Fatal(err)
		}
		for i, o := range outcomes {
			should.Fail(t, o.Rejected, stock.ErrUserLimit, "the second unit of", batch[i].UserID, "is")
		}
		wantOrders(t, s, int64(len(users)))
	})
}

// The procedure decides as every other strategy does, and the ledger has what it has answered. Where a
// purchase has a key, what is left is known when the row is written, and stays.
func TestTheProcedureDecidesAsAllotDoes(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "replica-1").As("sql-procedure")
		by := func(user string, units int64) stock.Purchase {
			return stock.Purchase{RequestID: rand.Text(), UserID: user, Quantity: units}
		}
		keyed := func(p stock.Purchase) stock.Purchase { p.Keyed = true; return p }
		for i, c := range []struct {
			units, elsewhere, limit int64
			batch                   []stock.Purchase
		}{
			{10, 0, 0, []stock.Purchase{by("ann", 4), by("", 7), by("bob", 6), by("", 1)}},
			{10, 5, 0, []stock.Purchase{by("", 6), by("", 9), by("", 10), by("", 4), by("", 1)}},
			{10, 5, 0, []stock.Purchase{by("", 11), by("", 16)}},
			{10, 0, 3, []stock.Purchase{by("ann", 2), by("", 1), by("ann", 2), by("bob", 4), by("bob", 3), by("ann", 1)}},
			{4, 3, 5, []stock.Purchase{by("ann", 3), by("bob", 3), by("ann", 3), by("bob", 5), by("bob", 1)}},
			{10, 0, 0, []stock.Purchase{keyed(by("ann", 4)), by("", 2)}},
			{0, 0, 0, []stock.Purchase{by("", 1)}},
		} {
			item := int64(i + 1)
			must.Do(t, s.Create(t.Context(), stock.NewItem{GoodsID: item, Units: c.units + c.elsewhere, PerUser: c.limit}, rand.Text()))
			if _, filled, err := s.FillPool(t.Context(), item, c.elsewhere); err != nil || filled != c.elsewhere {
				t.Fatalf("%d units are allocated (%v)", filled, err)
			}
			goods, err := s.Goods(t.Context(), item)
			must.Do(t, err)
			outcomes, err := s.SellByProcedure(t.Context(), item, c.batch)
			must.Do(t, err)
			left := c.units
			for j, want := range goods.Allot(c.batch, stock.Limit{PerUser: c.limit}) {
				got := outcomes[j]
				if !reflect.DeepEqual(got.Rejected, want) {
					t.Errorf("purchase %d of %+v is rejected with %v, want %v", j, c, got.Rejected, want)
				}
				if want == nil {
					left -= c.batch[j].Quantity
				}
				found, err := s.Orders(t.Context(), c.batch[j].RequestID)
				order := found[c.batch[j].RequestID]
				if keyed := c.batch[0].Keyed; want == nil && !keyed {
					order.Remaining = left // the row has what is left of all
				}
				if err != nil || order != got.Order || want == nil && (order.Remaining != left || order.Strategy != "sql-procedure" || order.Replica != "replica-1") {
					t.Errorf("purchase %d of %+v is %+v, and in the ledger %+v (%v), want %d left", j, c, got.Order, order, err, left)
				}
			}
			after, err := s.Goods(t.Context(), item)
			if sold := left < c.units; err != nil || after.Stock != left || (after.Version > goods.Version) != sold || sold && after.Writer != "sql-procedure" {
				t.Errorf("%+v leaves %+v (%v), want %d", c, after, err, left)
			}
			if audit, err := s.AuditInFull(t.Context(), item); err != nil || !audit.Clean {
				t.Errorf("the audit is %+v, of buyers %+v (%v)", audit, audit.Buyers, err)
			}
		}
		should.Reject(s.SellByProcedure(t.Context(), 404, []stock.Purchase{by("", 1)}))(t, stock.ErrUnknownGoods, "an unknown item")
	})
}
