package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func lateWatch() scenario.Experiment {
	watched := func(lock, does, expect string, seen checker.Check) scenario.Part {
		return scenario.Part{
			Name: lock, Stage: scenario.Stage{Needs: []scenario.Need{scenario.ZooKeeper}},
			Does:   does + "; a proxy holds up the watch until the node before is gone",
			Expect: expect, Steps: []scenario.Step{step.LateWatch(lock, 4*time.Second)},
			Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
		}
	}
	return scenario.Experiment{
		Number: 18, Name: "late-watch", Title: "The watched node is gone before the watch is set: nothing ever comes",
		Claim:  "Where the node before is deleted between the list and the watch, the listener waits for a deletion that has been already; to look whether it is there once the watch is set closes the gap.",
		Source: flashSales + ", a bug; " + basicSearch + ", ZooKeeper; " + zooKeeping + ", atomic reads and watches",
		Fix:    "stocklab demo --strategies zk-sequential --replicas 3",
		Parts: []scenario.Part{
			watched(sourcelock.NodeCache, "the second of two contenders listens for the deletion of the first one's node, and does not look whether it is there",
				"the lock is free, and the second one waits until its limit", checker.Deadlocked(3*time.Second)),
			remedy(watched("zk-sequential", "the same two contend through zk-sequential",
				"the second one has the lock as soon as the watch has been answered", checker.WaitedAtMost(2*time.Second, checker.OfHolders("second")))),
		},
	}
}
