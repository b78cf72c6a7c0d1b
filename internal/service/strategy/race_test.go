package strategy_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// betweenOnce is a lab that runs a function once between a read and its write.
type betweenOnce struct{ do func() }

func (*betweenOnce) Record(_ string, l lock.Locker) lock.Locker { return l }

func (b *betweenOnce) Between(ctx context.Context, _ string, _ int64) context.Context {
	if do := b.do; do != nil {
		b.do = nil
		do()
	}
	return ctx
}

// On a database with several writing nodes, a sale under a lock that excludes all
// others can meet one that its node did not have yet when it read: the conflict is
// found at the write or the commit, as error 1213, and the transaction is rolled back.
// Here a deadlock brings the same. What is run again must read again.
func TestAVictimOfAConflictIsDecidedAnew(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		for i, name := range []string{"naive", "mutex", "channel", "mutex-in-tx", "sql-optimistic"} {
			t.Run(name, func(t *testing.T) { assertVictimReadsAgain(t, d, name, int64(i+1)) })
		}
	})
}

func assertVictimReadsAgain(t *testing.T, d *servers.Database, name string, goods int64) {
	t.Helper()
	const units = 10
	node := &otherNode{t: t, db: d, strategy: name, goods: goods, request: rand.Text()}
	labtest.Open(t, d, "replica-1") // has the schema
	store, err := repo.Open(t.Context(), backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 8, LockWait: 5 * time.Second, ConnectTimeout: time.Second,
	}, repo.Options{Retried: func(string) { _ = node.await() }}) // on a cluster the conflict is with what is committed
	must.Do(t, err)
	defer store.Close() //nolint:errcheck // the test is over
	must.Do(t, store.CreateGoods(t.Context(), goods, units, rand.Text()))
	between := &betweenOnce{do: node.sell}
	made := entryOf(t, name).New(strategy.Deps{
		Store: store.As(name), LockWait: time.Second, Failpoints: between,
		Retry: strategy.Retry{Tries: 10, Step: time.Millisecond, Max: time.Millisecond},
	})
	outcomes, err := made.Deduct(t.Context(), goods, []stock.Purchase{{RequestID: node.request, Quantity: 1}})
	if err != nil || outcomes[0].Rejected != nil {
		t.Fatalf("the sale ended with %+v (%v)", outcomes, err)
	}
	must.Do(t, node.await()) // the other node
	audit, err := store.Audit(t.Context(), goods)
	if err != nil || !audit.Clean || audit.Sold != 2 {
		t.Errorf("the audit is %+v (%v), want two sales and none overwritten", audit, err)
	}
}

func entryOf(t *testing.T, name string) strategy.Entry {
	t.Helper()
	for _, entry := range strategy.Registry() {
		if entry.Name == name {
			return entry
		}
	}
	t.Fatalf("the registry has no %s", name)
	return strategy.Entry{}
}

// otherNode sells one unit by the same strategy, so that the sale it conflicts with is
// the one that the database rolls back.
type otherNode struct {
	t         *testing.T
	db        *servers.Database
	strategy  string
	goods     int64
	request   string // of the sale it conflicts with
	committed chan error
}

const (
	nodeSells = `UPDATE tb_goods_stock SET stock = stock - 1, version = version + 1, writer = ? WHERE goods_id = ?`

	// The victim is the transaction that has changed fewer rows.
	nodeWrites = `INSERT INTO tb_stock_user (goods_id, user_id, units) VALUES (?, ?, 1)`

	nodeConflicts = `SELECT id FROM tb_stock_ledger WHERE request_id = ? FOR UPDATE`
)

// await returns when it has committed, or failed to.
func (n *otherNode) await() error {
	err := <-n.committed
	n.committed <- err // for the next one who asks
	return err
}

