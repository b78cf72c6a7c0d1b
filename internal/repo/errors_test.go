package repo_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"strconv"
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

// asks are the calls of a store that are of one item, and that are of none.
func asks(s *repo.Store, item int64) (ofItem, others map[string]func(ctx context.Context) error) {
	in := func(do func(ctx context.Context, tx *repo.Tx) error) func(context.Context) error {
		return func(ctx context.Context) error { return s.InTx(ctx, func(tx *repo.Tx) error { return do(ctx, tx) }) }
	}
	same := func(c stock.Choice) (stock.Choice, error) { return c, nil }
	const number = "018bcfe5-6800-7000-8000-000000000001"
	ofItem = map[string]func(ctx context.Context) error{
		"Goods":                func(ctx context.Context) error { _, err := s.Goods(ctx, item); return err },
		"InStock":              func(ctx context.Context) error { _, err := s.InStock(ctx, item); return err },
		"GoodsSettled":         func(ctx context.Context) error { _, err := s.GoodsSettled(ctx, item); return err },
		"GoodsWithBuckets":     func(ctx context.Context) error { _, err := s.GoodsWithBuckets(ctx, item); return err },
		"GoodsWithUnitRows":    func(ctx context.Context) error { _, err := s.GoodsWithUnitRows(ctx, item); return err },
		"Reach":                func(ctx context.Context) error { return errOf(s.Reach(ctx, item, "place")) },
		"Audit":                func(ctx context.Context) error { _, err := s.Audit(ctx, item); return err },
		"AuditInFull":          func(ctx context.Context) error { _, err := s.AuditInFull(ctx, item); return err },
		"Restock":              func(ctx context.Context) error { _, err := s.Restock(ctx, item, 1, "more"); return err },
		"SetLimit":             func(ctx context.Context) error { return s.SetLimit(ctx, item, 1) },
		"ClaimFence":           func(ctx context.Context) error { _, err := s.ClaimFence(ctx, item, 1); return err },
		"Fill":                 func(ctx context.Context) error { _, err := s.Fill(ctx, item, "place", 0); return err },
		"Refill":               func(ctx context.Context) error { _, err := s.Refill(ctx, item, "place", 0); return err },
		"ReturnUnits":          func(ctx context.Context) error { return errOf(s.ReturnUnits(ctx, item, "place", 1, 0)) },
		"FillPool":             func(ctx context.Context) error { return errOf(s.FillPool(ctx, item, 1)) },
		"RecallBuckets":        func(ctx context.Context) error { _, err := s.RecallBuckets(ctx, item); return err },
		"RecallUnitRows":       func(ctx context.Context) error { _, err := s.RecallUnitRows(ctx, item); return err },
		"ChangeChoice":         func(ctx context.Context) error { return s.ChangeChoice(ctx, item, same) },
		"Tx.Goods":             in(func(ctx context.Context, tx *repo.Tx) error { _, err := tx.Goods(ctx, item); return err }),
		"Tx.GoodsForUpdate":    in(func(ctx context.Context, tx *repo.Tx) error { _, err := tx.GoodsForUpdate(ctx, item); return err }),
		"Tx.GoodsWithUnitRows": in(func(ctx context.Context, tx *repo.Tx) error { _, err := tx.GoodsWithUnitRows(ctx, item); return err }),
		"Tx.Gather":            in(func(ctx context.Context, tx *repo.Tx) error { return errOf(tx.Gather(ctx, item)) }),
		"Tx.ConfirmLimit":      in(func(ctx context.Context, tx *repo.Tx) error { return tx.ConfirmLimit(ctx, item) }),
	}
	others = map[string]func(ctx context.Context) error{
		"Ping":            s.Ping,
		"InTx":            in(func(context.Context, *repo.Tx) error { return nil }),
		"InTxOnce":        func(ctx context.Context) error { return s.InTxOnce(ctx, func(*repo.Tx) error { return nil }) },
		"CreateGoods":     func(ctx context.Context) error { return s.CreateGoods(ctx, item, 1, "created") },
		"Existing":        func(ctx context.Context) error { _, err := s.Existing(ctx, item); return err },
		"AuditAll":        func(ctx context.Context) error { _, err := s.AuditAll(ctx); return err },
		"AuditUsers":      func(ctx context.Context) error { _, err := s.AuditUsers(ctx, item); return err },
		"Choices":         func(ctx context.Context) error { _, err := s.Choices(ctx); return err },
		"SwitchOff":       func(ctx context.Context) error { return s.SwitchOff(ctx, "s", "why") },
		"SwitchOn":        func(ctx context.Context) error { return s.SwitchOn(ctx, "s") },
		"SwitchedOff":     func(ctx context.Context) error { _, err := s.SwitchedOff(ctx); return err },
		"Fence":           func(ctx context.Context) error { _, err := s.Fence(ctx, item); return err },
		"CloseAllocation": func(ctx context.Context) error { _, err := s.CloseAllocation(ctx, item, "place"); return err },
		"Allocation":      func(ctx context.Context) error { _, err := s.Allocation(ctx, item, "place"); return err },
		"Allocations":     func(ctx context.Context) error { _, err := s.Allocations(ctx, "place"); return err },
		"Allocators":      func(ctx context.Context) error { _, err := s.Allocators(ctx, item); return err },
		"ItemsIn":         func(ctx context.Context) error { _, err := s.ItemsIn(ctx, "place"); return err },
		"LockedAllocations": func(ctx context.Context) error {
			_, err := s.LockedAllocations(ctx, "place", item)
			return err
		},
		"HasAllocations": func(ctx context.Context) error { _, err := s.HasAllocations(ctx, "place"); return err },
		"Keep": func(ctx context.Context) error {
			return s.Keep(ctx, "place", []repo.PendingOrder{{Order: stock.Order{ID: "n", Kind: stock.Deduction, GoodsID: item, Quantity: 1}}})
		},
		"Has": func(ctx context.Context) error {
			_, err := s.Has(ctx, item, 1, []stock.Purchase{{UserID: "u"}})
			return err
		},
		"UsersAfter":     func(ctx context.Context) error { _, err := s.UsersAfter(ctx, item, ""); return err },
		"Orders":         func(ctx context.Context) error { _, err := s.Orders(ctx, "r"); return err },
		"OrdersOfKey":    func(ctx context.Context) error { _, err := s.OrdersOfKey(ctx, "k", 1); return err },
		"Order":          func(ctx context.Context) error { return errOf(s.Order(ctx, "7")) },
		"OrdersAfter":    func(ctx context.Context) error { return errOf(s.OrdersAfter(ctx, 0, 0, 1)) },
		"Return":         func(ctx context.Context) error { _, err := s.GiveBack(ctx, "7", 1, "back", false); return err },
		"Reservation":    func(ctx context.Context) error { _, err := s.Reservation(ctx, number); return err },
		"Release":        func(ctx context.Context) error { return errOf(s.Release(ctx, number)) },
		"Extend":         func(ctx context.Context) error { _, err := s.Extend(ctx, number, time.Hour, time.Hour); return err },
		"Expire":         func(ctx context.Context) error { return errOf(s.Expire(ctx, 1)) },
		"Reservations":   func(ctx context.Context) error { _, err := s.Reservations(ctx); return err },
		"Confirm":        func(ctx context.Context) error { _, err := s.Confirm(ctx, &repo.Payment{Number: number}); return err },
		"ConfirmAll":     func(ctx context.Context) error { return errOf(s.ConfirmAll(ctx, []string{number})) },
		"ConfirmedLines": func(ctx context.Context) error { _, err := s.ConfirmedLines(ctx, number); return err },
		"Settle":         func(ctx context.Context) error { _, err := s.Settle(ctx); return err },
		"SettleAll":      s.SettleAll,
		"Unsettled":      func(ctx context.Context) error { _, err := s.Unsettled(ctx); return err },
		"MigrateUp":      func(ctx context.Context) error { _, err := s.MigrateUp(ctx); return err },
		"Migrations":     func(ctx context.Context) error { _, err := s.Migrations(ctx); return err },
		"MigrateDown":    func(ctx context.Context) error { _, err := s.MigrateDown(ctx); return err },
	}
	return ofItem, others
}

