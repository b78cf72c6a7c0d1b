package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func workOutlastsTTL() scenario.Experiment {
	return scenario.Experiment{
		Number: 7, Name: "work-outlasts-ttl", Title: "The expiry is shorter than the work: two holders, and one deletes the other's lock",
		Claim:  "When work takes longer than the expiry a second holder gets in, and the first one, when it is done, deletes the second one's lock, so that a third gets in.",
		Source: chapterOne + ", what if the wrong lock is deleted",
		Fix:    "stocklab demo --strategies redis-reentrant --replicas 3",
		Parts: []scenario.Part{
			slowHolders("redis-setnx-ttl", "two hold the lock at once, the third is let in while the second one's lease is good, and updates are lost",
				checker.All(checker.OverlappingHolders(), checker.TakenEarly(ttl), checker.LostUpdates())),
			remedy(slowHolders("redis-lua", "no contender is granted the lock while the lease of another is valid: a holder deletes only its own",
				checker.NeverTakenEarly(ttl))),
			remedy(slowHolders("redis-reentrant", "one holder at a time, because its lease is renewed while it works, and no update is lost",
				checker.All(checker.ExclusiveHolders(), checker.Clean()))),
		},
	}
}

// slowHolders has the first replica work for longer than the TTL, the second for
// less, so that the first is done in the middle of it, and the third wait.
func slowHolders(strategy, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: strategy, Stage: onRedis("STOCKD_LOCK_WAIT=8s"),
		Does:   "replica 1 works for 1.6 TTL under " + strategy + ", replica 2 for 0.8, and replica 3 wants the lock, too",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Hold(1, ttl*16/10), step.Hold(2, ttl*8/10), step.Hold(3, 200*time.Millisecond),
			step.Meanwhile(
				step.Buy(step.Sale{Strategy: strategy, Replica: 1}),
				step.InOrder(step.Reached(1), step.Buy(step.Sale{Strategy: strategy, Replica: 2, First: 1})),
				step.InOrder(step.Reached(2), step.Buy(step.Sale{Strategy: strategy, Replica: 3, First: 2})),
			),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
