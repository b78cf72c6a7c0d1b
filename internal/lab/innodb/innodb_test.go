package innodb_test

import (
	"database/sql"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

var lab *labtest.Lab

func TestMain(m *testing.M) { os.Exit(labtest.Main(m, &lab)) }

func open(t *testing.T, d *servers.Database) *sql.DB {
	t.Helper()
	db := must.Get(innodb.Open(d))(t)
	should.Close(t, db)
	return db
}

// found is what a probe finds.
func found[T any](t *testing.T, probe func(x *flow.Flow) T) (result T) {
	t.Helper()
	must.Do(t, flow.Do(t.Context(), func(x *flow.Flow) { result = probe(x) }))
	return result
}

// judged probes a server and has the source's claims judge what was found.
func judged(t *testing.T, d *servers.Database, s innodb.Statement) checker.Finding {
	t.Helper()
	db := open(t, d)
	figures := found(t, func(x *flow.Flow) map[string]float64 { return innodb.Probe(x, db, s) })
	return innodb.AsClaimed(s)(&history.History{Figures: figures})
}

func TestWhatADeleteLocksIsWhatTheSourceSays(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		f := judged(t, d, innodb.Found)
		if !f.Holds {
			t.Error(f.Says)
		}
		// The one difference that there is has to be reported, where it is.
		differs := f.Numbers["unique_rr_gaps_locked"] != 0
		if differs != strings.Contains(f.Says, "unique_rr: gap_5_10 is locked") {
			t.Errorf("%v gaps are locked in unique_rr, and the finding says: %s", f.Numbers["unique_rr_gaps_locked"], f.Says)
		}
		t.Log(f.Says)
	})
}

func TestWhatALookForAMissingRowLocksIsWhatTheSourceSays(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		if f := judged(t, d, innodb.Missing); !f.Holds || f.Numbers["combinations_as_claimed"] != 8 {
			t.Error(f.Says)
		}
	})
}

func TestADeleteThatScansWaitsForARowThatItDoesNotWant(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		db := open(t, d)
		for scan, want := range map[innodb.Scan]bool{innodb.ScanDelete: true, innodb.ScanUpdate: false} {
			should.Be(t, found(t, func(x *flow.Flow) bool { return innodb.WaitsInPassing(x, db, scan) }), want, scan, "waits")
		}
	})
}

func TestTwoWhoLockedOneGapDeadlock(t *testing.T) {
	const rounds = 10
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		db := open(t, d)
		for name, c := range map[string]struct {
			way  innodb.Way
			want innodb.Insertions
		}{
			"a locking look at REPEATABLE READ": {
				innodb.Way{Level: sql.LevelRepeatableRead, Look: true}, innodb.Insertions{Inserted: rounds, Deadlocks: rounds},
			},
			"a locking look at READ COMMITTED": {
				innodb.Way{Level: sql.LevelReadCommitted, Look: true}, innodb.Insertions{Inserted: rounds, Duplicates: rounds},
			},
			"no look": {
				innodb.Way{Level: sql.LevelRepeatableRead}, innodb.Insertions{Inserted: rounds, Duplicates: rounds},
			},
		} {
			got := found(t, func(x *flow.Flow) innodb.Insertions { return innodb.InsertTwice(x, db, c.way, rounds) })
			should.Be(t, strings.Contains(got.Answer, "1213"), got.Deadlocks > 0, name, "the server tells of a deadlock", got.Answer)
			got.Answer = ""
			should.Be(t, got, c.want, name)
		}
	})
}

func TestAProbeLeavesNothingBehind(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		db := open(t, d)
		must.Do(t, flow.Do(t.Context(), func(x *flow.Flow) { innodb.Probe(x, db, innodb.Found) }))
		var tables int
		if err := db.QueryRow(`SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE()`).Scan(&tables); err != nil || tables != 0 {
			t.Errorf("%d tables are left (%v)", tables, err)
		}
	})
}

// asClaimed are the figures of a server that does what the source says.
func asClaimed(s innodb.Statement) map[string]float64 {
	figures := make(map[string]float64)
	for _, c := range innodb.Combinations() {
		for _, p := range c.Index.Places() {
			figures[c.String()+"."+p.Name] = checker.OneIf(c.Claims(s, p))
		}
	}
	return figures
}

