package catalogue

import (
	"github.com/stockd/stockd/internal/lab/check"
	"github.com/stockd/stockd/internal/lab/experiment"
	"github.com/stockd/stockd/internal/lab/experiment/step"
)

func mutexInTransaction() experiment.Experiment {
	one := experiment.Stage{Replicas: 1, Needs: []experiment.Need{experiment.MySQL}} // SQLite has no gap between unlock and commit
	return experiment.Experiment{
		Number: 4, Name: "mutex-in-transaction", Title: "Unlocked before the commit: the next one reads what is not there yet",
		Claim:  "A lock that is taken and given back inside of the transaction lets the next request read before the first has committed.",
		Source: chapterOne + ", locks and transactions",
		Fix:    "stockd demo --strategies mutex-in-tx,mutex --replicas 1",
		Parts: []experiment.Part{{
			Name: "inside", Stage: one,
			Does:   "50 clients buy 2,500 times from 2,500 units; the mutex is given back before the commit",
			Expect: "updates are lost",
			Steps:  []experiment.Step{step.Stock(2500), step.Sell(step.Sale{Strategy: "mutex-in-tx", Clients: 50, Requests: 2500}), step.Audit()},
			Check:  check.LostUpdates(), Tries: 3,
		}, {
			Name: "outside", Remedy: true, Stage: one,
			Does:   "the same; the mutex is taken before the transaction and given back after its commit",
			Expect: "no update is lost",
			Steps:  []experiment.Step{step.Stock(2500), step.Sell(step.Sale{Strategy: "mutex", Clients: 50, Requests: 2500}), step.Audit()},
			Check:  check.All(check.Clean(), check.SoldOut(2500)),
		}},
	}
}
