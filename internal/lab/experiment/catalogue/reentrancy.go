package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/check"
	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/step"
)

func reentrancy() experiment.Experiment {
	takenTwice := func(lock, expect string, seen check.Check) experiment.Part {
		return experiment.Part{
			Name:   lock,
			Does:   "one owner takes " + lock + ", and takes it again while it has it, for two seconds at most",
			Expect: expect,
			Stage:  experiment.Stage{Needs: []experiment.Need{experiment.Redis}},
			Steps:  []experiment.Step{step.TakeTwice(lock, 2*time.Second, experiment.Redis)},
			Check:  seen, Pictures: []experiment.Picture{experiment.Timeline},
		}
	}
	return experiment.Experiment{
		Number: 9, Name: "reentrancy", Title: "A lock that is not reentrant, taken twice, waits for itself",
		Claim:  "A method that holds the lock and calls another that wants it deadlocks itself; a hash with the owner and a count lets it in again.",
		Source: chapterOne + ", reentrancy; " + basicSearch + ", what a distributed lock needs",
		Fix:    "stockd lab run reentrancy  # redis-reentrant is",
		Parts: []experiment.Part{
			takenTwice("redis-setnx", "the second one is never granted", check.LockedItselfOut()),
			remedy(takenTwice("redis-reentrant", "the second one is granted at once", check.Reentered())),
		},
	}
}
