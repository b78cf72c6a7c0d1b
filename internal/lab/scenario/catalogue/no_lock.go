package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func noLock() scenario.Experiment {
	const lock, none = "redis-reentrant", "sql-conditional"
	return scenario.Experiment{
		Number: 26, Name: "no-lock", Title: "The cheapest safe way: does this need a lock at all?",
		Claim:  "An UPDATE that compares and subtracts in one statement needs no lock but the one that the database takes on the row by itself.",
		Source: flashSales + ", a lock by MySQL",
		Fix:    "stockd serve --deduct-strategy sql-conditional",
		Parts: []scenario.Part{
			remedy(lastUnits("lock", lock)),
			remedy(lastUnits("no-lock", none)),
			{
				Name: "cost", Stage: withLock(),
				Does:   "50 clients buy for two seconds through " + lock + ", and for two seconds through " + none,
				Expect: "more sales a second without the lock",
				Steps: []scenario.Step{
					step.Stock(1_000_000),
					step.Sell(step.Sale{Strategy: lock, Clients: 50, Duration: 2 * time.Second}),
					step.Sell(step.Sale{Strategy: none, Clients: 50, Duration: 2 * time.Second}),
					step.Audit(),
				},
				Check: checker.All(checker.Faster(none, lock, 1), checker.Clean()), Tries: 3, Pictures: []scenario.Picture{scenario.Bars},
			},
		},
	}
}

func withLock() scenario.Stage { return shared(scenario.Redis) }

// lastUnits sells more than there is.
func lastUnits(name, strategy string) scenario.Part {
	return scenario.Part{
		Name: name, Stage: withLock(),
		Does:   "50 clients buy 700 times from 500 units through " + strategy + ", behind the balancer of three replicas",
		Expect: "exactly 500 are sold, and 200 are rejected as sold out",
		Steps:  []scenario.Step{step.Stock(500), step.Sell(step.Sale{Strategy: strategy, Clients: 50, Requests: 700}), step.Audit()},
		Check:  checker.All(checker.Clean(), checker.SoldOut(500), checker.Outcomes(history.Rejected, 200)),
	}
}
