package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

func getSet() scenario.Experiment {
	return scenario.Experiment{
		Number: 12, Name: "getset", Title: "GETSET: a GET that answers nil blocks all contenders, and clocks that differ admit two",
		Claim:  "When the holder deletes the lock between another's SETNX and GETSET, that one has set an expiry without a holder, and all wait for it to pass; and as the times are the clients', the lock needs equal clocks.",
		Source: basicSearch + ", GETSET, and the trouble with time stamps; " + flashSales + ", deadlocks",
		Fix:    "stocklab demo --strategies redis-lua --replicas 3",
		Parts: []scenario.Part{
			deletedMeanwhile("redis-getset", "\r\nget\r\n", "the lock is free, and the second one waits for the TTL all the same",
				checker.Deadlocked(2*time.Second)),
			remedy(deletedMeanwhile("redis-lua", "\r\nevalsha\r\n", "the second one has the lock as soon as the first has given it back",
				checker.All(checker.WaitedAtMost(2*time.Second, checker.OfClients(1)), checker.Clean()))),
			clocks("redis-getset", "by the second one's clock the lock has expired: two hold it, and an update is lost",
				checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			remedy(clocks("redis-lua", "only the clock of the server counts",
				checker.All(checker.ExclusiveHolders(), checker.Clean()))),
		},
	}
}

// deletedMeanwhile has the first replica give the lock back while the second
// one's look at it is on its way.
func deletedMeanwhile(strategy, look, expect string, seen checker.Check) scenario.Part {
	stage := onRedis("STOCKD_LOCK_TTL=4s", "STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_TIMEOUT=5s")
	stage.Servers = step.ThroughRedis
	return scenario.Part{
		Name: strategy + "-nil", Stage: stage,
		Does:   "replica 2 finds the lock of " + strategy + " taken by replica 1, and its next look at it comes to Redis when replica 1 has given it back; the TTL is 4 s",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Hold(1, time.Second),
			step.Meanwhile(
				step.InOrder(step.Buy(step.Sale{Strategy: strategy, Replica: 1}), step.Pass()),
				step.InOrder(step.Reached(1), step.Arm(servers.Rule{Sent: look, Do: servers.Hold}),
					step.Buy(step.Sale{Strategy: strategy, Replica: 2, First: 1})),
			),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}

// clocks has the second replica's clock ten seconds ahead.
func clocks(strategy, expect string, seen checker.Check) scenario.Part {
	stage := onRedis("STOCKD_LOCK_TTL=5s", "STOCKD_LOCK_WAIT=8s")
	stage.Own = map[int][]string{2: {"STOCKD_LAB_CLOCK_OFFSET=10s"}}
	return scenario.Part{
		Name: strategy + "-clocks", Stage: stage,
		Does:   "the clock of replica 2 is ten seconds ahead; it wants the lock of " + strategy + " while replica 1 works under it; the TTL is 5 s",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Hold(1, time.Second), step.Hold(2, 500*time.Millisecond),
			step.BuyBehind(step.Sale{Strategy: strategy}),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
