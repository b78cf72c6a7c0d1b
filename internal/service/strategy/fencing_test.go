package strategy_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service/strategy"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
)

// brokenLock grants the name to every caller, as a lock does whose holder paused
// for longer than its lease; the tokens tell who came later.
type brokenLock struct{ tokens *atomic.Uint64 }

func (l brokenLock) Acquire(context.Context, string) (lock.Lease, error) {
	return brokenLease(l.tokens.Add(1)), nil
}

type brokenLease uint64

func (l brokenLease) Token() uint64               { return uint64(l) }
func (brokenLease) Context() context.Context      { return context.Background() }
func (brokenLease) Release(context.Context) error { return nil }

// duel is two holders of one lock, of whom the first is late: both have read
// the stock before either writes. Then the late one writes, then the other.
type duel struct {
	store *repo.Store
	db    *sql.DB
	sell  func(ctx context.Context, p stock.Purchase) error
	goods int64
}

const (
	duelStock = 10
	// patience bounds each wait of a duel: the holders wait on purpose, for as long as a busy
	// machine needs to bring the other one to its write.
	patience = time.Minute
)

func newDuel(t *testing.T, d *servers.Database, goods int64) *duel {
	t.Helper()
	o := backend.SQLOptions{
		Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 8,
		LockWait: patience, TxTimeout: 2 * patience, ConnectTimeout: patience,
	}
	store := must.Get(repo.Open(t.Context(), o, repo.Options{Replica: "replica-1"}))(t)
	db, _, err := backend.OpenPool(o)
	must.Do(t, err)
	t.Cleanup(func() {
		should.Do(t, errors.Join(store.Close(), db.Close()))
	})
	must.Get(store.MigrateUp(t.Context()))(t)
	must.Do(t, store.CreateGoods(t.Context(), goods, duelStock, rand.Text()))
	// Rows between those that the holders write: on an empty index they would
	// wait for each other's gap, and not for each other's release.
	for _, separator := range []string{"b", "d"} {
		must.Get(db.ExecContext(t.Context(), insertBarrier, goods+1000, fmt.Sprint(goods, separator), 0))(t)
	}
	return &duel{store: store, db: db, goods: goods}
}

// fight returns the errors of the late holder and of the other.
func (d *duel) fight(t *testing.T) (late, other error) {
	t.Helper()
	first := d.begin(t, "a", 1)
	second := d.begin(t, "c", 2)
	return first.end(), second.end()
}

// fighter is a holder that has read and is about to write.
type fighter struct {
	barrier *sql.Tx
	result  chan error
}

// begin lets a holder come as far as its write: it has read the stock, and
// waits for the row of the ledger that another request is about to write, too.
func (d *duel) begin(t *testing.T, id string, waiting int) fighter {
	t.Helper()
	p := stock.Purchase{RequestID: fmt.Sprint(d.goods, id), Quantity: 1}
	barrier := must.Get(d.db.BeginTx(t.Context(), nil))(t)
	must.Get(barrier.ExecContext(t.Context(), `SET SESSION wait_timeout = ?`, patience.Seconds()))(t)
	must.Get(barrier.ExecContext(t.Context(), insertBarrier, d.goods, p.RequestID, 0))(t)
	f := fighter{barrier: barrier, result: make(chan error, 1)}
	go func() { f.result <- d.sell(t.Context(), p) }()
	d.awaitWaiters(t, waiting)
	return f
}

// end lets the holder write.
func (f fighter) end() error {
	if err := f.barrier.Rollback(); err != nil {
		return err
	}
	return <-f.result
}

// awaitWaiters waits until so many statements wait for a row of the ledger.
func (d *duel) awaitWaiters(t *testing.T, want int) {
	t.Helper()
	var waiting int
	for end := time.Now().Add(patience / 2); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		err := d.db.QueryRowContext(t.Context(),
			`SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'INSERT INTO tb_stock_ledger%' AND db = DATABASE()`).Scan(&waiting)
		must.Do(t, err)
		if waiting == want {
			return
		}
	}
	t.Fatalf("%d holders came to their write, want %d", waiting, want)
}

// What the duel itself has written is not counted among the holders, also where the server
// still lists it.
const (
	insertSale    = "INSERT INTO" + ledgerRow
	insertBarrier = "INSERT IGNORE INTO" + ledgerRow
	ledgerRow     = ` tb_stock_ledger
	(goods_id, kind, quantity, request_id, strategy, replica, fence, created_at)
	VALUES (?, 'deduct', 1, ?, 'duel', 'replica-1', ?, NOW(6))`
)

// The token must be claimed before the read. Checked only at the write, the
// late holder's write passes, because the other has not written yet, and the
// other's passes as well, because its token is the higher one: an update is lost.
func TestATokenCheckedOnlyAtTheWriteLosesAnUpdate(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, database *servers.Database) {
		t.Run("claimed before the read", func(t *testing.T) {
			d := newDuel(t, database, 1)
			tokens := new(atomic.Uint64)
			entry := strategy.Locked(lock.Entry{
				Name: "broken", New: func(lock.Deps) lock.Locker { return brokenLock{tokens} },
			})
			made := entry.New(strategy.Deps{Store: d.store.As("broken"), LockWait: time.Second})
			fenced := made.(strategy.Fencer) //nolint:forcetypeassert // a panic fails the test as well
			d.sell = func(ctx context.Context, p stock.Purchase) error {
				_, err := fenced.DeductFenced(ctx, d.goods, []stock.Purchase{p})
				return err
			}
			late, other := d.fight(t)
			if !errors.Is(late, stock.ErrFenced) || other != nil {
				t.Errorf("the late holder got %v, the other %v; want %v and nil", late, other, stock.ErrFenced)
			}
			d.assert(t, 1, 0)
		})
		t.Run("checked only at the write", func(t *testing.T) {
			d := newDuel(t, database, 2)
			tokens := new(atomic.Uint64)
			d.sell = func(ctx context.Context, p stock.Purchase) error {
				return d.sellCheckedAtWrite(ctx, p, tokens.Add(1))
			}
			if late, other := d.fight(t); late != nil || other != nil {
				t.Errorf("the late holder got %v, the other %v; both should pass", late, other)
			}
			d.assert(t, 2, 1)
		})
	})
}

// sellCheckedAtWrite reads, and has the store compare the token only when it
// writes.
func (d *duel) sellCheckedAtWrite(ctx context.Context, p stock.Purchase, token uint64) error {
	read, err := d.store.Goods(ctx, d.goods)
	if err != nil {
		return err
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, insertSale, d.goods, p.RequestID, token); err != nil {
		return err
	}
	result, err := tx.ExecContext(ctx,
		`UPDATE tb_goods_stock SET stock = ?, fence = ? WHERE goods_id = ? AND fence <= ?`, read.Stock-1, token, d.goods, token)
	if err != nil {
		return err
	}
	if rows, err := result.RowsAffected(); err != nil || rows == 0 {
		return fmt.Errorf("%w: %d rows (%w)", stock.ErrFenced, rows, err)
	}
	return tx.Commit()
}

func (d *duel) assert(t *testing.T, sold, lost int64) {
	t.Helper()
	audit := must.Get(d.store.Audit(t.Context(), d.goods))(t)
	if audit.Sold != sold || audit.Lost != lost {
		t.Errorf("%d sold and %d updates lost, want %d and %d", audit.Sold, audit.Lost, sold, lost)
	}
}

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
	must.Do(t, store.CreateGoods(t.Context(), goods, 10*splitSales, rand.Text()))
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
