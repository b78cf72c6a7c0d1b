package catalogue

import (
	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

func masterRestarts() scenario.Experiment {
	atOnce := step.InOrder(step.KillMaster(3), step.StartMaster(3))
	delayed := step.InOrder(step.KillMaster(3), step.Wait(masterTTL), step.StartMaster(3))
	exclusive := checker.All(checker.ExclusiveHolders(), checker.Clean())
	return scenario.Experiment{
		Number: 14, Name: "master-restarts", Title: "Redlock: a master restarts without its data, and its vote is given twice",
		Claim:  "Of three masters that granted the lock one restarts empty and grants it again, so that another contender has three of five; writing every command to disk, or staying away for longer than the TTL, is the remedy.",
		Source: chapterOne + ", Redlock: recovery after a crash, and delayed restarts",
		Fix:    "redis-server --appendonly yes --appendfsync always",
		Parts: []scenario.Part{
			threeOfFive("empty", false, servers.RedlockOptions{}, atOnce, "master 3 is killed and started again without its data",
				"two hold the lock at once, and an update is lost", checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			remedy(threeOfFive("on-disk", false, servers.RedlockOptions{Durable: true}, atOnce, "master 3 is killed and started again; it writes every command to its disk first",
				"replica 2 waits, and nothing is lost", exclusive)),
			remedy(threeOfFive("delayed", false, servers.RedlockOptions{}, delayed, "master 3 is killed and stays away for one TTL",
				"replica 2 waits until the lock of replica 1 cannot be good any more, and nothing is lost", exclusive)),
		},
	}
}
