package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/check"
	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/step"
	"github.com/stockd/stockd/internal/lab/history"
)

func oversell() experiment.Experiment {
	return experiment.Experiment{
		Number: 1, Name: "oversell", Title: "Read, compare, write back: the item is oversold",
		Claim:  "50 buyers with 100 purchases each, all accepted, leave most of 5,000 units in the row, so that far more can be sold than exist.",
		Source: chapterOne + ", the problem of overselling",
		Fix:    "stockd demo --strategies naive,sql-conditional",
		Parts: []experiment.Part{{
			Name: "naive", Stage: experiment.Stage{Replicas: 1},
			Does:   "50 clients buy 5,000 times from 5,000 units on one replica, then 1,000 times more",
			Expect: "every purchase is accepted, units are left in the row all the same, and more is sold than exists",
			Steps: []experiment.Step{
				step.Stock(5000),
				step.Watching(100*time.Millisecond,
					step.Sell(step.Sale{Strategy: "naive", Clients: 50, Requests: 5000}),
					step.Sell(step.Sale{Strategy: "naive", Clients: 50, Requests: 1000}),
				),
				step.Audit(),
			},
			Check: check.All(check.LostUpdates(), check.Oversold(), check.NotLinearizable()), Tries: 3, Orders: true,
			Pictures: []experiment.Picture{experiment.Stock},
		}, {
			Name: "conditional", Remedy: true, Stage: experiment.Stage{Replicas: 1},
			Does:   "the same with the comparison inside of the UPDATE",
			Expect: "5,000 are sold, and 1,000 are told that it is sold out",
			Steps: []experiment.Step{
				step.Stock(5000),
				step.Watching(100*time.Millisecond, step.Sell(step.Sale{Strategy: "sql-conditional", Clients: 50, Requests: 6000})),
				step.Audit(),
			},
			Check: check.All(check.Clean(), check.SoldOut(5000), check.Linearizable(), check.Outcomes(history.Refused, 1000)), Pictures: []experiment.Picture{experiment.Stock},
		}},
	}
}
