package repo_test

import (
	"context"
	"database/sql"
	"errors"
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
