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
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
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
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // the test is over
	if err := store.CreateGoods(t.Context(), goods, units, rand.Text()); err != nil {
		t.Fatal(err)
	}
	between := &betweenOnce{do: node.sell}
	made := entryOf(t, name).New(strategy.Deps{
		Store: store.As(name), LockWait: time.Second, Failpoints: between,
		Retry: strategy.Retry{Tries: 10, Step: time.Millisecond, Max: time.Millisecond},
	})
	outcomes, err := made.Deduct(t.Context(), goods, []stock.Purchase{{RequestID: node.request, Quantity: 1}})
	if err != nil || outcomes[0].Rejected != nil {
		t.Fatalf("the sale ended with %+v (%v)", outcomes, err)
	}
	if err := node.await(); err != nil {
		t.Fatalf("the other node: %v", err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close() //nolint:errcheck // the test is over
		if err := errors.Join(other.CreateGoods(t.Context(), 1, 10, "1"), other.CreateGoods(t.Context(), 2, 10, "2")); err != nil {
			t.Fatal(err)
		}
		s := entryOf(t, "sql-procedure").New(strategy.Deps{Store: store.As("sql-procedure")})
		var crowd sync.WaitGroup
		err = other.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.GoodsForUpdate(t.Context(), 1); err != nil {
				return err
			}
			for range 6 {
				crowd.Go(func() { _, _ = s.Deduct(t.Context(), 1, oneUnit()) })
			}
			if !labtest.Eventually(3*time.Second, func() bool { return labtest.WaitingWriters(t, d) >= 3 }) {
				t.Error("the crowd does not wait for the row")
			}
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
