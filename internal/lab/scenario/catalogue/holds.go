package catalogue

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
)

// heldUnits is how many holds end at the same time.
const heldUnits = 40

func holds() scenario.Experiment {
	naive := scenario.Stage{Needs: []scenario.Need{scenario.MySQL}}
	return scenario.Experiment{
		Number: 36, Name: "holds", Title: "Units held until they are paid: late payments, two sweepers, a sweeper that dies, and one buyer who holds all",
		Claim: "A hold that is a state and a timestamp, read and then written, is paid for after its units were given back, " +
			"is given back twice by two sweepers, and is lost with a sweeper that dies between the state and the stock.",
		Source: "Public trackers of booking and shop systems, since 2019: payments that come after the hold has expired",
		Fix:    "curl -X POST 'http://127.0.0.1:8080/reservations?goods_id=1&ttl=120'",
		Parts: []scenario.Part{
			ofHolds("late-payment", "a payment reads that its hold is held; the hold expires, a sweeper gives the unit back, another buyer pays for it, and the payment writes that it is paid",
				"two are paid of one unit", naive, checker.AtLeast(step.UnitsPaid, 2), step.NaivePayment()),
			remedy(latePayment("sql-conditional")),
			remedy(latePayment("redis-stock", scenario.Redis)),
			ofHolds("same-millisecond", "a payment and a sweeper read a hold in the millisecond in which it expires; the payment writes that it is paid, and the sweeper gives its unit back",
				"a unit is paid and on sale", naive, checker.AtLeast(step.PaidAndBack, 1), step.NaiveMoment()),
			remedy(ofHolds("one-decides", fmt.Sprintf("%d reservations are paid within 4 ms before and after their expiry, at three replicas that all sweep", heldUnits),
				"each is paid or back, as its buyer was answered", reserving(),
				checker.All(checker.AtMost(step.PaidAndBack, 0), checker.AtMost(step.UnitsWrong, 0), checker.AtLeast(step.PaidInTime, 1), checker.AtLeast(step.ExpiredFirst, 1)),
				step.Stock(heldUnits), step.Moment("sql-conditional", heldUnits))),
			ofHolds("callback-twice", "the report of a payment comes twice, and both find the hold held; the report of an earlier try that failed comes last, and gives the unit back",
				"two orders of one payment, and two are paid of one unit", naive,
				checker.All(checker.AtLeast(step.OrdersMade, 2), checker.AtLeast(step.UnitsPaid, 2)), step.NaiveCallbacks()),
			remedy(ofHolds("callback-keyed", "the same with a reservation: both reports come at the same time, at two replicas",
				"one order; the late report is rejected, and the unit stays sold", reserving(),
				checker.All(checker.AtLeast(step.OrdersMade, 1), checker.AtMost(step.OrdersMade, 1), checker.AtMost(step.UnitsPaid, 1), checker.AtMost(step.UnitsWrong, 0)),
				step.Stock(1), step.Callbacks("sql-conditional"))),
			ofHolds("two-sweepers", fmt.Sprintf("two sweepers read the same %d holds that are over, and each gives them back", heldUnits),
				"more units are back than there were", naive, checker.AtLeast(step.UnitsBack, heldUnits+1), step.NaiveSweepers(heldUnits, false)),
			remedy(expires("three-replicas", "all three replicas sweep", false)),
			ofHolds("sweeper-dies", fmt.Sprintf("a sweeper dies when it has set the state of %d holds, before it gives their units back; another sweeps after it", heldUnits),
				"fewer units are back than there were", naive, checker.AtMost(step.UnitsBack, heldUnits-1), step.NaiveSweepers(heldUnits, true)),
			remedy(expires("replica-dies", "one of three replicas is killed when they expire", true)),
			holdsAll("no-limit", "the first buyer holds all ten, and the other one finds it sold out", 0,
				checker.All(checker.AtMost(step.OthersServed, 0), checker.AtLeast(step.UnitsHeld, 10))),
			remedy(holdsAll("limit", "the first buyer holds two, and the other one is served", 2,
				checker.All(checker.AtLeast(step.OthersServed, 1), checker.AtMost(step.UnitsHeld, 3)))),
		},
	}
}

func ofHolds(name, does, expect string, stage scenario.Stage, seen checker.Check, steps ...scenario.Step) scenario.Part {
	return scenario.Part{
		Name: name, Stage: stage, Does: does, Expect: expect, Steps: steps, Check: seen, Pictures: []scenario.Picture{scenario.Bars},
	}
}

// reserving is three replicas, of which each sweeps.
func reserving(needs ...scenario.Need) scenario.Stage {
	return scenario.Stage{Needs: append([]scenario.Need{scenario.MySQL}, needs...), Replicas: 3}
}

func latePayment(strategy string, needs ...scenario.Need) scenario.Part {
	return ofHolds("database-decides-"+strategy,
		"the same through "+strategy+": the second buyer reserves and pays as soon as the unit is back, and then the first payment comes",
		"one is paid, and the late payment is rejected", reserving(needs...),
		checker.All(checker.AtMost(step.UnitsPaid, 1), checker.AtLeast(step.PaidTooLate, 1), checker.AtMost(step.UnitsWrong, 0)),
		step.Stock(1), step.LatePayment(strategy))
}

func expires(name, does string, killed bool) scenario.Part {
	return ofHolds(name, fmt.Sprintf("%d reservations expire within a second: %s", heldUnits, does),
		"every unit is back once", reserving(),
		checker.All(checker.AtLeast(step.UnitsBack, heldUnits), checker.AtMost(step.UnitsBack, heldUnits), checker.AtMost(step.UnitsWrong, 0)),
		step.Stock(heldUnits), step.Expire("sql-conditional", heldUnits, killed))
}

func holdsAll(name, expect string, perUser int64, seen checker.Check) scenario.Part {
	return ofHolds(name, fmt.Sprintf("one buyer reserves units of ten for as long as it gets any, where one buyer may have %s; then another one reserves a unit", limitOf(perUser)),
		expect, reserving(), seen, step.HoldAll("sql-conditional", 10, perUser))
}

func limitOf(perUser int64) string {
	if perUser == 0 {
		return "all"
	}
	return fmt.Sprint(perUser)
}

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
