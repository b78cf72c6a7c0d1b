package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func tryLock() scenario.Experiment {
	waiting := checker.OfClients(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	return scenario.Experiment{
		Number: 11, Name: "try-lock", Title: "Waiting without a limit, against a wait limit and “busy”",
		Claim:  "A request that waits for a lock without a limit is blocked as long as the holder works; in a flash sale one tries for some time and answers that the system is busy.",
		Source: chapterOne + ", a lock that blocks",
		Fix:    "stockd serve --lock-wait 1s",
		Parts: []scenario.Part{
			slowHolder("no-limit", "STOCKD_LOCK_WAIT=20s", "all ten wait until the holder is done", checker.WaitedAtLeast(2*time.Second, waiting)),
			remedy(slowHolder("one-second", "STOCKD_LOCK_WAIT=1s", "all ten get busy, in about a second",
				checker.Busy(10, time.Second+slack))),
		},
	}
}

// slowHolder has one replica work for three seconds, and ten clients wait at
// another.
func slowHolder(name, limit, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: name, Stage: onRedis(limit, "STOCKD_DEDUCT_TIMEOUT=30s"),
		Does:   "replica 1 works for three seconds under redis-reentrant, ten clients buy at replica 2; lock.wait is set by " + limit,
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Work(1, 3*time.Second),
			step.Meanwhile(
				step.Buy(step.Sale{Strategy: "redis-reentrant", Replica: 1}),
				step.InOrder(step.Reached(1), step.Sell(step.Sale{Strategy: "redis-reentrant", Replica: 2, First: 1, Clients: 10, Requests: 10})),
			),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Waits},
	}
}
