package experiments

import (
	"database/sql"
	"slices"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/innodb"
)

func innodbLocks() Experiment {
	return Experiment{
		Number: 22, Name: "innodb-locks", Title: "What one statement locks, by index and isolation, and how two waiters deadlock",
		Claim:  "What DELETE … WHERE id = 10 locks goes from one row to the whole table with the index on id, with the isolation, with the size of the table, and with a row that is deleted already; two who look for a missing row FOR UPDATE, or who wait for one that is deleted, deadlock when both insert it.",
		Source: basicSearch + ", locks in MySQL",
		Parts:  slices.Concat(byIndexAndIsolation(), deadlocks(), besideTheRow()),
	}
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
		Does:   "in eight combinations of index and isolation a DELETE stays open while other connections try every row and every gap",
		Expect: "locked is what the source says, from one row to all rows and gaps",
		Do:     probe(innodb.Found), Check: innodb.AsClaimed(innodb.Found), Pictures: []Picture{Rows},
	}, {
		Name: "missing", Stage: on(MySQL),
		Does:   "the same with SELECT … FOR UPDATE of a row that is not there",
		Expect: "nothing is locked at READ COMMITTED, and the gap around it, or without an index everything, at REPEATABLE READ",
		Do:     probe(innodb.Missing), Check: innodb.AsClaimed(innodb.Missing), Pictures: []Picture{Rows},
	}, {
		Name: "in-passing", Stage: on(MySQL),
		Does:   "without an index, at READ COMMITTED, a DELETE comes to a locked row that it does not want",
		Expect: "it waits for that row, although it would let go of it at once",
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
		Does:   "at REPEATABLE READ two transactions look for a missing row FOR UPDATE, then both insert it, 20 times",
		Expect: "the server ends a deadlock each time",
		Do:     insert(innodb.Way{Level: sql.LevelRepeatableRead, Look: true}), Check: innodb.OneDeadlockEach(rounds),
	}, {
		Name: "read-committed", Remedy: true, Stage: on(MySQL),
		Does:   "the same at READ COMMITTED, which locks no gap",
		Expect: "one inserts, the other gets a duplicate key error, and there is no deadlock",
		Do:     insert(innodb.Way{Level: sql.LevelReadCommitted, Look: true}), Check: innodb.NoDeadlock(rounds),
	}, {
		Name: "insert-only", Remedy: true, Stage: on(MySQL),
		Does:   "at REPEATABLE READ, but they insert without a look before and leave it to the unique key",
		Expect: "one inserts, the other gets a duplicate key error, and there is no deadlock",
		Do:     insert(innodb.Way{Level: sql.LevelRepeatableRead}), Check: innodb.NoDeadlock(rounds),
	}, {
		Name: "insert-and-delete", Stage: on(MySQL),
		Does:   "a row under a unique key is a lock; two wait to insert it while its holder has deleted it and not committed, ten times",
		Expect: "at the commit both get a shared lock of the deleted row, and the server ends a deadlock each time",
		Do:     handOver(innodb.InsertAndDelete()), Check: innodb.OneDeadlockEach(rounds / 2),
	}, {
		Name: "row-stays", Remedy: true, Stage: on(MySQL),
		Does:   "the same, but the row stays, and an UPDATE takes it and gives it back",
		Expect: "one gets it, the other finds it taken, and there is no deadlock",
		Do:     handOver(innodb.UpdateAndUpdate()), Check: innodb.NoDeadlock(rounds / 2),
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
		Does:   "at REPEATABLE READ a DELETE by an index finds 40 of 42 rows, and other connections try the two that it does not want",
		Expect: "the optimizer passes the index over and reads all: both are locked",
		Do:     others(false), Check: checker.AtLeast(innodb.OthersLocked, 2),
	}, {
		Name: "large-table", Remedy: true, Stage: on(MySQL),
		Does:   "the same with 1,000 more rows of another number",
		Expect: "the index is used, and both are free",
		Do:     others(true), Check: checker.AtMost(innodb.OthersLocked, 0),
	}, {
		Name: "deleted-row", Stage: on(MySQL),
		Does:   "at REPEATABLE READ a DELETE by a unique index finds its row deleted, and still in the index, because a third may read it",
		Expect: "it locks the gap below as well: another connection cannot insert there",
		Do:     gap(innodb.Unique), Check: checker.AtLeast(innodb.GapLocked, 1),
	}, {
		Name: "by-primary-key", Remedy: true, Stage: on(MySQL),
		Does:   "the same by the primary key",
		Expect: "it locks the row alone",
		Do:     gap(innodb.Primary), Check: checker.AtMost(innodb.GapLocked, 0),
	}}
}
