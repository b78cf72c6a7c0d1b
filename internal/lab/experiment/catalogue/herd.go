package catalogue

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/check"
	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/step"
)

func herd() experiment.Experiment {
	return experiment.Experiment{
		Number: 17, Name: "herd", Title: "The herd: every release wakes all who wait, or just the next one",
		Claim:  "Where all waiters watch the same node, each release wakes all of them and all but one for nothing; where each watches the one before it, one is woken.",
		Source: flashSales + ", the herd; " + zooKeeping + ", the optimization; " + chapterOne + ", watching the predecessor",
		Fix:    "stockd demo --strategies zk-herd,zk-sequential --replicas 3",
		Parts: []experiment.Part{
			woken("zk-herd", "about half as many wake-ups a release as there are contenders, because the queue shrinks", check.AtLeast("wakeups_per_release", herdSize/4)),
			woken("zk-ephemeral", "the same", check.AtLeast("wakeups_per_release", herdSize/4)),
			remedy(woken("zk-sequential", "at most one wake-up a release", check.AtMost("wakeups_per_release", 1.5))),
		},
	}
}

// herdSize is how many contend.
const herdSize = 24

// woken has contenders with a session each hold a lock twice, and counts.
func woken(lock, expect string, seen check.Check) experiment.Part {
	const holds = 2
	needs := []experiment.Need{experiment.ZooKeeper}
	return experiment.Part{
		Name: lock, Stage: experiment.Stage{Needs: needs},
		Does:   fmt.Sprintf("%d contenders with a session each hold %s twice for 10 ms; the server tells how many watches it fired", herdSize, lock),
		Expect: expect,
		Steps: []experiment.Step{step.WakeUps(herdSize*holds, step.Contend(step.Contest{
			Lock: lock, Needs: needs, Contenders: herdSize, Holds: holds, Each: 10 * time.Millisecond, Wait: 20 * time.Second,
		}))},
		Check: check.All(seen, check.ExclusiveHolders()), Pictures: []experiment.Picture{experiment.Bars, experiment.Timeline},
	}
}
