package catalogue

import (
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/check"
	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/step"
	"github.com/stockd/stockd/internal/lock"
)

func threeReplicas() experiment.Experiment {
	e := experiment.Experiment{
		Number: 5, Name: "three-replicas", Title: "Behind a balancer each replica has a mutex of its own; a lock outside of them is one for all",
		Claim:  "Three services behind nginx have three locks, which is as good as none; a lock in a system that all of them share is the remedy.",
		Source: chapterOne + ", a cluster behind nginx; " + twoWays + ", the introduction",
		Fix:    "stockd demo --strategies mutex,redis-reentrant --replicas 3",
		Parts: []experiment.Part{{
			Name: "mutex", Stage: shared(),
			Does:   "50 clients buy 2,000 times from 2,000 units through mutex, behind the balancer of three replicas",
			Expect: "updates are lost",
			Steps:  []experiment.Step{step.Stock(2000), step.Sell(step.Sale{Strategy: "mutex", Clients: 50, Requests: 2000}), step.Audit()},
			Check:  check.LostUpdates(), Tries: 3, Pictures: []experiment.Picture{experiment.Timeline},
		}},
	}
	for _, l := range lock.Registry() {
		if l.Claims.Exclusive {
			e.Parts = append(e.Parts, sharedBy(l))
		}
	}
	return e
}

// sharedBy is the part of one lock that all replicas share.
func sharedBy(l lock.Entry) experiment.Part {
	p := experiment.Part{
		Name: l.Name, Remedy: true, Stage: shared(needsOf(l)...),
		Does:   "24 clients buy 150 times from 100 units through " + l.Name + ", behind the same balancer, for four seconds at most",
		Expect: "exactly 100 are sold, one holder at a time",
		Steps: []experiment.Step{
			step.Stock(100), step.Sell(step.Sale{Strategy: l.Name, Clients: 24, Requests: 150, Duration: 4 * time.Second}), step.Audit(),
		},
		Check: check.All(check.Clean(), check.SoldOut(100), check.ExclusiveHolders()), Pictures: []experiment.Picture{experiment.Timeline},
	}
	if !l.Claims.ReleasesOnlyItsOwn { // experiments 6, 7 and 12 show how these stall
		p.Expect = "what is sold is sold once, one holder at a time; that it gets done is not asked"
		p.Check = check.All(check.Clean(), check.ExclusiveHolders())
	}
	return p
}

func shared(needs ...experiment.Need) experiment.Stage {
	return experiment.Stage{Needs: needs, Replicas: 3, Lab: true, Env: []string{"STOCKD_LOCK_RETRY=5ms", "STOCKD_LOCK_TTL=3s"}}
}

// needsOf are the backends of a lock.
func needsOf(l lock.Entry) []experiment.Need {
	needs := make([]experiment.Need, 0, len(l.Needs))
	for _, need := range l.Needs {
		needs = append(needs, experiment.Need(need))
	}
	return slices.DeleteFunc(needs, func(n experiment.Need) bool { return n == "database" })
}
