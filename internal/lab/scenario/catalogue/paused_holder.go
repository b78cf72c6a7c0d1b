package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func pausedHolder() scenario.Experiment {
	e := scenario.Experiment{
		Number: 19, Name: "paused-holder", Title: "A holder pauses past its lease: two holders; a fence makes that harmless",
		Claim:  "A client that is paused for longer than its session, lease or expiry still believes that it holds the lock when it resumes, and writes; a fencing token that the store checks rejects the write.",
		Source: chapterOne + ", the true problem of ZooKeeper; " + chapterOne + ", fencing tokens; " + zooKeeping + ", Redlock",
		Fix:    "curl -X POST 'http://127.0.0.1:8080/deduct?strategy=zk-sequential&fence=true&goods_id=1'",
	}
	for _, l := range []struct {
		strategy string
		need     scenario.Need
	}{{"redis-lua", scenario.Redis}, {"zk-sequential", scenario.ZooKeeper}, {"etcd", scenario.Etcd}} {
		e.Parts = append(e.Parts,
			pausedIn(l.strategy, l.need, false, "two hold the lock at once, and an update is lost",
				checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			remedy(pausedIn(l.strategy, l.need, true, "two hold the lock at once; the late write is refused, and nothing is lost",
				checker.All(checker.OverlappingHolders(), checker.StaleWritesRefused(), checker.Clean()))))
	}
	return e
}

// pausedIn has the first replica stop in its critical section for two and a half
// times as long as its lease lasts.
func pausedIn(strategy string, need scenario.Need, fence bool, expect string, seen checker.Check) scenario.Part {
	const lease = 2 * time.Second // the shortest that etcd grants
	name := strategy
	if fence {
		name += "-fenced"
	}
	return scenario.Part{
		Name: name,
		Stage: scenario.Stage{
			Needs: []scenario.Need{need}, Replicas: 3, Lab: true,
			Env: []string{"STOCKD_LOCK_TTL=" + lease.String(), "STOCKD_LOCK_WAIT=10s", "STOCKD_DEDUCT_TIMEOUT=20s"},
		},
		Does:   "replica 1 is stopped (SIGSTOP) in its critical section under " + strategy + " for 2.5 leases, and replica 2 sells meanwhile",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Pause(1),
			step.Meanwhile(
				step.Buy(step.Sale{Strategy: strategy, Fence: fence, Replica: 1}),
				step.InOrder(step.Stopped(1), step.Meanwhile(
					step.InOrder(step.Wait(lease*5/2), step.Wake(1)),
					step.Buy(step.Sale{Strategy: strategy, Fence: fence, Replica: 2, First: 1}),
				)),
			),
			step.Audit(),
		},
		Check: seen, Tries: 3, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
