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
		return func(x *Try) { x.Figures(innodb.Probe(x.Flow, x.probing(), statement)) }
	}
	return []Part{
		newPart("delete", on(MySQL), innodb.AsClaimed(innodb.Found), probe(innodb.Found), Rows),
		newPart("missing", on(MySQL), innodb.AsClaimed(innodb.Missing), probe(innodb.Missing), Rows),
		newPart("in-passing", on(MySQL), innodb.LocksInPassing(), func(x *Try) {
			db := x.probing()
			for name, scan := range map[string]innodb.Scan{innodb.DeleteWaits: innodb.ScanDelete, innodb.UpdateWaits: innodb.ScanUpdate} {
				if innodb.WaitsInPassing(x.Flow, db, scan) {
					x.Figure(name, 1)
				}
			}
		}),
	}
}

// deadlocks have two insert one row.
func deadlocks() []Part {
	const rounds = 20
	insert := func(way innodb.Way) func(x *Try) {
		return func(x *Try) { x.inserted(innodb.InsertTwice(x.Flow, x.probing(), way, rounds)) }
	}
	handOver := func(l innodb.Lock) func(x *Try) {
		return func(x *Try) { x.inserted(innodb.HandOver(x.Flow, x.probing(), l, rounds/2)) }
	}
	return []Part{
		newPart("shared-gap", on(MySQL), innodb.OneDeadlockEach(rounds), insert(innodb.Way{Level: sql.LevelRepeatableRead, Look: true})),
		asRemedy(newPart("read-committed", on(MySQL), innodb.NoDeadlock(rounds), insert(innodb.Way{Level: sql.LevelReadCommitted, Look: true}))),
		asRemedy(newPart("insert-only", on(MySQL), innodb.NoDeadlock(rounds), insert(innodb.Way{Level: sql.LevelRepeatableRead}))),
		newPart("insert-and-delete", on(MySQL), innodb.OneDeadlockEach(rounds/2), handOver(innodb.InsertAndDelete())),
		asRemedy(newPart("row-stays", on(MySQL), innodb.NoDeadlock(rounds/2), handOver(innodb.UpdateAndUpdate()))),
	}
}

// inserted writes down what became of two writers of one row.
func (x *Try) inserted(sum innodb.Insertions) {
	if sum.Answer != "" {
		x.Mark("database", sum.Answer)
	}
	x.Figures(map[string]float64{
		innodb.Inserted: float64(sum.Inserted), innodb.Duplicates: float64(sum.Duplicates), innodb.Deadlocks: float64(sum.Deadlocks),
	})
}

// besideTheRow is what a DELETE locks beside its row.
func besideTheRow() []Part {
	others := func(large bool) func(x *Try) {
		return func(x *Try) { x.Figure(innodb.OthersLocked, float64(innodb.LocksOthers(x.Flow, x.probing(), large))) }
	}
	gap := func(by innodb.Index) func(x *Try) {
		return func(x *Try) {
			x.Figure(innodb.GapLocked, checker.OneIf(innodb.LocksGap(x.Flow, x.probing(), by, true)))
		}
	}
	return []Part{
		newPart("small-table", on(MySQL), checker.AtLeast(innodb.OthersLocked, 2), others(false)),
		asRemedy(newPart("large-table", on(MySQL), checker.AtMost(innodb.OthersLocked, 0), others(true))),
		newPart("deleted-row", on(MySQL), checker.AtLeast(innodb.GapLocked, 1), gap(innodb.Unique)),
		asRemedy(newPart("by-primary-key", on(MySQL), checker.AtMost(innodb.GapLocked, 0), gap(innodb.Primary))),
	}
}