func TestAnUnknownItemIsUnknownToEveryCall(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r").As("me")
	create(t, s, 1, 10)
	ofItem, _ := asks(s, 404)
	for name, ask := range ofItem {
		if err := ask(t.Context()); !errors.Is(err, stock.ErrUnknownGoods) || errors.Is(err, stock.ErrBackendUnavailable) {
			t.Errorf("%s of an unknown item: %v, want %v", name, err, stock.ErrUnknownGoods)
		}
	}
}

// A call of a caller that has left fails with its cause, and one without a database names it: neither is
// answered as if nothing were there.
func TestEveryCallSaysThatItCouldNotAsk(t *testing.T) {
	s := labtest.Open(t, lab.Database(t, servers.SQLite), "r").As("me")
	create(t, s, 1, 10)
	left, leave := context.WithCancelCause(t.Context())
	why := errors.New("the client has left")
	leave(why)
	ofItem, others := asks(s, 1)
	for _, calls := range []map[string]func(context.Context) error{ofItem, others} {
		for name, ask := range calls {
			schema := name == "MigrateUp" || name == "MigrateDown" || name == "Migrations"
			if err := ask(left); !schema && (!errors.Is(err, why) || errors.Is(err, stock.ErrBackendUnavailable) || errors.Is(err, stock.ErrUnknownOutcome)) {
				t.Errorf("%s of a caller that has left: %v, want %v", name, err, why)
			}
		}
	}
	must.Do(t, s.Close())
	for _, calls := range []map[string]func(context.Context) error{ofItem, others} {
		for name, ask := range calls {
			err := ask(t.Context())
			if failed, ok := errors.AsType[*stock.BackendError](err); !ok || failed.Backend != repo.SQLite || errors.Is(err, stock.ErrUnknownOutcome) {
				t.Errorf("%s without a database: %v, want a failure of it", name, err)
			}
		}
	}
}

