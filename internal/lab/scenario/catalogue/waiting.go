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
		e.Parts = append(e.Parts, remedy(crowd(l.lock, l.need, "no waiter is overtaken by later ones, but for contenders that ask at the same moment",
			checker.All(checker.Waited(checker.OfHolders()), checker.InTurn(2*contenders), checker.ExclusiveHolders(), checker.Granted(contenders)))))
	}
	return e
}

// contenders is how many want the same name.
const contenders = 24

func crowd(lock string, need scenario.Need, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: lock, Stage: scenario.Stage{Needs: []scenario.Need{need}},
		Does:   fmt.Sprintf("%d contenders with connections of their own hold %s for 2 ms each, again and again, for three seconds", contenders, lock),
		Expect: expect,
		Steps: []scenario.Step{step.Contend(step.Contest{
			Lock: lock, Needs: []scenario.Need{need}, Contenders: contenders, For: 3 * time.Second, Each: 2 * time.Millisecond,
		})},
		Check: seen, Pictures: []scenario.Picture{scenario.Waits},
	}
}

func herd() scenario.Experiment {
	const few = 1.5
	// A release that does not come wakes none.
	atMost := func(most float64) checker.Check {
		return checker.All(checker.AtMost(wakeUps, most), checker.Granted(herdSize*herdHolds))
	}
	return scenario.Experiment{
		Number: 17, Name: "herd", Title: "The herd: every release wakes all waiters, or just the next one",
		Claim:  "Where all waiters watch the same node, each release wakes all of them and all but one for nothing; where each watches the one before it, one is woken.",
		Source: flashSales + ", the herd; " + zooKeeping + ", the optimization; " + chapterOne + ", watching the predecessor; " + chapterOne + ", etcd: watching the key before",
		Fix:    "stocklab demo --strategies zk-herd,zk-sequential --replicas 3",
		Parts: []scenario.Part{
			woken("zk-herd", scenario.ZooKeeper, "about half as many wake-ups a release as there are contenders, because the queue shrinks", checker.AtLeast(wakeUps, herdSize/4)),
			woken("zk-ephemeral", scenario.ZooKeeper, "the same", checker.AtLeast(wakeUps, herdSize/4)),
			remedy(woken("zk-sequential", scenario.ZooKeeper, "at most one wake-up a release", atMost(few))),
			woken("etcd", scenario.Etcd, "each contender is a replica, whose one watch of the prefix gets every key that comes or goes: two events a release for each of them", checker.AtLeast(wakeUps, herdSize)),
			remedy(woken(sourcelock.PreKey, scenario.Etcd, "each watches the key before its own: at most one event a release", atMost(few))),
			remedy(sharing("etcd", "they are requests to one replica, which gets two events a release, however many wait, and wakes the one whose turn it is", atMost(2+few/2))),
		},
	}
}

const (
	herdSize  = 24
	herdHolds = 2 // of each
	wakeUps   = "wakeups_per_release"
)

// woken has contenders with a session each hold a lock twice, and counts.
func woken(lock string, need scenario.Need, expect string, seen checker.Check) scenario.Part {
	return wokenOf(lock, need, false, fmt.Sprintf("%d contenders with a session each", herdSize), expect, seen)
}

// sharing is the same with one session for all.
func sharing(lock, expect string, seen checker.Check) scenario.Part {
	p := wokenOf(lock, scenario.Etcd, true, fmt.Sprintf("%d requests to one replica, with one session,", herdSize), expect, seen)
	p.Name += "-shared"
	return p
}

