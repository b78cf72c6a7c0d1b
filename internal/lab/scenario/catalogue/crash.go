package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func holderCrashes() scenario.Experiment {
	return scenario.Experiment{
		Number: 6, Name: "holder-crashes", Title: "SETNX without an expiry: the lock of a dead holder is never released",
		Claim:  "A holder that dies between SETNX and DEL leaves the lock taken for ever; with an expiry the others wait no longer than that.",
		Source: chapterOne + ", what if the lock is never released; " + basicSearch + ", deadlock",
		Fix:    "stocklab lab run holder-crashes  # redis-setnx-ttl and better ones come back by themselves",
		Parts: []scenario.Part{
			deadHolder("redis-setnx", "buyers find the lock taken until the end, long after the TTL of the others",
				checker.Deadlocked(4*time.Second)),
			remedy(deadHolder("redis-setnx-ttl", "the lock is free again one TTL after the crash",
				checker.Freed(ttl+slack))),
		},
	}
}

// deadHolder has the first replica die in its critical section, and others buy.
func deadHolder(strategy, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: strategy, Stage: onRedis("STOCKD_LOCK_WAIT=1s"),
		Does:   "replica 1 is killed while it holds the lock of " + strategy + "; for five seconds four clients try at replica 2",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(1000), step.Crash(1),
			step.Meanwhile(step.Buy(step.Sale{Strategy: strategy, Replica: 1}), step.Gone(1)),
			step.Sell(step.Sale{Strategy: strategy, Replica: 2, First: 1, Clients: 4, Duration: 5 * time.Second}),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
