package repo_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
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

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

// sell takes one unit of an item, as sql-conditional does.
func sell(ctx context.Context, s *repo.Store, goodsID int64, requestID string) error {
	return s.InTx(ctx, func(tx *repo.Tx) error {
		batch := []stock.Purchase{{RequestID: requestID, Quantity: 1}}
		if _, err := tx.Append(ctx, repo.Sale{GoodsID: goodsID, Batch: batch}); err != nil {
			return err
		}
		return errOf(tx.SubtractIfEnough(ctx, goodsID, 1))
	})
}

func create(t *testing.T, s *repo.Store, goodsID, units int64) {
	t.Helper()
	must.Do(t, s.CreateGoods(t.Context(), goodsID, units, t.Name()))
}

// onSale is a store with so many units of item 1.
func onSale(t *testing.T, d *servers.Database, units int64) *repo.Store {
	t.Helper()
	s := labtest.Open(t, d, "r")
	create(t, s, 1, units)
	return s
}

// besideAProxy opens a store on a database with an item, and one that reaches the same through a proxy.
func besideAProxy(t *testing.T, d *servers.Database, units int64) (s, through *repo.Store, proxy *servers.Proxy) {
	t.Helper()
	reached, proxy := labtest.Through(t, d)
	s, through = labtest.Open(t, d, "r"), labtest.Open(t, reached, "through")
	create(t, s, 1, units)
	return s, through, proxy
}

// open opens a store with options of its own.
func open(t *testing.T, d *servers.Database, o backend.SQLOptions, with repo.Options) *repo.Store {
	t.Helper()
	o.Driver, o.DSN, o.Password = d.Driver, d.DSN, d.Password
	s := must.Get(repo.Open(t.Context(), o, with))(t)
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // the test is over
	return s
}

// errOf is the error of a call with two values.
func errOf[A, B any](_ A, _ B, err error) error { return err }

// impatient waits for a row no longer than it must.
func impatient(t *testing.T, d *servers.Database) *repo.Store {
	t.Helper()
	return open(t, d, backend.SQLOptions{MaxOpen: 2, LockWait: time.Second, ConnectTimeout: time.Second}, repo.Options{})
}

// A replica that is paused in a sale blocks the row for no one for long, and
// learns that its own sale has not happened.
func TestAReplicaThatFallsSilentGivesTheRowBack(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		silent := open(t, d, backend.SQLOptions{MaxOpen: 2, LockWait: time.Second, ConnectTimeout: time.Second, Silence: time.Second}, repo.Options{})
		other := labtest.Open(t, d, "other")
		create(t, other, 1, 2)
		err := silent.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, _, err := tx.SubtractIfEnough(t.Context(), 1, 1); err != nil {
				return err
			}
			return sell(t.Context(), other, 1, "the other's") // it waits for the row
		})
		if !errors.Is(err, stock.ErrBackendUnavailable) && !errors.Is(err, stock.ErrUnknownOutcome) {
			t.Errorf("the silent one's sale ended with %v, want a failure of the database", err)
		}
		if audit, err := other.Audit(t.Context(), 1); err != nil || !audit.Clean || audit.Sold != 1 {
			t.Errorf("audit is %+v (%v), want the other's sale alone", audit, err)
		}
	})
}

