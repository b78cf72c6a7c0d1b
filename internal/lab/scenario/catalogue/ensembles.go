package catalogue

import (
	"fmt"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

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