func wokenOf(lock string, need scenario.Need, shared bool, who, expect string, seen checker.Check) scenario.Part {
	needs := []scenario.Need{need}
	counts := map[scenario.Need]string{scenario.ZooKeeper: "how many watches it fired", scenario.Etcd: "how many events it sent to watches"}[need]
	return scenario.Part{
		Name: lock, Stage: scenario.Stage{Needs: needs},
		Does:   fmt.Sprintf("%s hold %s twice for 10 ms; the server tells %s", who, lock, counts),
		Expect: expect,
		Steps: []scenario.Step{step.Contend(step.Contest{
			Lock: lock, Needs: needs, Contenders: herdSize, Shared: shared, Holds: herdHolds, Each: 10 * time.Millisecond, Wait: 20 * time.Second,
			Measure: step.WakeUps(need, herdSize*herdHolds),
		})},
		Check: checker.All(seen, checker.ExclusiveHolders()), Pictures: []scenario.Picture{scenario.Wakes, scenario.Bars, scenario.Timeline},
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
				"the second one has the lock as soon as the watch has been answered", checker.All(checker.WaitedAtMost(2*time.Second, checker.OfHolders("second")), checker.GrantedTo("second")))),
		},
	}
}

func waitersLeave() scenario.Experiment {
	return scenario.Experiment{
		Number: 30, Name: "end-of-waiting", Title: "The end of a wait is not the grant: the waiter ahead leaves, or time is up",
		Claim:  "A waiter that takes any deletion of the node before its own for its turn, or the end of its time for the lock, holds it beside the holder; it must look who is first when it is woken, and give up when its time is up.",
		Source: flashSales + ", the node listener; " + zooKeeping + ", waitForLock; " + chapterOne + ", ZooKeeper, and etcd: watching the key before",
		Fix:    "stocklab demo --strategies zk-sequential --replicas 3",
		Parts: []scenario.Part{
			middleLeaves("any-deletion", sourcelock.NodeCache, scenario.ZooKeeper, "the third takes the deletion for its turn, and holds the lock beside the first", checker.Together("first", "third")),
			remedy(middleLeaves("looks-again", "zk-sequential", scenario.ZooKeeper, "the third looks who is first, and waits for the first", checker.Apart("first", "third"))),
			middleLeaves("any-deletion-etcd", sourcelock.PreKeyOnce, scenario.Etcd, "the same in etcd: the third holds the lock beside the first", checker.Together("first", "third")),
			remedy(middleLeaves("looks-again-etcd", sourcelock.PreKey, scenario.Etcd, "the third looks whose key is the first, and waits for the first", checker.Apart("first", "third"))),
			timeIsUp("timeout-is-true", sourcelock.NodeCacheTimeout, "after 300 ms the second goes on as if it held the lock", checker.Together("first", "second")),
			remedy(timeIsUp("timeout-is-false", "zk-sequential", "the second gives up when its time is up", checker.RejectedWithin(time.Second+slack))),
		},
	}
}

// middleLeaves has the second of three in a queue give up.
func middleLeaves(name, lock string, need scenario.Need, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock, Need: need, TTL: 3 * sessionLease}
	what := map[scenario.Need]string{scenario.ZooKeeper: "node", scenario.Etcd: "key"}[need]
	return acted(c, name,
		"three contenders queue for "+lock+"; while the first holds it, the second gives up and deletes its "+what,
		expect, seen,
		c.Enter("first", "second", "third"), c.Take("first"), c.Queue("second", patience), c.Queue("third", patience),
		c.Leave("second"), c.Answered("third", asks), givenBack(c, "first", "third"))
}

func timeIsUp(name, lock, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock, Need: scenario.ZooKeeper}
	return acted(c, name,
		"the second contender asks for "+lock+" while the first holds it, for a second at most",
		expect, seen,
		c.Enter("first", "second"), c.Take("first"), c.Ask("second", time.Second, patience), givenBack(c, "first", "second"))
}

