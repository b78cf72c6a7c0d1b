package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func splitVote() scenario.Experiment {
	voted := func(lock, does, expect string, seen checker.Check) scenario.Part {
		return scenario.Part{
			Name: lock, Stage: scenario.Stage{Needs: []scenario.Need{scenario.Redlock}},
			Does:   "three contenders begin together, near to two, two and one of five masters, and 120 ms each way from the others; " + does,
			Expect: expect, Steps: []scenario.Step{step.SplitVote(lock, 4*time.Second)},
			Check: seen, Tries: 5, Pictures: []scenario.Picture{scenario.Bars},
		}
	}
	return scenario.Experiment{
		Number: 16, Name: "split-vote", Title: "Redlock: contenders split the vote again and again; a random delay ends it",
		Claim:  "Contenders that ask at the same time get less than half each, give back, and do the same again after the same pause, so that none gets the lock; a random delay is the remedy.",
		Source: chapterOne + ", Redlock: split votes",
		Fix:    "stocklab demo --strategies redlock --replicas 3",
		Parts: []scenario.Part{
			voted(sourcelock.InStep, "a contender that fails tries again after 100 ms", "for four seconds no contender is granted the lock", checker.AtLeast("first_grant_ms", 4000)),
			remedy(voted("redlock", "a contender that fails tries again after a random pause", "one is granted it soon", checker.AtMost("first_grant_ms", 3000))),
		},
	}
}
