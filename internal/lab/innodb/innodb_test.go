package innodb_test

import (
	"database/sql"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

func open(t *testing.T, d *servers.Database) *sql.DB {
	t.Helper()
	db, err := innodb.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestMatrix(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		db := open(t, d)
		for _, s := range []innodb.Statement{innodb.Found, innodb.Missing} {
			matrix, err := innodb.Probe(t.Context(), db, s)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range innodb.Combinations() {
				var l []string
				for _, n := range slices.Sorted(maps.Keys(matrix[c])) {
					if matrix[c][n] {
						l = append(l, n)
					}
				}
				t.Log(c, l)
				t.Log(c, c.Claims(s))
			}
		}
		for _, s := range []innodb.Scan{innodb.ScanDelete, innodb.ScanUpdate} {
			w, err := innodb.WaitsInPassing(t.Context(), db, s)
			t.Log(s, w, err)
		}
		for _, w := range []innodb.Way{{sql.LevelRepeatableRead, true}, {sql.LevelReadCommitted, true}, {sql.LevelRepeatableRead, false}} {
			i, err := innodb.InsertTwice(t.Context(), db, w, 20)
			t.Logf("%+v %+v %v", w, i, err)
		}
	})
}
