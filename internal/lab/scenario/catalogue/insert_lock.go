package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func insertLock() scenario.Experiment {
	return scenario.Experiment{
		Number: 20, Name: "insert-lock", Title: "A lock that is a row: no expiry, no waiting, no second time",
		Claim:  "A lock that is taken by INSERT under a unique key stays taken when its holder dies, fails at once when it is taken, and locks out its own holder; a job that deletes old rows, a loop, and an owner in the row are the remedies.",
		Source: chapterOne + ", locks in MySQL; " + basicSearch + ", a lock by INSERT in MySQL",
		Fix:    "stocklab demo --strategies sql-insert-lock --replicas 3",
		Parts: []scenario.Part{
			deadInserter("no-reaper", "no contender gets the lock for four times its TTL", checker.Deadlocked(4*time.Second), "STOCKD_LAB_REAPER=false"),
			remedy(deadInserter("reaper", "the lock is free again one TTL after the crash", checker.Freed(ttl+slack))),
			twoInserters("single-insert", sourcelock.InsertOnce, "the second is refused at once, and is in no queue", checker.RefusedWithin(500*time.Millisecond)),
			remedy(twoInserters("loop", "sql-insert-lock", "the second has it when the first is done", checker.ExclusiveHolders())),
			sameOwner("no-owner", sourcelock.InsertLoop, "it waits for itself as long as we let it", checker.LockedItselfOut()),
			remedy(sameOwner("owner-and-depth", "sql-insert-lock", "it has the lock twice", checker.Reentered())),
		},
	}
}

// deadInserter has a replica die while it has the row.
func deadInserter(name, expect string, seen checker.Check, env ...string) scenario.Part {
	p := deadHolder("sql-insert-lock", expect, seen)
	p.Name, p.Stage = name, onDatabase(2, append(env, "STOCKD_LOCK_WAIT=1500ms")...)
	return p
}

// twoInserters are two who want the same row.
func twoInserters(name, kind, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: name, Stage: onDatabase(1),
		Does:   "one contender holds a name through " + kind + " for a second, and another asks for it meanwhile",
		Expect: expect,
		Steps:  []scenario.Step{step.AskForTaken(kind, time.Second, scenario.MySQL)},
		Check:  seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}

// sameOwner takes the row twice.
func sameOwner(name, kind, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: name, Stage: onDatabase(1),
		Does:   "one owner takes a name through " + kind + ", and again while it has it, for two seconds at most",
		Expect: expect,
		Steps:  []scenario.Step{step.TakeTwice(kind, 2*time.Second, scenario.MySQL)},
		Check:  seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