// sell has sold and not committed when it returns. It commits when the conflict is over.
func (n *otherNode) sell() {
	n.committed = make(chan error, 1)
	pool, _, err := backend.OpenPool(backend.SQLOptions{
		Driver: n.db.Driver, DSN: n.db.DSN, Password: n.db.Password, MaxOpen: 2, LockWait: 5 * time.Second, ConnectTimeout: time.Second,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { pool.Close() }) //nolint:errcheck // the test is over
	tx, err := pool.BeginTx(context.WithoutCancel(n.t.Context()), nil)
	if err != nil {
		n.t.Fatal(err)
	}
	n.exec(tx, nodeSells, n.strategy, n.goods)
	n.exec(tx, insertSale, n.goods, rand.Text(), 0)
	for range 100 {
		n.exec(tx, nodeWrites, n.goods+1000, rand.Text())
	}
	go func() {
		for range 1000 {
			if labtest.WaitingWriters(n.t, n.db) > 0 {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		var id int64
		err := tx.QueryRowContext(context.WithoutCancel(n.t.Context()), nodeConflicts, n.request).Scan(&id)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			n.committed <- err
			return
		}
		n.committed <- tx.Commit()
	}()
}

func (n *otherNode) exec(tx *sql.Tx, statement string, args ...any) {
	if _, err := tx.ExecContext(context.WithoutCancel(n.t.Context()), statement, args...); err != nil {
		n.t.Fatal(err)
	}
}

// Purchases by the procedure that wait for a row leave a connection to others.
func TestACrowdOfTheProcedureLeavesAConnectionToOthers(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		other := labtest.Open(t, d, "other") // has the schema
		store, err := repo.Open(t.Context(), backend.SQLOptions{
			Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 4, LockWait: 5 * time.Second, ConnectTimeout: 5 * time.Second,
		}, repo.Options{})
		must.Do(t, err)
		defer store.Close() //nolint:errcheck // the test is over
		must.Do(t, errors.Join(other.CreateGoods(t.Context(), 1, 10, "1"), other.CreateGoods(t.Context(), 2, 10, "2")))
		s := entryOf(t, "sql-procedure").New(strategy.Deps{Store: store.As("sql-procedure")})
		var crowd sync.WaitGroup
		err = other.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.GoodsForUpdate(t.Context(), 1); err != nil {
				return err
			}
			for range 6 {
				crowd.Go(func() { _, _ = s.Deduct(t.Context(), 1, oneUnit()) })
			}
			should.Be(t, labtest.Eventually(3*time.Second, func() bool { return labtest.WaitingWriters(t, d) >= 3 }), true, "the crowd does not wait for the row")
			time.Sleep(100 * time.Millisecond) // a fourth one would wait, too
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := store.Goods(ctx, 2)
			return err
		})
		crowd.Wait()
		if err != nil {
			t.Errorf("meanwhile another item is read with %v", err)
		}
	})
}

