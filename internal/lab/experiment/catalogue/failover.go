package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/check"
	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

func failover() experiment.Experiment {
	pair := onRedis("STOCKD_LOCK_TTL=10s", "STOCKD_LOCK_WAIT=8s")
	pair.Servers = step.OnPair
	five := onMasters(servers.RedlockOptions{})
	return experiment.Experiment{
		Number: 13, Name: "failover", Title: "Redis fails over before the key is replicated: two holders; five masters survive the same loss",
		Claim:  "The lock is taken on the master and the master dies before its replica has the key: the promoted replica grants it again. On five independent masters the loss of one changes nothing.",
		Source: chapterOne + ", Redlock",
		Fix:    "stockd demo --strategies redlock --replicas 3",
		Parts: []experiment.Part{{
			Name: "failover", Stage: pair,
			Does:   "replica 1 works under redis-lua; the key never reaches Redis's replica, which is promoted when the primary is killed; replica 2 wants the lock",
			Expect: "two hold the lock at once, and an update is lost",
			Steps: []experiment.Step{
				step.Stock(100), step.Freeze(), step.Hold(1, 2*time.Second), step.Hold(2, 500*time.Millisecond),
				step.Meanwhile(
					step.Buy(step.Sale{Strategy: "redis-lua", Replica: 1}),
					step.InOrder(step.Reached(1), step.Promote(), step.Buy(step.Sale{Strategy: "redis-lua", Replica: 2, First: 1})),
				),
				step.Audit(),
			},
			Check: check.All(check.OverlappingHolders(), check.LostUpdates()), Pictures: []experiment.Picture{experiment.Timeline},
		}, {
			Name: "fenced", Remedy: true, Stage: pair,
			Does:   "replica 3 sells once, and Redis's replica has the counter of tokens; then the same failure with fence=true: the promoted counter is one lower, and both holders get the same token",
			Expect: "two hold the lock at once with one token; the late write is refused, and nothing is lost",
			Steps: []experiment.Step{
				step.Stock(100), step.Buy(step.Sale{Strategy: "redis-lua", Fence: true, Replica: 3, First: 2}), step.Sync(),
				step.Freeze(), step.Hold(1, 2*time.Second), step.Hold(2, 500*time.Millisecond),
				step.Meanwhile(
					step.Buy(step.Sale{Strategy: "redis-lua", Fence: true, Replica: 1}),
					step.InOrder(step.Reached(1), step.Promote(), step.Buy(step.Sale{Strategy: "redis-lua", Fence: true, Replica: 2, First: 1})),
				),
				step.Audit(),
			},
			Check: check.All(check.OverlappingHolders(), check.RepeatedTokens(), check.StaleWritesRefused(), check.Clean()), Pictures: []experiment.Picture{experiment.Timeline},
		}, {
			Name: "five-masters", Remedy: true, Stage: five,
			Does:   "replica 1 works under redlock; one of the five masters that have granted it is killed; replica 2 wants the lock",
			Expect: "replica 2 waits, and nothing is lost",
			Steps: []experiment.Step{
				step.Stock(100), step.Hold(1, 2*time.Second), step.Hold(2, 500*time.Millisecond),
				step.Meanwhile(
					step.Buy(step.Sale{Strategy: "redlock", Replica: 1}),
					step.InOrder(step.Reached(1), step.KillMaster(1), step.Buy(step.Sale{Strategy: "redlock", Replica: 2, First: 1})),
				),
				step.Audit(),
			},
			Check: check.All(check.ExclusiveHolders(), check.Clean()), Pictures: []experiment.Picture{experiment.Timeline},
		}},
	}
}
