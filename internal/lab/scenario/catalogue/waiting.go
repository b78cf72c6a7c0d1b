package catalogue

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func fairness() scenario.Experiment {
	e := scenario.Experiment{
		Number: 24, Name: "fairness", Title: "The longest wait: locks with and without first-in-first-out order",
		Claim:  "A good lock has a fair form, in which waiters are served in the order in which they came; where they try again and again, luck decides.",
		Source: chapterOne + ", what a distributed lock needs",
		Fix:    "stocklab demo --strategies redis-fair,zk-sequential,etcd --replicas 3",
		Parts:  []scenario.Part{crowd("redsync", scenario.Redis, "the unluckiest waits many times as long as most", checker.Unfair(10, checker.OfHolders()))},
	}
	for _, l := range []struct {
		lock string
		need scenario.Need
	}{{"redis-fair", scenario.Redis}, {"zk-sequential", scenario.ZooKeeper}, {"etcd", scenario.Etcd}} {
		e.Parts = append(e.Parts, remedy(crowd(l.lock, l.need, "no contender waits much longer than most", checker.Fair(5, checker.OfHolders()))))
	}
	return e
}

func crowd(lock string, need scenario.Need, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: lock, Stage: scenario.Stage{Needs: []scenario.Need{need}},
		Does:   "24 contenders with connections of their own hold " + lock + " for 2 ms each, again and again, for three seconds",
		Expect: expect,
		Steps: []scenario.Step{step.Contend(step.Contest{
			Lock: lock, Needs: []scenario.Need{need}, Contenders: 24, For: 3 * time.Second, Each: 2 * time.Millisecond,
		})},
		Check: seen, Pictures: []scenario.Picture{scenario.Waits},
	}
}

func herd() scenario.Experiment {
	return scenario.Experiment{
		Number: 17, Name: "herd", Title: "The herd: every release wakes all waiters, or just the next one",
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
