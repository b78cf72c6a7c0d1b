package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
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

// crowd has many wait for one lock again and again.
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
