package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

func optimistic() scenario.Experiment {
	const one, crowd = "tries_per_sale_at_1", "tries_per_sale_at_64"
	const many = 10 // tries for one sale
	return scenario.Experiment{
		Number: 23, Name: "optimistic", Title: "Optimistic writers try again and again where many want the same row",
		Claim:  "An optimistic lock makes two statements of one, and under load the burden on the database is more than it can bear.",
		Source: chapterOne + ", the optimistic lock in MySQL",
		Fix:    "stockd serve --optimistic-step 5ms",
		Parts: []scenario.Part{
			tries("no-pause", "sql-optimistic", "one try a sale for one client, and with 64 clients a try is lost far more often than won",
				checker.All(checker.AtMost(one, 1.2), checker.AtLeast(crowd, many)), "STOCKD_OPTIMISTIC_STEP=0s", "STOCKD_OPTIMISTIC_TRIES=10000"),
			remedy(tries("pause", "sql-optimistic", "losers pause for longer the more races are lost, and the tries stay few", checker.AtMost(crowd, many))),
			remedy(tries("conditional", "sql-conditional", "one statement a sale, however many buy", checker.AtMost(crowd, 1.2))),
		},
	}
}

// tries counts what a sale costs at three sizes of the crowd.
func tries(name, strategy, expect string, seen checker.Check, env ...string) scenario.Part {
	sell := func(clients int) scenario.Step {
		return step.CountTries(step.Sale{Strategy: strategy, Clients: clients, Duration: 1500 * time.Millisecond})
	}
	return scenario.Part{
		Name: name, Stage: onDatabase(1, append(env, "STOCKD_DATABASE_MAX_OPEN=80")...),
		Does:   "1, 8 and 64 clients buy through " + strategy + ", each for a second and a half; the UPDATEs of the database are counted",
		Expect: expect,
		Steps:  []scenario.Step{step.Stock(1_000_000), sell(1), sell(8), sell(64), step.Audit()},
		Check:  checker.All(seen, checker.Reported("tries_per_sale_at_8", "sales_per_s_at_1", "sales_per_s_at_8", "sales_per_s_at_64"), checker.Clean()), Pictures: []scenario.Picture{scenario.Bars},
	}
}