// A commit that was sent and not answered may happen when its purchase is over and
// its lock is released. The next sale must not write what it read before.
func TestTheNextSaleReadsWhatAnUnansweredCommitLeaves(t *testing.T) {
	for name, grouped := range map[string]bool{"mutex": false, "channel": false, "redis-lua": false, "naive": true} {
		t.Run(name, func(t *testing.T) {
			lab.EachServer(t, func(t *testing.T, d *servers.Database) {
				through, proxy := labtest.Through(t, d)
				store := labtest.Open(t, through, "r")
				must.Do(t, store.CreateGoods(t.Context(), 1, 10, "first"))
				sells := made(t, d, name, strategy.Deps{Store: store.As(name), LockWait: time.Second}, grouped)
				held := proxy.Arm(servers.Rule{Sent: "COMMIT", Do: servers.Hold})
				defer held.Pass()
				start := time.Now()
				should.Fail(t, buyWithin(t, sells, "pending", 500*time.Millisecond), stock.ErrUnknownOutcome, "the first sale is")
				if took := time.Since(start); took > 4*time.Second {
					t.Errorf("it took %s", took)
				}
				time.AfterFunc(300*time.Millisecond, held.Pass) // now the server gets it
				must.Do(t, buyWithin(t, sells, "next", 5*time.Second))
				if audit, err := store.AuditInFull(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 2 {
					t.Errorf("the audit is %+v, %v; want 2 sold", audit, err)
				}
			})
		})
	}
}

// made makes a strategy of the registry.
func made(t *testing.T, d *servers.Database, name string, deps strategy.Deps, grouped bool) strategy.Strategy {
	t.Helper()
	entry := entryOf(t, name)
	deps.Lock = lab.Locks(t, d, entry.Needs...)
	sells := entry.New(deps)
	if !grouped {
		return sells
	}
	return strategy.NewBatcher(sells.Deduct, deps.Store.Orders, strategy.Group{
		Batch: 8, Units: 8, Queue: 8, Timeout: 5 * time.Second,
		Settled: func(ctx context.Context, goodsID int64) error {
			_, err := deps.Store.GoodsSettled(ctx, goodsID)
			return err
		},
	})
}

func buyWithin(t *testing.T, s strategy.Strategy, requestID string, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	outcomes, err := s.Deduct(ctx, 1, []stock.Purchase{{RequestID: requestID, Quantity: 1}})
	if err == nil {
		err = outcomes[0].Rejected
	}
	return err
}

// Units are sold and others come back after a strategy has read the stock, or while it waits for its commit: there is
// enough at any time, and the purchase is sold.
func TestNoPurchaseIsRejectedForWhatHappensInItsMiddle(t *testing.T) {
	eachWithoutServer(t, func(entry strategy.Entry, d strategy.Deps, goods int64) {
		other := entryOf(t, "sql-conditional").New(strategy.Deps{Store: d.Store.As("sql-conditional")})
		happened := make(chan error, 1)
		d.Retry.Tries = 2
		d.Failpoints = &betweenOnce{do: func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				sold := oneOf(other.Deduct(t.Context(), goods, []stock.Purchase{purchase(3)}))
				if errors.Is(sold, stock.ErrInsufficientStock) || errors.Is(sold, stock.ErrAllocated) { // it comes after the purchase
					sold = nil
				}
				_, restocked := d.Store.Restock(t.Context(), goods, 5, rand.Text())
				happened <- errors.Join(sold, restocked)
			}()
			select {
			case <-done:
			case <-time.After(50 * time.Millisecond): // it waits for the purchase
			}
		}}
		s := entry.New(d)
		closeAfter(t, s)
		should.Fail(t, oneOf(s.Deduct(t.Context(), goods, []stock.Purchase{purchase(10)})), nil, "… answers a purchase of all that it has read", entry.Name)
		should.Fail(t, <-happened, nil, "beside …", entry.Name)
		if audit, err := d.Store.AuditInFull(t.Context(), goods); err != nil || !audit.Clean || audit.Stock != 15-audit.Sold {
			t.Errorf("%s: the audit is %+v (%v)", entry.Name, audit, err)
		}
	})
}

// The first sale through buckets moves the units out of the row. A purchase from the row waits for that; it is sold
// where the move is undone, and else is told where the units are, so that they are recalled.
func TestUnitsThatAreBeingMovedAreNotSoldOut(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		for goods, undone := range []bool{false, true} {
			item := int64(goods + 1)
			s := openBuckets(t, d, 4)
			s.create(t, item, 10)
			fromRow := entryOf(t, "sql-conditional").New(strategy.Deps{Store: s.stores[0].As("sql-conditional")})
			holder := func(f strategy.Failpoints) strategy.Strategy {
				return entryOf(t, "sql-bucket").New(strategy.Deps{Store: s.stores[0].As("sql-bucket"), Buckets: 4, Failpoints: f})
			}
			first, second := meet(t, d, item, undone, holder, "%tb_goods_stock%", func() error {
				return oneOf(fromRow.Deduct(t.Context(), item, []stock.Purchase{purchase(5)}))
			})
			if undone != (first != nil) || undone && second != nil || !undone && !errors.Is(second, stock.ErrAllocated) {
				t.Errorf("undone %t: the move is answered with %v, and the purchase with %v", undone, first, second)
			}
		}
	})
}