// A store that cannot be made closes the pool that it was to be made of.
func TestAStoreThatIsNotMadeClosesItsPool(t *testing.T) {
	pool := must.Get(backend.OpenSQL(backend.SQLOptions{
		Driver: repo.SQLite, DSN: filepath.Join(t.TempDir(), "s.db"), MaxOpen: 1, LockWait: time.Second, ConnectTimeout: time.Second,
	}))(t)
	left, leave := context.WithCancel(t.Context())
	leave()
	should.Reject(repo.New(left, pool, repo.Options{}))(t, context.Canceled, "made for a caller that has left")
	if err := pool.PingContext(t.Context()); err == nil || err.Error() != "sql: database is closed" {
		t.Errorf("the pool is not closed: %v", err)
	}
}

// buyer is a store of a replica with its own rights, on a database where item 1 is on sale; all may do everything.
func buyer(t *testing.T, d *servers.Database) (s *repo.Store, own *servers.Database, all *sql.DB) {
	t.Helper()
	create(t, labtest.Open(t, d, "r"), 1, 5)
	own = labtest.Restricted(t, d, labtest.ReplicaRights)
	all, _ = labtest.Connect(t, d)
	t.Cleanup(func() { all.Close() }) //nolint:errcheck // the test is over
	return unmigrated(t, own).As("me"), own, all
}

