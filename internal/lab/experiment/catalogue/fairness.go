package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/check"
	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/step"
)

func fairness() experiment.Experiment {
	e := experiment.Experiment{
		Number: 24, Name: "fairness", Title: "How long the unluckiest waits: who comes first is served first, or not",
		Claim:  "A good lock has a fair form, in which waiters are served in the order in which they came; where they try again and again, luck decides.",
		Source: chapterOne + ", what a distributed lock needs",
		Fix:    "stockd demo --strategies redis-fair,zk-sequential,etcd --replicas 3",
		Parts:  []experiment.Part{crowd("redsync", experiment.Redis, "the unluckiest waits many times as long as most", check.Unfair(10, check.OfHolders()))},
	}
	for _, l := range []struct {
		lock string
		need experiment.Need
	}{{"redis-fair", experiment.Redis}, {"zk-sequential", experiment.ZooKeeper}, {"etcd", experiment.Etcd}} {
		e.Parts = append(e.Parts, remedy(crowd(l.lock, l.need, "nobody waits much longer than most", check.Fair(5, check.OfHolders()))))
	}
	return e
}

// crowd has many wait for one lock again and again.
func crowd(lock string, need experiment.Need, expect string, seen check.Check) experiment.Part {
	return experiment.Part{
		Name: lock, Stage: experiment.Stage{Needs: []experiment.Need{need}},
		Does:   "24 contenders with connections of their own hold " + lock + " for 2 ms each, again and again, for three seconds",
		Expect: expect,
		Steps: []experiment.Step{step.Contend(step.Contest{
			Lock: lock, Needs: []experiment.Need{need}, Contenders: 24, For: 3 * time.Second, Each: 2 * time.Millisecond,
		})},
		Check: seen, Pictures: []experiment.Picture{experiment.Waits},
	}
}
