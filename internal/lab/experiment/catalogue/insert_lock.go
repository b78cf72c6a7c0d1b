package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/check"
	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/step"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func insertLock() experiment.Experiment {
	return experiment.Experiment{
		Number: 20, Name: "insert-lock", Title: "A lock that is a row: no expiry, no waiting, no second time",
		Claim:  "A lock that is taken by INSERT under a unique key stays taken when its holder dies, fails at once when it is taken, and locks out its own holder; a job that deletes old rows, a loop, and an owner in the row are the remedies.",
		Source: chapterOne + ", locks in MySQL; " + basicSearch + ", a lock by INSERT in MySQL",
		Fix:    "stockd demo --strategies sql-insert-lock --replicas 3",
		Parts: []experiment.Part{
			deadInserter("no-reaper", "nobody gets the lock as long as we look, four times its TTL", check.Deadlocked(4*time.Second), "STOCKD_LAB_REAPER=false"),
			remedy(deadInserter("reaper", "the lock is free again one TTL after the crash", check.Freed(ttl+slack))),
			twoInserters("single-insert", sourcelock.InsertOnce, "the second is refused at once, and is in no queue", check.RefusedWithin(500*time.Millisecond)),
			remedy(twoInserters("loop", "sql-insert-lock", "the second has it when the first is done", check.ExclusiveHolders())),
			sameOwner("no-owner", sourcelock.InsertLoop, "it waits for itself as long as we let it", check.LockedItselfOut()),
			remedy(sameOwner("owner-and-depth", "sql-insert-lock", "it has the lock twice", check.Reentered())),
		},
	}
}

// deadInserter has a replica die while it has the row.
func deadInserter(name, expect string, seen check.Check, env ...string) experiment.Part {
	p := deadHolder("sql-insert-lock", expect, seen)
	p.Name, p.Stage = name, onDatabase(2, append(env, "STOCKD_LOCK_WAIT=1500ms")...)
	return p
}

// twoInserters are two who want the same row.
func twoInserters(name, kind, expect string, seen check.Check) experiment.Part {
	return experiment.Part{
		Name: name, Stage: onDatabase(1),
		Does:   "somebody takes a name through " + kind + " and has it for a second, and somebody else asks for it meanwhile",
		Expect: expect,
		Steps:  []experiment.Step{step.AskForTaken(kind, time.Second, experiment.MySQL)},
		Check:  seen, Pictures: []experiment.Picture{experiment.Timeline},
	}
}

// sameOwner takes the row twice.
func sameOwner(name, kind, expect string, seen check.Check) experiment.Part {
	return experiment.Part{
		Name: name, Stage: onDatabase(1),
		Does:   "one owner takes a name through " + kind + ", and again while it has it, for two seconds at most",
		Expect: expect,
		Steps:  []experiment.Step{step.TakeTwice(kind, 2*time.Second, experiment.MySQL)},
		Check:  seen, Pictures: []experiment.Picture{experiment.Timeline},
	}
}
