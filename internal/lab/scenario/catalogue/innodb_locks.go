package catalogue

import (
	"database/sql"

	"github.com/stockd/stockd/internal/lab/innodb"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func innodbLocks() scenario.Experiment {
	database := scenario.Stage{Needs: []scenario.Need{scenario.MySQL}}
	const rounds = 20
	insert := func(way innodb.Way) []scenario.Step { return []scenario.Step{step.InsertTwice(way, rounds)} }
	return scenario.Experiment{
		Number: 22, Name: "innodb-locks", Title: "What one statement locks, by index and isolation, and the deadlock on a shared gap",
		Claim:  "What DELETE … WHERE id = 10 locks goes from one row to the whole table with the index on id and the isolation; and two who look for a missing row FOR UPDATE share its gap, so that their inserts deadlock.",
		Source: basicSearch + ", locks in MySQL",
		Parts: []scenario.Part{{
			Name: "delete", Stage: database,
			Does:   "in eight combinations of index and isolation a DELETE stays open while other connections try every row and every gap",
			Expect: "locked is what the source says, from one row to all rows and gaps",
			Steps:  []scenario.Step{step.ProbeLocks(innodb.Found)}, Check: innodb.AsClaimed(innodb.Found),
			Pictures: []scenario.Picture{scenario.Bars},
		}, {
			Name: "missing", Stage: database,
			Does:   "the same with SELECT … FOR UPDATE of a row that is not there",
			Expect: "nothing is locked at READ COMMITTED, and the gap around it, or without an index everything, at REPEATABLE READ",
			Steps:  []scenario.Step{step.ProbeLocks(innodb.Missing)}, Check: innodb.AsClaimed(innodb.Missing),
			Pictures: []scenario.Picture{scenario.Bars},
		}, {
			Name: "in-passing", Stage: database,
			Does:   "without an index, at READ COMMITTED, a DELETE comes to a locked row that it does not want",
			Expect: "it waits for that row, although it would let go of it at once",
			Steps:  []scenario.Step{step.PassALockedRow()}, Check: innodb.LocksInPassing(),
		}, {
			Name: "shared-gap", Stage: database,
			Does:   "at REPEATABLE READ two transactions look for a missing row FOR UPDATE, then both insert it, 20 times",
			Expect: "the server ends a deadlock each time",
			Steps:  insert(innodb.Way{Level: sql.LevelRepeatableRead, Look: true}), Check: innodb.OneDeadlockEach(rounds),
		}, {
			Name: "read-committed", Remedy: true, Stage: database,
			Does:   "the same at READ COMMITTED, which locks no gap",
			Expect: "one inserts, the other gets a duplicate key error, and there is no deadlock",
			Steps:  insert(innodb.Way{Level: sql.LevelReadCommitted, Look: true}), Check: innodb.NoDeadlock(rounds),
		}, {
			Name: "insert-only", Remedy: true, Stage: database,
			Does:   "at REPEATABLE READ, but they insert without a look before and leave it to the unique key",
			Expect: "one inserts, the other gets a duplicate key error, and there is no deadlock",
			Steps:  insert(innodb.Way{Level: sql.LevelRepeatableRead}), Check: innodb.NoDeadlock(rounds),
		}},
	}
}
