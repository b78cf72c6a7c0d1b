package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func reentrancy() scenario.Experiment {
	takenTwice := func(lock, expect string, seen checker.Check) scenario.Part {
		return scenario.Part{
			Name:   lock,
			Does:   "one owner takes " + lock + ", and takes it again while it has it, for two seconds at most",
			Expect: expect,
			Stage:  scenario.Stage{Needs: []scenario.Need{scenario.Redis}},
			Steps:  []scenario.Step{step.TakeTwice(lock, 2*time.Second, scenario.Redis)},
			Check:  seen, Pictures: []scenario.Picture{scenario.Timeline},
		}
	}
	return scenario.Experiment{
		Number: 9, Name: "reentrancy", Title: "A lock that is not reentrant, taken twice, waits for itself",
		Claim:  "A method that holds the lock and calls another that wants it deadlocks itself; a hash with the owner and a count lets it in again.",
		Source: chapterOne + ", reentrancy; " + basicSearch + ", what a distributed lock needs",
		Fix:    "stocklab lab run reentrancy  # redis-reentrant is",
		Parts: []scenario.Part{
			takenTwice("redis-setnx", "the second one is never granted", checker.LockedItselfOut()),
			remedy(takenTwice("redis-reentrant", "the second one is granted at once", checker.Reentered())),
		},
	}
}