func spinning() scenario.Experiment {
	return scenario.Experiment{
		Number: 32, Name: "spinning", Title: "Asking again at once keeps Redis busy; a pause does not",
		Claim:  "A loop that asks for the lock again as soon as it finds it taken loads Redis with requests in vain; a pause of 50 ms between two tries is the remedy.",
		Source: chapterOne + ", SETNX and the loop that tries again",
		Fix:    "stocklab demo --strategies redis-lua,redis-reentrant --replicas 3",
		Parts: []scenario.Part{
			retried(sourcelock.SetNXSpin, "again at once", "many requests for each time that the lock is held", checker.AtLeast(step.TriesPerHold, manyTries)),
			remedy(retried(sourcelock.SetNXPause, "again after 50 ms", "a few requests for each time that the lock is held", checker.All(checker.AtMost(step.TriesPerHold, fewTries), checker.Granted(herdSize)))),
		},
	}
}

// Between the two is what a busy machine may change: 23 that wait send one request each in the
// 50 ms for which the lock is held, or all that they can.
const (
	manyTries = 150
	fewTries  = 75
	spinHold  = 50 * time.Millisecond
)

func retried(lock, how, expect string, seen checker.Check) scenario.Part {
	needs := []scenario.Need{scenario.Redis}
	return scenario.Part{
		Name: lock, Stage: scenario.Stage{Needs: needs},
		Does:   fmt.Sprintf("%d contenders hold a lock for 50 ms each, again and again for two seconds; one that finds it taken asks %s (%s); Redis counts", herdSize, how, lock),
		Expect: expect,
		Steps: []scenario.Step{step.Contend(step.Contest{
			Lock: lock, Needs: needs, Contenders: herdSize, For: 2 * time.Second, Each: spinHold, Wait: 20 * time.Second, Measure: step.Tries,
		})},
		Check:    checker.All(seen, checker.Reported(step.HoldsPerS, step.CPUMsPerHold), checker.ExclusiveHolders()),
		Pictures: []scenario.Picture{scenario.Bars},
	}
}

func ensembleSize() scenario.Experiment {
	return scenario.Experiment{
		Number: 35, Name: "ensemble-size", Title: "One, three and five members: writes fall with their number, reads fall less",
		Claim: "The throughput of a lock in ZooKeeper falls with the size of the ensemble, " +
			"because its nodes are created and deleted by the leader alone, which has the others agree.",
		Source: zooKeeping + ", the summary: 吞吐量会随着zk集群规模变大而下降, and: nodes are created and deleted by the leader",
		Fix:    "stocklab demo --strategies redis-reentrant,zk-sequential,etcd --replicas 3",
		Parts: []scenario.Part{
			compareSizes("zk-sequential", scenario.ZooKeeper),
			compareSizes("etcd", scenario.Etcd),
		},
	}
}

// compareSizes expects that five members grant a lock less often than one, and that reads, which need
// no agreement, fall less.
func compareSizes(lock string, need scenario.Need) scenario.Part {
	return scenario.Part{
		Name: lock, Stage: scenario.Stage{Needs: []scenario.Need{need}},
		Does: fmt.Sprintf("8 clients, spread over the members, take %s and give it back, each under a name of its own, and then read what needs no agreement; "+
			"half a second each with one, three and five members, in five rounds; medians. All members share the processors of this machine", lock),
		Expect: "five members grant the lock less often than one; reads fall less",
		Steps:  []scenario.Step{step.CompareSizes(lock, need)},
		Check: checker.All(checker.AtMost(step.HoldsOfMost, 0.9), checker.Exceeds(step.ReadsOfMost, step.HoldsOfMost), checker.Reported(
			step.HoldsPerSOf+"1", step.HoldsPerSOf+"1_min", step.HoldsPerSOf+"1_max",
			step.HoldsPerSOf+"3", step.HoldsPerSOf+"3_min", step.HoldsPerSOf+"3_max",
			step.HoldsPerSOf+"5", step.HoldsPerSOf+"5_min", step.HoldsPerSOf+"5_max",
			step.ReadsPerSOf+"1", step.ReadsPerSOf+"3", step.ReadsPerSOf+"5")),
		Pictures: []scenario.Picture{scenario.Bars},
	}
}
