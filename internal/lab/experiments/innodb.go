package experiments

import (
	"database/sql"
	"slices"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/innodb"
)

func innodbLocks() []Part {
	return slices.Concat(byIndexAndIsolation(), deadlocks(), besideTheRow())
}

// probing are connections to the database for probes, until the end of the try.
func (x *Try) probing() *sql.DB {
	db, err := innodb.Open(x.Backends.Database)
	x.Must(err)
	x.Later(db.Close)
	return db
}

// byIndexAndIsolation is what one statement locks.
func byIndexAndIsolation() []Part {
	probe := func(statement innodb.Statement) func(x *Try) {
		return func(x *Try) {
			matrix, err := innodb.Probe(x, x.probing(), statement)
			x.Must(err)
			x.Figures(innodb.Figures(matrix))
		}
	}
	return []Part{{
		Name: "delete", Stage: on(MySQL),
		Do: probe(innodb.Found), Check: innodb.AsClaimed(innodb.Found), Pictures: []Picture{Rows},
	}, {
		Name: "missing", Stage: on(MySQL),
		Do: probe(innodb.Missing), Check: innodb.AsClaimed(innodb.Missing), Pictures: []Picture{Rows},
	}, {
		Name: "in-passing", Stage: on(MySQL),
		Do: func(x *Try) {
			db := x.probing()
			for name, scan := range map[string]innodb.Scan{innodb.DeleteWaits: innodb.ScanDelete, innodb.UpdateWaits: innodb.ScanUpdate} {
				does, err := innodb.WaitsInPassing(x, db, scan)
				if x.Must(err); does {
					x.Figure(name, 1)
				}
			}
		},
		Check: innodb.LocksInPassing(),
	}}
}

// deadlocks have two insert one row.
func deadlocks() []Part {
	const rounds = 20
	insert := func(way innodb.Way) func(x *Try) {
		return func(x *Try) { x.inserted(innodb.InsertTwice(x, x.probing(), way, rounds)) }
	}
	handOver := func(l innodb.Lock) func(x *Try) {
		return func(x *Try) { x.inserted(innodb.HandOver(x, x.probing(), l, rounds/2)) }
	}
	return []Part{{
		Name: "shared-gap", Stage: on(MySQL),
		Do: insert(innodb.Way{Level: sql.LevelRepeatableRead, Look: true}), Check: innodb.OneDeadlockEach(rounds),
	}, {
		Name: "read-committed", Remedy: true, Stage: on(MySQL),
		Do: insert(innodb.Way{Level: sql.LevelReadCommitted, Look: true}), Check: innodb.NoDeadlock(rounds),
	}, {
		Name: "insert-only", Remedy: true, Stage: on(MySQL),
		Do: insert(innodb.Way{Level: sql.LevelRepeatableRead}), Check: innodb.NoDeadlock(rounds),
	}, {
		Name: "insert-and-delete", Stage: on(MySQL),
		Do: handOver(innodb.InsertAndDelete()), Check: innodb.OneDeadlockEach(rounds / 2),
	}, {
		Name: "row-stays", Remedy: true, Stage: on(MySQL),
		Do: handOver(innodb.UpdateAndUpdate()), Check: innodb.NoDeadlock(rounds / 2),
	}}
}

// inserted writes down what became of two writers of one row.
func (x *Try) inserted(sum innodb.Insertions, err error) {
	if x.Must(err); sum.Answer != "" {
		x.Mark("database", sum.Answer)
	}
	x.Figures(map[string]float64{
		innodb.Inserted: float64(sum.Inserted), innodb.Duplicates: float64(sum.Duplicates), innodb.Deadlocks: float64(sum.Deadlocks),
	})
}

// besideTheRow is what a DELETE locks beside its row.
func besideTheRow() []Part {
	others := func(large bool) func(x *Try) {
		return func(x *Try) {
			locked, err := innodb.LocksOthers(x, x.probing(), large)
			x.Must(err)
			x.Figure(innodb.OthersLocked, float64(locked))
		}
	}
	gap := func(by innodb.Index) func(x *Try) {
		return func(x *Try) {
			locked, err := innodb.LocksGap(x, x.probing(), by, true)
			x.Must(err)
			x.Figure(innodb.GapLocked, oneIf(locked))
		}
	}
	return []Part{{
		Name: "small-table", Stage: on(MySQL),
		Do: others(false), Check: checker.AtLeast(innodb.OthersLocked, 2),
	}, {
		Name: "large-table", Remedy: true, Stage: on(MySQL),
		Do: others(true), Check: checker.AtMost(innodb.OthersLocked, 0),
	}, {
		Name: "deleted-row", Stage: on(MySQL),
		Do: gap(innodb.Unique), Check: checker.AtLeast(innodb.GapLocked, 1),
	}, {
		Name: "by-primary-key", Remedy: true, Stage: on(MySQL),
		Do: gap(innodb.Primary), Check: checker.AtMost(innodb.GapLocked, 0),
	}}
}
