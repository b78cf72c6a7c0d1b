package catalogue

import (
	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func watchdog() scenario.Experiment {
	dead := deadHolder("redis-reentrant", "the watchdog died with its process: the lock is free again one TTL after the crash", checker.Freed(ttl+slack))
	dead.Name = "watchdog-dies"
	return scenario.Experiment{
		Number: 10, Name: "watchdog", Title: "A watchdog renews the lease while its holder works, and dies with it",
		Claim:  "Renewed at a third of its time the lease does not run out in the middle of the work; as it is renewed by the holder's own process, it runs out when that dies.",
		Source: chapterOne + ", renewal, and the watchdog of Redisson; " + twoWays + ", the watchdog",
		Fix:    "stocklab demo --strategies redis-reentrant --replicas 3",
		Parts: []scenario.Part{
			longWork("redis-setnx-owner", "the second one is let in while the first one works, and an update is lost",
				checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			remedy(longWork("redis-reentrant", "the second one waits until the first one is done",
				checker.All(checker.ExclusiveHolders(), checker.Clean()))),
			remedy(dead),
		},
	}
}

// longWork has the first replica work for longer than the TTL while the second
// wants the lock.
func longWork(strategy, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: strategy, Stage: onRedis("STOCKD_LOCK_WAIT=8s"),
		Does:   "replica 1 works for 2.5 TTL under " + strategy + ", and replica 2 wants the lock",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Hold(1, ttl*5/2), step.Hold(2, ttl/2),
			step.BuyBehind(step.Sale{Strategy: strategy}),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
