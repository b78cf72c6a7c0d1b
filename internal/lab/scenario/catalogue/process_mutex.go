package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func processMutex() scenario.Experiment {
	one := scenario.Stage{Replicas: 1}
	return scenario.Experiment{
		Number: 2, Name: "process-mutex", Title: "A mutex in the process keeps one replica right, and costs throughput",
		Claim:  "A lock in the process around the deduction ends overselling on one machine, and the throughput falls.",
		Source: chapterOne + ", locks inside of the process",
		Fix:    "stocklab demo --strategies mutex --replicas 1",
		Parts: []scenario.Part{{
			Name: "mutex", Remedy: true, Stage: one,
			Does:   "50 clients buy 3,000 times from 2,500 units through mutex on one replica",
			Expect: "exactly 2,500 are sold, and 500 are rejected as sold out",
			Steps:  []scenario.Step{step.Stock(2500), step.Sell(step.Sale{Strategy: "mutex", Clients: 50, Requests: 3000}), step.Audit()},
			Check:  checker.All(checker.Clean(), checker.SoldOut(2500), checker.Outcomes(history.Rejected, 500)),
		}, {
			Name: "cost", Stage: one,
			Does:   "50 clients buy for two seconds without a lock, and for two seconds through mutex",
			Expect: "fewer sales a second under the mutex",
			Steps: []scenario.Step{
				step.Stock(1_000_000),
				step.Sell(step.Sale{Strategy: "naive", Clients: 50, Duration: 2 * time.Second}),
				step.Sell(step.Sale{Strategy: "mutex", Clients: 50, Duration: 2 * time.Second}),
			},
			Check: checker.Faster("naive", "mutex", 1), Tries: 3, Pictures: []scenario.Picture{scenario.Bars},
		}},
	}
}
