package repo_test

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/should"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/migrations"
)

// goose makes its table in one step and fills it in another.
const tableOfVersions = `CREATE TABLE goose_db_version (id BIGINT PRIMARY KEY, version_id BIGINT NOT NULL, is_applied BOOLEAN NOT NULL,
	tstamp DATETIME NULL DEFAULT CURRENT_TIMESTAMP)`

// unmigrated is a store on a database without a schema.
func unmigrated(t *testing.T, d *servers.Database) *repo.Store {
	t.Helper()
	s := must.Get(d.Open(t.Context(), "r", 2))(t)
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // the test is over
	return s
}

// A process that ended between the two has left an empty table, which is as good as none.
func TestAnEmptyTableOfVersionsIsNone(t *testing.T) {
	lab.EachDatabase(t, func(t *testing.T, d *servers.Database) {
		s := unmigrated(t, d)
		must.Do(t, s.Exec(t.Context(), strings.ReplaceAll(tableOfVersions, "BIGINT PRIMARY KEY", map[string]string{
			repo.MySQL: "BIGINT AUTO_INCREMENT PRIMARY KEY", repo.SQLite: "INTEGER PRIMARY KEY AUTOINCREMENT",
		}[d.Driver])))
		should.Be(t, len(must.Get(s.MigrateDown(t.Context()))(t)), 0, "taken back of nothing")
		must.Do(t, s.Exec(t.Context(), `DELETE FROM goose_db_version`))
		should.Be(t, len(must.Get(s.MigrateUp(t.Context()))(t)), 1, "applied")
		if list, err := s.Migrations(t.Context()); err != nil || len(list) != 1 || list[0].AppliedAt.IsZero() {
			t.Errorf("the migrations are %v (%v)", list, err)
		}
	})
}

// MySQL commits each statement of a migration by itself: wherever the process ends, the next one goes on.
func TestAMigrationThatWasCutOffIsApplied(t *testing.T) {
	up, down := statements(t)
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := unmigrated(t, d)
		for _, done := range [][]string{up[:1], up[:9], up[:len(up)-1], up, down[:1], down[:5], down} {
			for _, statement := range done {
				if err := s.Exec(t.Context(), statement); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			if _, err := s.MigrateUp(t.Context()); err != nil {
				t.Fatalf("after %d statements, the last of them %.40s…: %v", len(done), done[len(done)-1], err)
			}
			must.Be(t, len(must.Get(s.MigrateDown(t.Context()))(t)), 1, "the migrations that were taken back")
		}
	})
}

// statements are those of the first migration, forth and back.
func statements(t *testing.T) (up, down []string) {
	t.Helper()
	content := must.Get(fs.ReadFile(migrations.Files, "mysql/00001_schema.sql"))(t)
	forth, back, _ := strings.Cut(string(content), "-- +goose Down")
	rows, procedure, _ := strings.Cut(forth, "-- +goose StatementBegin")
	procedure, _, _ = strings.Cut(procedure, "-- +goose StatementEnd")
	split := func(text string) (list []string) {
		for _, statement := range strings.SplitAfter(regexp.MustCompile(`(?m)^--.*$`).ReplaceAllString(text, ""), ";\n") {
			if statement = strings.TrimSpace(statement); statement != "" {
				list = append(list, statement)
			}
		}
		return list
	}
	return append(split(rows), procedure), split(back)
}

// A table that was here before is not taken for ours.
func TestATableOfAnotherIsNotTaken(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		s := unmigrated(t, d)
		must.Do(t, s.Exec(t.Context(), `CREATE TABLE tb_goods_stock (id BIGINT PRIMARY KEY, goods_id BIGINT, stock INT)`))
		if list, err := s.MigrateUp(t.Context()); err == nil || len(list) != 0 {
			t.Errorf("applied %v (%v), want a failure", list, err)
		}
	})
}

// What changes the schema says why it could not, and not what came of that; what lists it does not take what it
// may not read for pending.
func TestAMigrationThatIsRejectedSaysWhy(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		all := labtest.Open(t, d, "r")
		for name, c := range map[string]struct {
			rights   string
			readOnly int
			says     string
			why      stock.Rejection
			status   bool // may be read
		}{
			"no INSERT":       {"CREATE, SELECT ON %s.*", 0, "command denied", stock.NotPermitted, true},
			"no CREATE":       {"SELECT, INSERT ON %s.*", 0, "command denied", stock.NotPermitted, true},
			"no right at all": {"SELECT, INSERT ON %s.tb_goods_stock", 0, "command denied", stock.NotPermitted, false},
			"read_only":       {"ALL ON %s.*", 1, "--read-only option", stock.ReadOnly, true},
		} {
			t.Run(name, func(t *testing.T) {
				own := labtest.Restricted(t, d, c.rights)
				must.Do(t, all.Exec(t.Context(), `DROP TABLE IF EXISTS goose_db_version`))
				must.Do(t, all.Exec(t.Context(), fmt.Sprintf(`SET GLOBAL read_only = %d`, c.readOnly)))
				defer all.Exec(t.Context(), `SET GLOBAL read_only = 0`) //nolint:errcheck // the server ends with the tests
				s := unmigrated(t, own)
				_, err := s.MigrateUp(t.Context())
				failed, ok := errors.AsType[*stock.BackendError](err)
				if !ok || failed.Rejects != c.why || !strings.Contains(err.Error(), c.says) {
					t.Errorf("migrate up: %v, want %q", err, c.says)
				}
				if _, err := s.Migrations(t.Context()); (err == nil) != c.status {
					t.Errorf("migrate status: %v", err)
				}
			})
		}
		must.Do(t, all.Exec(t.Context(), `DROP TABLE IF EXISTS goose_db_version`)) // as one of the users may have made it
		must.Do(t, all.Exec(t.Context(), `CREATE VIEW goose_db_version AS SELECT 1 AS other`))
		if list, err := all.Migrations(t.Context()); err == nil {
			t.Errorf("of a broken table the migrations are %v", list)
		}
	})
}

// A sale on a table without transactions cannot be taken back.
func TestATableOfAnotherEngineIsRejectedByName(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		labtest.Open(t, d, "owner")
		db, _ := labtest.Connect(t, d)
		defer db.Close() //nolint:errcheck // the test is over
		must.Get(db.ExecContext(t.Context(), `ALTER TABLE tb_goods_stock ENGINE = MyISAM`))(t)
		_, err := d.Open(t.Context(), "replica", 1)
		if err == nil || !strings.Contains(err.Error(), "tb_goods_stock has the engine MyISAM") {
			t.Errorf("it opens with %v", err)
		}
	})
}
