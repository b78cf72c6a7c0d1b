package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func forUpdate() scenario.Experiment {
	const long = 500 // milliseconds, where a sale that is in the way takes 2,000
	return scenario.Experiment{
		Number: 21, Name: "for-update", Title: "Requests that wait for a row exhaust the connection pool",
		Claim:  "A lock by SELECT … FOR UPDATE holds a connection for every waiting request, until the pool is empty.",
		Source: chapterOne + ", the pessimistic lock in MySQL",
		Fix:    "curl -X POST 'http://127.0.0.1:8080/deduct?strategy=sql-for-update&group=true&goods_id=1'",
		Parts: []scenario.Part{
			drain("one-pool", step.Sale{Strategy: "sql-for-update"}, "a read of another item waits until the row is free", checker.AtLeast(step.LongestRead, long)),
			remedy(drain("own-pool", step.Sale{Strategy: "sql-row-lock"}, "the waiting requests use lock.connections, and the read is answered at once", checker.AtMost(step.LongestRead, long))),
			remedy(drain("grouped", step.Sale{Strategy: "sql-for-update", Group: true}, "one connection an item serves all waiting requests, and the read is answered at once", checker.AtMost(step.LongestRead, long))),
		},
	}
}

// drain has one sale take two seconds under its lock, while more wait for it than
// the replica has connections, and another request reads an idle item.
func drain(name string, sale step.Sale, expect string, seen checker.Check) scenario.Part {
	first, crowd := sale, sale
	crowd.First, crowd.Clients, crowd.Requests = 1, 12, 12
	return scenario.Part{
		Name: name, Stage: onDatabase(1, "STOCKD_DATABASE_MAX_OPEN=4", "STOCKD_LOCK_CONNECTIONS=4"),
		Does:   "a sale takes two seconds under its lock; twelve wait for it at a replica with database.max_open 4, and an idle item is read",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.StockAnother(), step.Work(1, 2*time.Second),
			step.Meanwhile(
				step.Buy(first),
				step.InOrder(step.Reached(1), step.Meanwhile(
					step.Sell(crowd),
					step.InOrder(step.Wait(300*time.Millisecond), step.ReadAnother(10)),
				)),
			),
			step.Audit(),
		},
		Check: checker.All(seen, checker.Clean()), Pictures: []scenario.Picture{scenario.Bars},
	}
}
