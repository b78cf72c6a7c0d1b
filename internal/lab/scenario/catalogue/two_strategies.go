package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func twoStrategies() scenario.Experiment {
	const lock, none = "redis-reentrant", "sql-conditional"
	together := func(requests int, duration time.Duration) scenario.Step {
		return step.Meanwhile(
			step.Sell(step.Sale{Strategy: lock, Clients: 4, Requests: requests, Duration: duration}),
			step.Sell(step.Sale{Strategy: none, Clients: 6, First: 4, Requests: requests, Duration: duration}),
		)
	}
	stage := shared(scenario.MySQL, scenario.Redis)
	return scenario.Experiment{
		Number: 27, Name: "two-strategies", Title: "A lock excludes only its own users: two strategies, and a foreign writer, on one item",
		Claim:  "A strategy that reads, computes and writes back under a lock overwrites what others write without the lock, unless its write compares with what was read.",
		Source: "measured here: without the comparison, 528 sold of 400",
		Fix:    "stockd serve --deduct-strategy sql-conditional",
		Parts: []scenario.Part{
			{
				Name: "foreign-writer", Stage: stage,
				Does:   "six clients buy through " + none + ", while an application beside stockd reads the row, works for 5 ms and writes what it has read, without comparing",
				Expect: "sales are overwritten, and the audit finds it",
				Steps: []scenario.Step{
					step.Stock(100_000),
					step.WriteAside(5*time.Millisecond, step.Sell(step.Sale{Strategy: none, Clients: 6, Requests: 500})),
					step.Audit(),
				},
				Check: checker.All(checker.LostUpdates(), checker.Reported(step.OverwrittenBy)), Tries: 3, Pictures: []scenario.Picture{scenario.Bars},
			},
			remedy(scenario.Part{
				Name: "sold-out", Stage: stage,
				Does:   "four clients buy through " + lock + " and six through " + none + ", 400 times each from 400 units",
				Expect: "exactly 400 are sold",
				Steps:  []scenario.Step{step.Stock(400), together(400, 0), step.Audit()},
				Check:  checker.All(checker.Clean(), checker.SoldOut(400)), Pictures: []scenario.Picture{scenario.Bars},
			}),
			remedy(scenario.Part{
				Name: "decided-anew", Stage: stage,
				Does:   "the same clients buy for two seconds from more than they can buy, and the UPDATEs of the database are counted",
				Expect: "no update is lost: a purchase that finds the row changed is decided anew",
				Steps:  []scenario.Step{step.Stock(1_000_000), step.CountDecidedAnew(together(0, 2*time.Second)), step.Audit()},
				Check:  checker.All(checker.Clean(), checker.AtLeast(step.DecidedAnew, 1)), Pictures: []scenario.Picture{scenario.Bars},
			}),
		},
	}
}
