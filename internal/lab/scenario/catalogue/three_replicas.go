package catalogue

import (
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/lock/registry"
)

func threeReplicas() scenario.Experiment {
	e := scenario.Experiment{
		Number: 5, Name: "three-replicas", Title: "Behind a balancer each replica has a mutex of its own; a lock outside of them is one for all",
		Claim:  "Three services behind nginx have three locks, which is as good as none; a lock in a system that all of them share is the remedy.",
		Source: chapterOne + ", a cluster behind nginx; " + twoWays + ", the introduction",
		Fix:    "stocklab demo --strategies mutex,redis-reentrant --replicas 3",
		Parts: []scenario.Part{{
			Name: "mutex", Stage: shared(),
			Does:   "50 clients buy 2,000 times from 2,000 units through mutex, behind the balancer of three replicas",
			Expect: "updates are lost",
			Steps:  []scenario.Step{step.Stock(2000), step.Sell(step.Sale{Strategy: "mutex", Clients: 50, Requests: 2000}), step.Audit()},
			Check:  checker.LostUpdates(), Tries: 3, Pictures: []scenario.Picture{scenario.Timeline},
		}},
	}
	for _, l := range registry.Locks() {
		if l.Guarantees.Exclusive {
			e.Parts = append(e.Parts, sharedBy(l))
		}
	}
	return e
}

// sharedBy is the part of one lock that all replicas share.
func sharedBy(l lock.Entry) scenario.Part {
	p := scenario.Part{
		Name: l.Name, Remedy: true, Stage: shared(needsOf(l)...),
		Does:   "24 clients buy 150 times from 100 units through " + l.Name + ", behind the same balancer, for four seconds at most",
		Expect: "exactly 100 are sold, one holder at a time",
		Steps: []scenario.Step{
			step.Stock(100), step.Sell(step.Sale{Strategy: l.Name, Clients: 24, Requests: 150, Duration: 4 * time.Second}), step.Audit(),
		},
		Check: checker.All(checker.Clean(), checker.SoldOut(100), checker.ExclusiveHolders()), Pictures: []scenario.Picture{scenario.Timeline},
	}
	if !l.Guarantees.ReleasesOnlyItsOwn { // experiments 6, 7 and 12 show how these stall
		p.Expect = "what is sold is sold once, one holder at a time; that it gets done is not asked"
		p.Check = checker.All(checker.Clean(), checker.ExclusiveHolders())
	}
	return p
}

func shared(needs ...scenario.Need) scenario.Stage {
	return scenario.Stage{Needs: needs, Replicas: 3, Lab: true, Env: []string{"STOCKD_LOCK_RETRY=5ms", "STOCKD_LOCK_TTL=3s"}}
}

// needsOf are the backends of a lock.
func needsOf(l lock.Entry) []scenario.Need {
	needs := make([]scenario.Need, 0, len(l.Needs))
	for _, need := range l.Needs {
		needs = append(needs, scenario.Need(need))
	}
	return slices.DeleteFunc(needs, func(n scenario.Need) bool { return n == "database" })
}
