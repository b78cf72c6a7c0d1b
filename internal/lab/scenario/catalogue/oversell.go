package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func oversell() scenario.Experiment {
	return scenario.Experiment{
		Number: 1, Name: "oversell", Title: "Read, compare, write back: the item is oversold",
		Claim:  "50 buyers with 100 purchases each, all accepted, leave most of 5,000 units in the row, so that far more can be sold than exist.",
		Source: chapterOne + ", the problem of overselling",
		Fix:    "stocklab demo --strategies naive,sql-conditional",
		Parts: []scenario.Part{{
			Name: "naive", Stage: scenario.Stage{Replicas: 1},
			Does:   "50 clients buy 5,000 times from 5,000 units on one replica, then 1,000 times more",
			Expect: "every purchase is accepted, units are left in the row all the same, and more is sold than exists",
			Steps: []scenario.Step{
				step.Stock(5000),
				step.Watching(100*time.Millisecond,
					step.Sell(step.Sale{Strategy: "naive", Clients: 50, Requests: 5000}),
					step.Sell(step.Sale{Strategy: "naive", Clients: 50, Requests: 1000}),
				),
				step.Audit(),
			},
			Check: checker.All(checker.LostUpdates(), checker.Oversold(), checker.NotLinearizable()), Tries: 3, Orders: true,
			Pictures: []scenario.Picture{scenario.Stock},
		}, {
			Name: "conditional", Remedy: true, Stage: scenario.Stage{Replicas: 1},
			Does:   "the same with the comparison in the UPDATE",
			Expect: "5,000 are sold, and 1,000 are rejected as sold out",
			Steps: []scenario.Step{
				step.Stock(5000),
				step.Watching(100*time.Millisecond, step.Sell(step.Sale{Strategy: "sql-conditional", Clients: 50, Requests: 6000})),
				step.Audit(),
			},
			Check: checker.All(checker.Clean(), checker.SoldOut(5000), checker.Linearizable(), checker.Outcomes(history.Rejected, 1000)), Pictures: []scenario.Picture{scenario.Stock},
		}},
	}
}