// Two sales take two goods in opposite order, and each has its first one when both go
// on: the database rolls one of them back.
func TestADeadlocksVictimIsRetriedAndReported(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		var mu sync.Mutex
		var retried []string
		counts := repo.Options{Retried: func(strategy string) {
			mu.Lock()
			defer mu.Unlock()
			retried = append(retried, strategy)
		}}
		store := open(t, d, backend.SQLOptions{MaxOpen: 2, LockWait: 5 * time.Second, ConnectTimeout: time.Second}, counts)
		create(t, labtest.Open(t, d, "r"), 1, 10)
		must.Do(t, store.CreateGoods(t.Context(), 2, 10, "another"))
		var sales, both sync.WaitGroup
		both.Add(2)
		for _, goods := range [][2]int64{{1, 2}, {2, 1}} {
			meet := sync.OnceFunc(func() {
				both.Done()
				both.Wait()
			})
			sales.Go(func() {
				err := store.As("sql-conditional").InTx(t.Context(), func(tx *repo.Tx) error {
					if _, _, err := tx.SubtractIfEnough(t.Context(), goods[0], 1); err != nil {
						return err
					}
					meet()
					return errOf(tx.SubtractIfEnough(t.Context(), goods[1], 1))
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		sales.Wait()
		should.Equal(t, retried, []string{"sql-conditional"}, "retries were reported for")
		for goods := range int64(2) {
			should.Be(t, must.Get(store.Goods(t.Context(), goods+1))(t).Stock, 8, "the item is")
		}
	})
}

func TestRestock(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 5)
		left := must.Get(s.Restock(t.Context(), 1, 7, "more"))(t)
		should.Be(t, left, 12, "restocked to")
		should.Reject(s.Restock(t.Context(), 1, 7, "more"))(t, stock.ErrDuplicateRequest)
		should.Reject(s.Restock(t.Context(), 2, 7, "other"))(t, stock.ErrUnknownGoods)
		should.Reject(s.Restock(t.Context(), 1, stock.MaxStock-11, "too much"))(t, stock.ErrStockLimit)
		audit, err := s.Audit(t.Context(), 1)
		if err != nil || !audit.Clean || audit.Initial != 12 || audit.Stock != 12 {
			t.Errorf("audit is %+v (%v), want 12 clean", audit, err)
		}
	})
}

func TestAnItemIsCreatedOnce(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 5)
		should.Fail(t, s.CreateGoods(t.Context(), 1, 9, "again"), stock.ErrGoodsExist)
		if err := s.CreateGoods(t.Context(), 2, 9, t.Name()); !errors.Is(err, stock.ErrDuplicateRequest) || errors.Is(err, stock.ErrGoodsExist) {
			t.Errorf("another one under the same request id: %v, want %v", err, stock.ErrDuplicateRequest)
		}
		audit, err := s.Audit(t.Context(), 1)
		if err != nil || audit.Stock != 5 || audit.Initial != 5 {
			t.Errorf("audit is %+v (%v), want the first 5", audit, err)
		}
		must.Do(t, s.CreateGoods(t.Context(), 3, 0, "none"))
		if rows, err := s.Orders(t.Context(), "none"); err != nil || len(rows) != 1 || rows["none"].GoodsID != 3 || rows["none"].Quantity != 0 {
			t.Errorf("of an item without units the ledger has %+v (%v), want its key", rows, err)
		}
		should.Fail(t, s.CreateGoods(t.Context(), 4, 0, "none"), stock.ErrDuplicateRequest)
		if audit, err := s.AuditInFull(t.Context(), 3); err != nil || !audit.Clean || audit.Initial != 0 {
			t.Errorf("audit of an item without units is %+v (%v)", audit, err)
		}
		should.Reject(s.Audit(t.Context(), 2))(t, stock.ErrUnknownGoods)
	})
}

func TestRequestIDsThatDifferInCaseAreTwo(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 5)
		for _, id := range []string{"key", "KEY"} {
			should.Fail(t, sell(t.Context(), s, 1, id), nil, "sell under …", id)
		}
		if err := sell(t.Context(), s, 1, "key"); !errors.Is(err, stock.ErrDuplicateRequest) { // by the key of the table alone
			t.Errorf("sell under key again: %v, want %v", err, stock.ErrDuplicateRequest)
		}
		wantOrders(t, s, 2)
	})
}

func TestMigrations(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := labtest.Open(t, d, "r")
		for step := range 2 {
			list, err := s.Migrations(t.Context())
			if err != nil || len(list) == 0 {
				t.Fatalf("%d migrations (%v)", len(list), err)
			}
			for _, m := range list {
				if m.AppliedAt.IsZero() {
					t.Errorf("round %d: %s is pending", step, m.File)
				}
			}
			for range list {
				must.Be(t, len(must.Get(s.MigrateDown(t.Context()))(t)), 1, "the migrations that were taken back")
			}
			should.Be(t, len(must.Get(s.MigrateDown(t.Context()))(t)), 0, "taken back of nothing")
			pending := must.Get(s.Migrations(t.Context()))(t)
			must.Be(t, len(pending), len(list), "the pending migrations")
			for i, m := range pending {
				if !m.AppliedAt.IsZero() || m.Version != list[i].Version || i > 0 && m.Version <= pending[i-1].Version {
					t.Errorf("round %d: %+v was taken back, and is number %d", step, m, i)
				}
			}
			must.Be(t, len(must.Get(s.MigrateUp(t.Context()))(t)), len(list), "the migrations that were applied again")
		}
	})
}