func TestADifferenceFromTheSourceIsFoundAndReported(t *testing.T) {
	claimed := asClaimed(innodb.Found)
	if f := innodb.AsClaimed(innodb.Found)(&history.History{Figures: claimed}); !f.Holds || f.Numbers["combinations_as_claimed"] != 8 {
		t.Fatalf("a server that does what the source says: %s", f.Says)
	}
	for figure, c := range map[string]struct {
		value float64
		holds bool
		says  string
	}{
		"primary_rc.row_10":   {0, false, "primary_rc: row_10 is free, though the source has it locked"},
		"plain_rr.gap_10_15":  {0, false, "plain_rr: gap_10_15 is free"},
		"plain_rr.entry_15":   {1, false, "plain_rr: entry_15 is locked, though the source has it free"},
		"none_rc.row_20":      {1, false, "none_rc: row_20 is locked"},
		"unique_rr.gap_10_15": {1, false, "unique_rr: gap_10_15 is locked"},
		"unique_rr.gap_5_10":  {1, true, "MariaDB 10.11 takes a next-key lock"},
		"none_rr.gap_5_10":    {-1, false, "none_rr: gap_5_10 was not tried"},
	} {
		figures := maps.Clone(claimed)
		if figures[figure] = c.value; c.value < 0 {
			delete(figures, figure)
		}
		f := innodb.AsClaimed(innodb.Found)(&history.History{Figures: figures})
		if f.Holds != c.holds || f.Numbers["combinations_as_claimed"] != 7 || !strings.Contains(f.Says, c.says) {
			t.Errorf("with %s at %v it holds: %t, %s", figure, c.value, f.Holds, f.Says)
		}
	}
}

// Two that wait to insert a row which a third deletes end in a deadlock; a row that stays, and
// is written, goes to one of them. Deletes alone wait for each other: the second and the third
// find no row.
func TestALockThatIsInsertedAndDeletedDeadlocks(t *testing.T) {
	const rounds = 3
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		db := open(t, d)
		for name, c := range map[string]struct {
			lock innodb.Lock
			want innodb.Insertions
		}{
			"inserted and deleted": {innodb.InsertAndDelete(), innodb.Insertions{Inserted: rounds, Deadlocks: rounds}},
			"written":              {innodb.UpdateAndUpdate(), innodb.Insertions{Inserted: rounds, Duplicates: rounds}},
			"deleted by all":       {innodb.DeleteAndDelete(), innodb.Insertions{Duplicates: 2 * rounds}},
		} {
			sum := found(t, func(x *flow.Flow) innodb.Insertions { return innodb.HandOver(x, db, c.lock, rounds) })
			should.Be(t, sum.Answer == "", sum.Deadlocks == 0, name, "the last has no answer", sum.Answer)
			sum.Answer = ""
			should.Be(t, sum, c.want, name)
		}
	})
}

func TestADeleteLocksOtherRowsWhereItsIndexIsPassedOver(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		db := open(t, d)
		for large, want := range map[bool]int{false: 2, true: 0} {
			got := found(t, func(x *flow.Flow) int { return innodb.LocksOthers(x, db, large) })
			should.Be(t, got, want, "rows that do not match and are locked, large", large)
		}
	})
}

// MariaDB locks the gap of a unique index that is not the primary key in any case, and neither
// server that of the primary key.
func TestADeletedRowIsLockedWithItsGap(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		db := open(t, d)
		mariadb := strings.Contains(t.Name(), servers.MariaDB)
		for by, want := range map[innodb.Index]map[bool]bool{
			innodb.Unique:  {true: true, false: mariadb},
			innodb.Primary: {true: false, false: false},
		} {
			for deleted, want := range want {
				got := found(t, func(x *flow.Flow) bool { return innodb.LocksGap(x, db, by, deleted) })
				should.Be(t, got, want, "the gap is locked by", by, "deleted", deleted)
			}
		}
	})
}

// No isolation of the two helps where the lock ends before the commit.
func TestALockThatEndsBeforeTheCommitLosesAnUpdate(t *testing.T) {
	lab.EachServer(t, func(t *testing.T, d *servers.Database) {
		db := open(t, d)
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			for commitFirst, want := range map[bool]int{false: 9, true: 8} {
				left := found(t, func(x *flow.Flow) int { return innodb.SellTwice(x, db, level, commitFirst) })
				should.Be(t, left, want, "left at", level, "committed first", commitFirst)
			}
		}
	})
}
