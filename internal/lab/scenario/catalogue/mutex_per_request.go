package catalogue

import (
	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func mutexPerRequest() scenario.Experiment {
	one := scenario.Stage{Replicas: 1}
	return scenario.Experiment{
		Number: 3, Name: "mutex-per-request", Title: "A new mutex for each request excludes no other request",
		Claim:  "Where each request gets an object of its own, and with it a lock of its own, the lock fails on one machine already.",
		Source: chapterOne + ", a bean of prototype scope",
		Fix:    "stocklab demo --strategies mutex-per-request,mutex --replicas 1",
		Parts: []scenario.Part{{
			Name: "per-request", Stage: one,
			Does:   "50 clients buy 2,500 times from 2,500 units, each purchase under a mutex made for it",
			Expect: "updates are lost",
			Steps:  []scenario.Step{step.Stock(2500), step.Sell(step.Sale{Strategy: "mutex-per-request", Clients: 50, Requests: 2500}), step.Audit()},
			Check:  checker.LostUpdates(), Tries: 3, Pictures: []scenario.Picture{scenario.Timeline},
		}, {
			Name: "one-mutex", Remedy: true, Stage: one,
			Does:   "the same under one mutex for all purchases of the item",
			Expect: "no update is lost",
			Steps:  []scenario.Step{step.Stock(2500), step.Sell(step.Sale{Strategy: "mutex", Clients: 50, Requests: 2500}), step.Audit()},
			Check:  checker.All(checker.Clean(), checker.SoldOut(2500)),
		}},
	}
}
