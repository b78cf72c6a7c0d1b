package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/stockd/stockd/cmd/internal/cmdtest"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

// documentedGrants are what docs/production.md has the user of a replica granted: in its
// database, and on the procedure.
func documentedGrants(t *testing.T) (rows, procedure string) {
	t.Helper()
	content, err := os.ReadFile("../../docs/production.md")
	if err != nil {
		t.Fatal(err)
	}
	onRows := regexp.MustCompile(`GRANT ([A-Z, ]+) ON shop\.\* TO shop@`).FindSubmatch(content)
	onProcedure := regexp.MustCompile(`GRANT (EXECUTE) ON PROCEDURE shop\.stockd_sell TO shop@`).FindSubmatch(content)
	if onRows == nil || onProcedure == nil {
		t.Fatal("docs/production.md grants nothing")
	}
	return string(onRows[1]), string(onProcedure[1])
}

// openAs connects to a database as the user of its DSN, or of another one.
func openAs(t *testing.T, d *servers.Database) (*sql.DB, *mysql.Config) {
	t.Helper()
	db, c := labtest.Connect(t, d)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db, c
}

// seller is the database for a user that has the documented rights and no other.
func seller(t *testing.T, d *servers.Database) *servers.Database {
	t.Helper()
	db, c := openAs(t, d)
	s := *d
	s.Password = rand.Text()
	rows, _ := documentedGrants(t)
	for _, statement := range []string{
		fmt.Sprintf("CREATE USER 'seller'@'127.0.0.1' IDENTIFIED BY '%s'", s.Password),
		fmt.Sprintf("GRANT %s ON %s.* TO 'seller'@'127.0.0.1'", rows, c.DBName),
	} {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	c.User = "seller"
	s.DSN = c.FormatDSN()
	return &s
}

// procedure needs a fifth right.
const procedure = "sql-procedure"

// Every strategy sells as the user that docs/production.md describes, and the admin API
// works; what changes the schema is denied.
func TestTheUserOfAReplicaNeedsFourRights(t *testing.T) {
	cmdtest.NeedLockServers(t)
	for _, kind := range []string{servers.MariaDB, servers.MySQL} {
		t.Run(kind, func(t *testing.T) {
			cmdtest.NeedDatabase(t, kind)
			r, all, own := startSeller(t, kind)
			list, err := r.Strategies(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for i, s := range list {
				if s.Name == procedure {
					continue
				}
				if !s.Available {
					t.Errorf("%s is not available: %s", s.Name, s.Note)
					continue
				}
				r.sellsThrough(t, int64(i+1), s.Name)
			}
			r.administers(t)
			deniesTheSchema(t, own)
			if strings.Contains(r.Log.Text(), "denied") {
				t.Error("the log tells of a right that is missing")
			}
			r.sellsByProcedureOnceGranted(t, all)
		})
	}
}

// startSeller starts a replica on a database whose schema another user has made.
func startSeller(t *testing.T, kind string) (r process, all, own *servers.Database) {
	t.Helper()
	backends, err := servers.StartBackends(t.Context(), labtest.StartSupervisor(t), servers.Choice{Mode: servers.Local, Database: kind, Volatile: true}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := backends.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	own = seller(t, backends.Database)
	findsNoSchema(t, own)
	labtest.Open(t, backends.Database, "migration")
	r = startReplicaWith(t, slices.Concat(backends.Env(), own.Env(), []string{"STOCKD_DATABASE_MIGRATE=false"}))
	return r, backends.Database, own
}

// findsNoSchema looks for the schema of a new database, as a user that may not make it.
func findsNoSchema(t *testing.T, own *servers.Database) {
	t.Helper()
	store, err := own.Open(t.Context(), "seller", 1)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // it has only read
	list, err := store.Migrations(t.Context())
	if err != nil || len(list) == 0 || !list[0].AppliedAt.IsZero() {
		t.Errorf("of a new database the seller finds the migrations %+v (%v)", list, err)
	}
}

// sellsByProcedureOnceGranted buys by the procedure without its right, and with it.
func (r process) sellsByProcedureOnceGranted(t *testing.T, all *servers.Database) {
	t.Helper()
	const before, after = 1001, 1002
	if err := r.CreateLimited(t.Context(), before, 100, 50); err != nil {
		t.Fatal(err)
	}
	request := cmdtest.Ask(t, http.MethodPost, fmt.Sprintf("%s/deduct?goods_id=%d&user_id=7&strategy=%s", r.URL, before, procedure))
	if got := cmdtest.Do(request); got.Status != http.StatusServiceUnavailable {
		t.Errorf("without its right %s is answered with %d %s", procedure, got.Status, got.Text)
	}
	db, c := openAs(t, all)
	_, right := documentedGrants(t)
	statement := fmt.Sprintf("GRANT %s ON PROCEDURE %s.stockd_sell TO 'seller'@'127.0.0.1'", right, c.DBName)
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
	r.sellsThrough(t, after, procedure)
}

// sellsThrough buys an item in each mode of a strategy.
func (r process) sellsThrough(t *testing.T, item int64, strategy string) {
	t.Helper()
	if err := r.CreateLimited(t.Context(), item, 100, 50); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"", "&group=true", "&fence=true"} {
		request := cmdtest.Ask(t, http.MethodPost, fmt.Sprintf("%s/deduct?goods_id=%d&user_id=7&strategy=%s%s", r.URL, item, strategy, mode))
		request.Header.Set("Idempotency-Key", rand.Text())
		got := cmdtest.Do(request)
		if unfit := mode != "" && got.Status == http.StatusBadRequest; got.Status != http.StatusOK && !unfit {
			t.Errorf("%s%s is answered with %d %s", strategy, mode, got.Status, got.Text)
		}
	}
	if _, err := r.Recall(t.Context(), item); err != nil {
		t.Errorf("%s: recall: %v", strategy, err)
	}
	if _, err := r.Audit(t.Context(), item); err != nil { // until the ledger has all
		t.Errorf("%s: the audit: %v", strategy, err)
	}
	if audit, err := r.AuditInFull(t.Context(), item); err != nil || !audit.Clean || audit.Orders == 0 {
		t.Errorf("%s: the full audit is %+v (%v)", strategy, audit, err)
	}
}

// administers does what only the admin does.
func (r process) administers(t *testing.T) {
	t.Helper()
	if err := errors.Join(r.Restock(t.Context(), 1, 5), r.SetLimit(t.Context(), 1, 60)); err != nil {
		t.Error(err)
	}
	for _, query := range []string{"enabled=false&reason=tested", "enabled=true"} {
		request := r.owners(t, http.MethodPut, "/strategies/sql-optimistic?"+query, cmdtest.Token)
		if got := cmdtest.Do(request); got.Status != http.StatusOK {
			t.Errorf("a switch is answered with %d %s", got.Status, got.Text)
		}
	}
}

// deniesTheSchema tries what a replica that was taken over would.
func deniesTheSchema(t *testing.T, own *servers.Database) {
	t.Helper()
	db, _ := openAs(t, own)
	for _, statement := range []string{
		"DROP TABLE tb_stock_ledger",
		"TRUNCATE TABLE tb_stock_ledger",
		"ALTER TABLE tb_goods_stock ADD COLUMN x INT",
		"CREATE TABLE x (id INT)",
		"CREATE VIEW x AS SELECT 1",
		"CREATE PROCEDURE x() SELECT 1",
		"DROP PROCEDURE stockd_sell",
		"GRANT SELECT ON stockd.* TO 'seller'@'127.0.0.1'",
		"CREATE USER 'other'@'127.0.0.1'",
		"SET GLOBAL max_connections = 10",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		if denied, ok := errors.AsType[*mysql.MySQLError](err); !ok || !slices.Contains([]uint16{1044, 1142, 1227, 1370}, denied.Number) {
			t.Errorf("%s: %v, want it denied", statement, err)
		}
	}
}
