package catalogue

import (
	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func mutexInTransaction() scenario.Experiment {
	one := scenario.Stage{Replicas: 1, Needs: []scenario.Need{scenario.MySQL}} // SQLite has no gap between unlock and commit
	return scenario.Experiment{
		Number: 4, Name: "mutex-in-transaction", Title: "Unlocked before the commit: the next one reads what is not there yet",
		Claim:  "A lock that is acquired and released in the transaction lets the next request read before the first has committed.",
		Source: chapterOne + ", locks and transactions",
		Fix:    "stocklab demo --strategies mutex-in-tx,mutex --replicas 1",
		Parts: []scenario.Part{{
			Name: "inside", Stage: one,
			Does:   "50 clients buy 2,500 times from 2,500 units; the mutex is given back before the commit",
			Expect: "updates are lost",
			Steps:  []scenario.Step{step.Stock(2500), step.Sell(step.Sale{Strategy: "mutex-in-tx", Clients: 50, Requests: 2500}), step.Audit()},
			Check:  checker.LostUpdates(), Tries: 3,
		}, {
			Name: "outside", Remedy: true, Stage: one,
			Does:   "the same; the mutex is taken before the transaction and given back after its commit",
			Expect: "no update is lost",
			Steps:  []scenario.Step{step.Stock(2500), step.Sell(step.Sale{Strategy: "mutex", Clients: 50, Requests: 2500}), step.Audit()},
			Check:  checker.All(checker.Clean(), checker.SoldOut(2500)),
		}},
	}
}
