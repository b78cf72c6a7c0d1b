package catalogue

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func herd() scenario.Experiment {
	return scenario.Experiment{
		Number: 17, Name: "herd", Title: "The herd: every release wakes all who wait, or just the next one",
		Claim:  "Where all waiters watch the same node, each release wakes all of them and all but one for nothing; where each watches the one before it, one is woken.",
		Source: flashSales + ", the herd; " + zooKeeping + ", the optimization; " + chapterOne + ", watching the predecessor",
		Fix:    "stocklab demo --strategies zk-herd,zk-sequential --replicas 3",
		Parts: []scenario.Part{
			woken("zk-herd", "about half as many wake-ups a release as there are contenders, because the queue shrinks", checker.AtLeast("wakeups_per_release", herdSize/4)),
			woken("zk-ephemeral", "the same", checker.AtLeast("wakeups_per_release", herdSize/4)),
			remedy(woken("zk-sequential", "at most one wake-up a release", checker.AtMost("wakeups_per_release", 1.5))),
		},
	}
}

// herdSize is how many contend.
const herdSize = 24

// woken has contenders with a session each hold a lock twice, and counts.
func woken(lock, expect string, seen checker.Check) scenario.Part {
	const holds = 2
	needs := []scenario.Need{scenario.ZooKeeper}
	return scenario.Part{
		Name: lock, Stage: scenario.Stage{Needs: needs},
		Does:   fmt.Sprintf("%d contenders with a session each hold %s twice for 10 ms; the server tells how many watches it fired", herdSize, lock),
		Expect: expect,
		Steps: []scenario.Step{step.WakeUps(herdSize*holds, step.Contend(step.Contest{
			Lock: lock, Needs: needs, Contenders: herdSize, Holds: holds, Each: 10 * time.Millisecond, Wait: 20 * time.Second,
		}))},
		Check: checker.All(seen, checker.ExclusiveHolders()), Pictures: []scenario.Picture{scenario.Bars, scenario.Timeline},
	}
}
