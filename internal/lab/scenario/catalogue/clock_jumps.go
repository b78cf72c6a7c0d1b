package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

func clockJumps() scenario.Experiment {
	clocks, jump := servers.RedlockOptions{Clocks: true}, step.MoveClock(3, time.Hour)
	return scenario.Experiment{
		Number: 15, Name: "clock-jumps", Title: "Redlock: the clock of a master jumps, and the lock runs out on it",
		Claim:  "When the clock of one of three masters jumps ahead the key runs out there and another contender has three of five; avoid jumps, or have the store check a fencing token.",
		Source: chapterOne + ", Redlock: clocks that change; " + zooKeeping + ", Redlock",
		Fix:    "curl -X POST 'http://127.0.0.1:8080/deduct?strategy=redlock&fence=true&goods_id=1'",
		Parts: []scenario.Part{
			threeOfFive("jump", false, clocks, jump, "the clock of master 3 jumps an hour ahead",
				"two hold the lock at once, and an update is lost", checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			remedy(threeOfFive("jump-fenced", true, clocks, jump, "the clock of master 3 jumps an hour ahead, and the store checks the tokens",
				"two hold the lock at once; the late write is refused, and nothing is lost",
				checker.All(checker.OverlappingHolders(), checker.StaleWritesRefused(), checker.Clean()))),
			remedy(threeOfFive("no-jump", false, clocks, step.MoveClock(3, 0), "no clock jumps",
				"replica 2 waits, and nothing is lost", checker.All(checker.ExclusiveHolders(), checker.Clean()))),
		},
	}
}
