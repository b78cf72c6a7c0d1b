package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/check"
	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/step"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func splitVote() experiment.Experiment {
	voted := func(lock, does, expect string, seen check.Check) experiment.Part {
		return experiment.Part{
			Name: lock, Stage: experiment.Stage{Needs: []experiment.Need{experiment.Redlock}},
			Does:   "three contenders begin together, near to two, two and one of five masters, and 120 ms each way from the others; " + does,
			Expect: expect, Steps: []experiment.Step{step.SplitVote(lock, 4*time.Second)},
			Check: seen, Tries: 5, Pictures: []experiment.Picture{experiment.Bars},
		}
	}
	return experiment.Experiment{
		Number: 16, Name: "split-vote", Title: "Redlock: contenders split the vote again and again; a random delay ends it",
		Claim:  "Contenders that ask at the same time get less than half each, give back, and do the same again after the same pause, so that nobody gets the lock; a random delay is the remedy.",
		Source: chapterOne + ", Redlock: split votes",
		Fix:    "stockd demo --strategies redlock --replicas 3",
		Parts: []experiment.Part{
			voted(sourcelock.InStep, "who fails tries again after 100 ms", "for four seconds nobody is granted the lock", check.AtLeast("first_grant_ms", 4000)),
			remedy(voted("redlock", "who fails tries again after a pause that differs from time to time", "one is granted it soon", check.AtMost("first_grant_ms", 3000))),
		},
	}
}