// A replica starts while another process changes the schema, and as a user that may not.
func TestTheSchemaIsSeenWhileItIsChanged(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		store := labtest.Open(t, d, "r")
		changing, err := backend.OpenSQL(backend.SQLOptions{
			Driver: d.Driver, DSN: d.DSN, Password: d.Password, MaxOpen: 1, LockWait: time.Second, ConnectTimeout: 5 * time.Second,
		})
		must.Do(t, err)
		defer changing.Close() //nolint:errcheck // the test is over
		unlock, err := changing.LockSchema(t.Context())
		must.Do(t, err)
		defer unlock() //nolint:errcheck // the test is over
		began := time.Now()
		list, err := store.Migrations(t.Context())
		if took := time.Since(began); err != nil || len(list) == 0 || list[0].AppliedAt.IsZero() || took > 10*time.Second {
			t.Errorf("after %s the migrations are %+v (%v)", took, list, err)
		}
	})
}

// Replicas that start together on a new database change its schema one after the
// other. The window in which they could meet is small: many databases are tried.
func TestManyReplicasMigrateAtOnce(t *testing.T) {
	const rounds, replicas = 12, 4
	for _, kind := range []string{servers.SQLite, servers.MariaDB, servers.MySQL} {
		t.Run(kind, func(t *testing.T) {
			for range rounds {
				migrateAtOnce(t, lab.Database(t, kind), replicas)
			}
		})
	}
}

// A migration that fails has applied nothing, and is applied once what was in its way is gone.
func TestAMigrationThatFailsAppliesNothing(t *testing.T) {
	d := lab.Database(t, servers.SQLite)
	s := must.Get(d.Open(t.Context(), "r", 2))(t)
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // the test is over
	must.Do(t, s.Exec(t.Context(), `CREATE TABLE tb_ledger_archive (mine INTEGER)`))
	if applied, err := s.MigrateUp(t.Context()); err == nil || len(applied) != 0 {
		t.Errorf("applied %v (%v), want a failure", applied, err)
	}
	must.Do(t, s.Exec(t.Context(), `DROP TABLE tb_ledger_archive`))
	should.Be(t, len(must.Get(s.MigrateUp(t.Context()))(t)), 1, "applied")
	create(t, s, 1, 5)
}

func migrateAtOnce(t *testing.T, d *servers.Database, replicas int) {
	t.Helper()
	var crowd sync.WaitGroup
	for range replicas {
		crowd.Go(func() {
			s, err := d.Open(t.Context(), "r", 2)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := s.MigrateUp(t.Context()); err != nil {
				t.Error(err)
			}
			should.Do(t, s.Close())
		})
	}
	crowd.Wait()
}

// A commit whose answer is lost may have happened or not: both look the same
// from here, and the same request id finds out.
func TestALostCommitIsUnknown(t *testing.T) {
	for name, delivered := range map[string]bool{"TheServerActed": true, "TheServerNeverHeard": false} {
		t.Run(name, func(t *testing.T) {
			lab.EachServer(t, func(t *testing.T, d *servers.Database) {
				through, cut := labtest.Through(t, d)
				s := labtest.Open(t, through, "r")
				create(t, s, 1, 5)
				labtest.Lose(cut, "COMMIT", delivered)
				err := sell(t.Context(), s, 1, "lost")
				should.Fail(t, err, stock.ErrUnknownOutcome, "a lost commit is")
				if b, ok := errors.AsType[*stock.BackendError](err); !ok || b.Backend != repo.MySQL {
					t.Errorf("%v does not name the backend", err)
				}
				err = sell(t.Context(), s, 1, "lost")
				if delivered && !errors.Is(err, stock.ErrDuplicateRequest) || !delivered && err != nil {
					t.Errorf("the same request id again: %v, with the commit delivered: %v", err, delivered)
				}
				audit, err := s.Audit(t.Context(), 1)
				if err != nil || !audit.Clean || audit.Orders != 1 {
					t.Errorf("audit is %+v (%v), want one clean sale", audit, err)
				}
			})
		})
	}
}

