package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

func ownerCheck() scenario.Experiment {
	return scenario.Experiment{
		Number: 8, Name: "owner-check", Title: "Looking whose lock it is, and then deleting it, are two steps; in Lua they are one",
		Claim:  "Between the comparison of the owner and the DEL the lock can expire and become another's, and is then deleted all the same; a script that does both at once is the remedy.",
		Source: chapterOne + ", the wrong lock is deleted, and atomicity by Lua; " + twoWays + ", releasing",
		Fix:    "stocklab demo --strategies redis-lua --replicas 3",
		Parts: []scenario.Part{
			lateDelete("redis-setnx-owner", "\r\ndel\r\n", "the second one's lock is deleted, and the third is let in beside it",
				checker.All(checker.TakenEarly(ttl), checker.LostUpdates())),
			remedy(lateDelete("redis-lua", "\r\nevalsha\r\n", "the script finds that the lock is another's, and leaves it",
				checker.All(checker.NeverTakenEarly(ttl), checker.Clean()))),
		},
	}
}

// lateDelete has the first replica's release come to Redis one and a half TTL
// after it was sent, when the lock is the second one's, and a third wait.
func lateDelete(strategy, release, expect string, seen checker.Check) scenario.Part {
	stage := onRedis("STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_TIMEOUT=5s")
	stage.Servers = step.ThroughRedis
	return scenario.Part{
		Name: strategy, Stage: stage,
		Does: "the release of replica 1 is held up on its way for 1.5 TTL, after the look at the owner where that is a step of its own; " +
			"replica 2 has the lock by then and works, replica 3 waits",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Hold(1, 300*time.Millisecond), step.Hold(2, ttl*9/10), step.Hold(3, 100*time.Millisecond),
			step.Meanwhile(
				step.Buy(step.Sale{Strategy: strategy, Replica: 1}),
				step.InOrder(
					step.Reached(1), step.Arm(servers.Rule{Sent: release, Do: servers.Hold, For: ttl * 12 / 10}), step.Met(),
					step.Meanwhile(
						step.Buy(step.Sale{Strategy: strategy, Replica: 2, First: 1}),
						step.InOrder(step.Reached(2), step.Buy(step.Sale{Strategy: strategy, Replica: 3, First: 2})),
					),
				),
			),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