func do(t *testing.T, all *sql.DB, statement string) {
	t.Helper()
	if _, err := all.ExecContext(context.WithoutCancel(t.Context()), statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// wantsRejected requires an error that says why writes are rejected, after which nothing has happened.
func wantsRejected(t *testing.T, what string, err error, why stock.Rejection) {
	t.Helper()
	failed, ok := errors.AsType[*stock.BackendError](err)
	if !ok || failed.Rejects != why || errors.Is(err, stock.ErrUnknownOutcome) || errors.Is(err, stock.ErrBusy) {
		t.Errorf("%s: %v, want writes that are rejected, since %s", what, err, why)
	}
}

// A database that answers reads alone sells nothing, and is known for it.
func TestADatabaseThatRejectsWritesSaysWhy(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, own, all := buyer(t, d)
		_, dsn := labtest.Connect(t, own)
		from, to := " ON "+dsn.DBName+".* FROM '"+dsn.User+"'@'127.0.0.1'", " ON "+dsn.DBName+".* TO '"+dsn.User+"'@'127.0.0.1'"
		for state, c := range map[string]struct {
			enter, leave string
			why          stock.Rejection
		}{
			"read_only": {`SET GLOBAL read_only = 1`, `SET GLOBAL read_only = 0`, stock.ReadOnly},
			"no INSERT": {`REVOKE INSERT` + from, `GRANT INSERT` + to, stock.NotPermitted},
			"no UPDATE": {`REVOKE UPDATE` + from, `GRANT UPDATE` + to, stock.NotPermitted},
		} {
			t.Run(state, func(t *testing.T) {
				do(t, all, c.enter)
				t.Cleanup(func() { do(t, all, c.leave) })
				s := unmigrated(t, own).As("me") // a connection has the rights that it began with
				wantsRejected(t, "readiness", s.Writable(t.Context()), c.why)
				wantsRejected(t, "a sale", sell(t.Context(), s, 1, state), c.why)
				_, err := s.SellByProcedure(t.Context(), 1, []stock.Purchase{{RequestID: "p" + state, Quantity: 1}})
				wantsRejected(t, "the procedure", err, c.why)
			})
		}
		must.Do(t, s.Writable(t.Context()))
		must.Do(t, sell(t.Context(), s, 1, "after"))
		wantOrders(t, s, 1)
	})
}

// A server that becomes read-only in the midst of a transaction rolls it back: it was not sold.
func TestACommitThatIsRejectedIsDefinite(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s, _, all := buyer(t, d)
		t.Cleanup(func() { do(t, all, `SET GLOBAL read_only = 0`) })
		err := s.InTx(t.Context(), func(tx *repo.Tx) error {
			if _, _, err := tx.SubtractIfEnough(t.Context(), 1, 1); err != nil {
				return err
			}
			do(t, all, `SET GLOBAL read_only = 1`)
			return nil
		})
		wantsRejected(t, "the commit", err, stock.ReadOnly)
		should.Be(t, must.Get(s.Goods(t.Context(), 1))(t).Stock, 5, "units are left")
	})
}

// A disk that is full shows in the write that needs it; readiness knows of it for a moment, or until a commit.
func TestAFullDiskIsRemembered(t *testing.T) {
	s := open(t, lab.Database(t, servers.SQLite), backend.SQLOptions{MaxOpen: 1, LockWait: time.Second}, repo.Options{}).As("me")
	_, err := s.MigrateUp(t.Context())
	must.Do(t, err)
	create(t, s, 1, 1_000_000)
	must.Do(t, s.Exec(t.Context(), `PRAGMA max_page_count = 1`)) // it is raised to what there is
	for i := 0; err == nil && i < 1000; i++ {
		err = sell(t.Context(), s, 1, strconv.Itoa(i))
	}
	wantsRejected(t, "a sale", err, stock.OutOfSpace)
	wantsRejected(t, "readiness", s.Writable(t.Context()), stock.OutOfSpace)
	must.Do(t, s.Exec(t.Context(), `PRAGMA max_page_count = 100000`))
	must.Do(t, s.InTx(t.Context(), func(tx *repo.Tx) error { return errOf(tx.SubtractIfEnough(t.Context(), 1, 1)) }))
	must.Do(t, s.Writable(t.Context()))
	must.Do(t, s.Exec(t.Context(), `PRAGMA query_only = ON`))
	wantsRejected(t, "a sale", sell(t.Context(), s, 1, "more"), stock.ReadOnly)
	wantsRejected(t, "readiness", s.Writable(t.Context()), stock.ReadOnly)
}