// What is lost before the commit has not happened, and is no unknown.
func TestALostStatementIsAFailureOfTheBackend(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		through, cut := labtest.Through(t, d)
		s := labtest.Open(t, through, "r")
		create(t, s, 1, 5)
		for _, statement := range []string{"START TRANSACTION", "INSERT INTO tb_stock_ledger", "UPDATE tb_goods_stock"} {
			labtest.Lose(cut, statement, true)
			err := sell(t.Context(), s, 1, "x")
			if !errors.Is(err, stock.ErrBackendUnavailable) || errors.Is(err, stock.ErrUnknownOutcome) {
				t.Errorf("lost at %s: %v, want %v", statement, err, stock.ErrBackendUnavailable)
			}
		}
		audit, err := s.Audit(t.Context(), 1)
		if err != nil || audit.Orders != 0 || !audit.Clean {
			t.Errorf("audit is %+v (%v), want no sale", audit, err)
		}
	})
}

func TestTheDatabaseGoneAndBack(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 5)
		must.Do(t, d.Kill(t.Context()))
		err := sell(t.Context(), s, 1, "x")
		if !errors.Is(err, stock.ErrBackendUnavailable) || errors.Is(err, stock.ErrInsufficientStock) {
			t.Errorf("the database is gone: %v, want %v", err, stock.ErrBackendUnavailable)
		}
		if b, ok := errors.AsType[*stock.BackendError](err); !ok || b.Backend != repo.MySQL {
			t.Errorf("%v does not name the backend", err)
		}
		must.Do(t, d.Restart(t.Context()))
		should.Do(t, sell(t.Context(), s, 1, "x"))
	})
}

// A wait for a row beyond the limit ends with busy, and not
// that the stock is out or the database down.
func TestARowLockedForTooLongIsBusy(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := onSale(t, d, 5)
		impatient := impatient(t, d)
		err := s.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, err := tx.GoodsForUpdate(t.Context(), 1); err != nil {
				return err
			}
			if err := sell(t.Context(), impatient, 1, "x"); !errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrBackendUnavailable) {
				t.Errorf("a locked row: %v, want %v", err, stock.ErrBusy)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// looks are statements outside a transaction, and a transaction.
func looks(s *repo.Store) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"a transaction": func(ctx context.Context) error { return s.InTx(ctx, func(*repo.Tx) error { return nil }) },
		"a row":         func(ctx context.Context) error { _, err := s.Goods(ctx, 1); return err },
		"a list":        func(ctx context.Context) error { _, err := s.Orders(ctx, "x"); return err },
		"a count":       func(ctx context.Context) error { _, err := s.Reservations(ctx); return err },
	}
}

func TestNoFreeConnectionIsBusy(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s, err := d.Open(t.Context(), "r", 1)
		must.Do(t, err)
		defer s.Close() //nolint:errcheck // the test is over
		err = s.InTx(t.Context(), func(*repo.Tx) error {
			for name, look := range looks(s) {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				if err := look(ctx); !errors.Is(err, stock.ErrBusy) || errors.Is(err, stock.ErrBackendUnavailable) {
					t.Errorf("no connection is free for %s: %v, want %v", name, err, stock.ErrBusy)
				}
				cancel()
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

func TestADatabaseThatDoesNotAnswerIsNotBusy(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		_, through, proxy := besideAProxy(t, d, 1)
		proxy.Freeze()
		defer proxy.Thaw()
		for name, look := range looks(through) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			if err := look(ctx); errors.Is(err, stock.ErrBusy) || !errors.Is(err, stock.ErrBackendUnavailable) {
				t.Errorf("%s is not answered: %v, want %v", name, err, stock.ErrBackendUnavailable)
			}
			cancel()
		}
	})
}

func TestWrongAddressAndWrongPasswordNameTheBackend(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		for name, o := range map[string]backend.SQLOptions{
			"password": {Driver: d.Driver, DSN: d.DSN, Password: "wrong"},
			"address":  {Driver: d.Driver, DSN: "stockd@tcp(127.0.0.1:1)/stockd"},
		} {
			o.MaxOpen, o.LockWait, o.ConnectTimeout = 1, time.Second, time.Second
			_, err := repo.Open(t.Context(), o, repo.Options{})
			if b, ok := errors.AsType[*stock.BackendError](err); !ok || b.Backend != repo.MySQL {
				t.Errorf("wrong %s: %v does not name the backend", name, err)
			}
			if err != nil && strings.Contains(err.Error(), d.Password) {
				t.Errorf("wrong %s: the error has the password", name)
			}
		}
	})
}
