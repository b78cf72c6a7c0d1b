package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

func failover() scenario.Experiment {
	pair := onRedis("STOCKD_LOCK_TTL=10s", "STOCKD_LOCK_WAIT=8s")
	pair.Servers = step.OnPair
	five := onMasters(servers.RedlockOptions{})
	return scenario.Experiment{
		Number: 13, Name: "failover", Title: "Redis fails over before the key is replicated: two holders; five masters survive the same loss",
		Claim:  "The lock is taken on the master and the master dies before its replica has the key: the promoted replica grants it again. On five independent masters the loss of one changes nothing.",
		Source: chapterOne + ", Redlock",
		Fix:    "stocklab demo --strategies redlock --replicas 3",
		Parts: []scenario.Part{{
			Name: "failover", Stage: pair,
			Does:   "replica 1 works under redis-lua; the key never reaches Redis's replica, which is promoted when the primary is killed; replica 2 wants the lock",
			Expect: "two hold the lock at once, and an update is lost",
			Steps: []scenario.Step{
				step.Stock(100), step.Freeze(), step.Hold(1, 2*time.Second), step.Hold(2, 500*time.Millisecond),
				step.BuyBehind(step.Sale{Strategy: "redis-lua"}, step.Promote()),
				step.Audit(),
			},
			Check: checker.All(checker.OverlappingHolders(), checker.LostUpdates()), Pictures: []scenario.Picture{scenario.Timeline},
		}, {
			Name: "fenced", Remedy: true, Stage: pair,
			Does:   "replica 3 sells once, and Redis's replica has the counter of tokens; then the same failure with fence=true: the promoted counter is one lower, and both holders get the same token",
			Expect: "two hold the lock at once with one token; the late write is refused, and nothing is lost",
			Steps: []scenario.Step{
				step.Stock(100), step.Buy(step.Sale{Strategy: "redis-lua", Fence: true, Replica: 3, First: 2}), step.Sync(),
				step.Freeze(), step.Hold(1, 2*time.Second), step.Hold(2, 500*time.Millisecond),
				step.BuyBehind(step.Sale{Strategy: "redis-lua", Fence: true}, step.Promote()),
				step.Audit(),
			},
			Check: checker.All(checker.OverlappingHolders(), checker.RepeatedTokens(), checker.StaleWritesRefused(), checker.Clean()), Pictures: []scenario.Picture{scenario.Timeline},
		}, {
			Name: "five-masters", Remedy: true, Stage: five,
			Does:   "replica 1 works under redlock; one of the five masters that have granted it is killed; replica 2 wants the lock",
			Expect: "replica 2 waits, and nothing is lost",
			Steps: []scenario.Step{
				step.Stock(100), step.Hold(1, 2*time.Second), step.Hold(2, 500*time.Millisecond),
				step.BuyBehind(step.Sale{Strategy: "redlock"}, step.KillMaster(1)),
				step.Audit(),
			},
			Check: checker.All(checker.ExclusiveHolders(), checker.Clean()), Pictures: []scenario.Picture{scenario.Timeline},
		}},
	}
}
