package catalogue

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

// basketLimit is for how long a basket asks for its locks.
const basketLimit = time.Second

func multiLock() scenario.Experiment {
	return scenario.Experiment{
		Number: 34, Name: "multi-lock", Title: "Baskets of two items: locks taken in the order of the basket deadlock, sorted they do not",
		Claim: "A multi-lock holds several names as one; taken in any order two baskets wait for each other until a limit ends it, " +
			"and a basket that fails halfway must give back what it has.",
		Source: chapterOne + ", Redisson: the multi-lock, of which RedLock is made",
		Fix:    "stocklab lab run multi-lock",
		Parts: []scenario.Part{
			crossed(step.AsGiven, "each has the item that the other one waits for, until the limit: none is bought",
				checker.All(checker.AtMost(step.BasketsBought, 0), checker.Deadlocked(basketLimit/2))),
			remedy(crossed(step.AsOne, "the names are sorted: the second waits for the first, and both are bought",
				checker.All(checker.AtLeast(step.BasketsBought, 2), checker.ExclusiveHolders()))),
			many(step.AsGiven, "baskets time out, and all that want their items wait meanwhile", checker.AtLeast(step.BasketsTimedOut, 1)),
			remedy(many(step.AsOne, "no basket times out", checker.All(checker.AtMost(step.BasketsTimedOut, 0), checker.ExclusiveHolders()))),
			taken(step.Kept, "the lock of the first item stays with a basket that failed", checker.NeverGrantedTo("next")),
			remedy(taken(step.AsOne, "the first item is given back: the next contender has it", checker.GrantedTo("next"))),
		},
	}
}

// basketLock is renewed, and served in the order of arrival: no basket times out by bad luck.
const basketLock = "redis-fair"

func crossed(b step.Basket, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: string(b), Stage: scenario.Stage{Needs: []scenario.Need{scenario.Redis}},
		Does: fmt.Sprintf("two baskets of the same two items, in opposite orders, take their locks (%s, %s) within a second; "+
			"the first grant of each waits for that of the other, for 300 ms at most", basketLock, b),
		Expect: expect, Steps: []scenario.Step{step.OrderCrosswise(b, basketLock, scenario.Redis, basketLimit)},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}

func many(b step.Basket, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: "many-" + string(b), Stage: scenario.Stage{Needs: []scenario.Need{scenario.Redis}},
		Does: fmt.Sprintf("eight contenders order two of four items for 2 ms, in any order, again and again for three seconds (%s, %s), each within a second",
			basketLock, b),
		Expect: expect, Steps: []scenario.Step{step.OrderMany(b, basketLock, scenario.Redis, 8, 3*time.Second, basketLimit)},
		Check: checker.All(seen, checker.Reported(step.BasketsPerS)), Pictures: []scenario.Picture{scenario.Bars, scenario.Waits},
	}
}

func taken(b step.Basket, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: "fails-halfway-" + string(b), Stage: scenario.Stage{Needs: []scenario.Need{scenario.Redis}},
		Does: fmt.Sprintf("a basket takes the lock of its first item and finds the second one taken, for a second (%s, %s); "+
			"then another contender asks for the first item for two seconds", basketLock, b),
		Expect: expect, Steps: []scenario.Step{step.OrderWhatIsTaken(b, basketLock, scenario.Redis, basketLimit)},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
