package catalogue

import (
	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

func lostReply() scenario.Experiment {
	return scenario.Experiment{
		Number: 25, Name: "lost-reply", Title: "A reply is lost after the server acted: sent again blindly, it deducts twice; with a key, once",
		Claim:  "An answer that does not come says nothing of what happened: the server may have acted and only its reply be lost, so that a blind second try deducts a second time.",
		Source: chapterOne + ", why a lock is released on all nodes",
		Fix:    "curl -X POST -H 'Idempotency-Key: order-17' 'http://127.0.0.1:8080/deduct?goods_id=1'",
		Parts: []scenario.Part{
			sentAgain("blind", "", "two orders for one purchase", checker.DeductedTwice()),
			remedy(sentAgain("with-key", "order-17", "one order, and the second try gets the first answer", checker.All(checker.DeductedOnce(), checker.Clean()))),
		},
	}
}

// sentAgain has a buyer who gets no answer send the purchase once more.
func sentAgain(name, key, expect string, seen checker.Check) scenario.Part {
	sale := step.Sale{Strategy: "sql-conditional", Key: key, At: step.AtProxy}
	return scenario.Part{
		Name: name, Stage: scenario.Stage{Replicas: 1},
		Does:   "a proxy before the replica drops the answer to a purchase after the replica has made it, and the buyer sends it again",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.ProxyBefore(1), step.Arm(servers.Rule{Sent: "POST /deduct", Do: servers.LoseReply}),
			step.Buy(sale), step.Met(), step.Buy(sale), step.Audit(),
		},
		Check: seen,
	}
}
