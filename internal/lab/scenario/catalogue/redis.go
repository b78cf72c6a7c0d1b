package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
)

func ownerCheck() scenario.Experiment {
	return scenario.Experiment{
		Number: 8, Name: "owner-check", Title: "Looking whose lock it is, and then deleting it, are two steps; in Lua they are one",
		Claim:  "Between the comparison of the owner and the DEL the lock can expire and become another's, and is then deleted all the same; a script that does both at once is the remedy.",
		Source: chapterOne + ", the wrong lock is deleted, and atomicity by Lua; " + twoWays + ", releasing",
		Fix:    "stocklab demo --strategies redis-lua --replicas 3",
		Parts: []scenario.Part{
			lateDelete("redis-setnx-owner", "\r\ndel\r\n", "the second one's lock is deleted, and the third is let in beside it",
				checker.All(checker.TakenEarly(ttl), checker.LostUpdates())),
			remedy(lateDelete("redis-lua", "\r\nevalsha\r\n", "the script finds that the lock is another's, and leaves it",
				checker.All(checker.NeverTakenEarly(ttl), checker.Clean()))),
		},
	}
}

// lateDelete has the first replica's release come to Redis one and a half TTL
// after it was sent, when the lock is the second one's, and a third wait.
func lateDelete(strategy, release, expect string, seen checker.Check) scenario.Part {
	stage := onRedis("STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_TIMEOUT=5s")
	stage.Servers = step.ThroughRedis
	return scenario.Part{
		Name: strategy, Stage: stage,
		Does: "the release of replica 1 is held up on its way for 1.5 TTL, after the look at the owner where that is a step of its own; " +
			"replica 2 has the lock by then and works, replica 3 waits",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Hold(1, 300*time.Millisecond), step.Hold(2, ttl*9/10), step.Hold(3, 100*time.Millisecond),
			step.Meanwhile(
				step.Buy(step.Sale{Strategy: strategy, Replica: 1}),
				step.InOrder(
					step.Reached(1), step.Arm(servers.Rule{Sent: release, Do: servers.Hold, For: ttl * 12 / 10}), step.Met(),
					step.Meanwhile(
						step.Buy(step.Sale{Strategy: strategy, Replica: 2, First: 1}),
						step.InOrder(step.Reached(2), step.Buy(step.Sale{Strategy: strategy, Replica: 3, First: 2})),
					),
				),
			),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}

func getSet() scenario.Experiment {
	return scenario.Experiment{
		Number: 12, Name: "getset", Title: "GETSET: a GET that answers nil blocks all contenders, and clocks that differ admit two",
		Claim:  "When the holder deletes the lock between another's SETNX and GETSET, that one has set an expiry without a holder, and all wait for it to pass; and as the times are the clients', the lock needs equal clocks.",
		Source: basicSearch + ", GETSET, and the trouble with time stamps; " + flashSales + ", deadlocks",
		Fix:    "stocklab demo --strategies redis-lua --replicas 3",
		Parts: []scenario.Part{
			deletedMeanwhile("redis-getset", "\r\nget\r\n", "replica 2 finds the lock of redis-getset taken by replica 1, and its next look at it",
				"the lock is free, and the second one waits for the TTL all the same",
				checker.Deadlocked(2*time.Second)),
			remedy(deletedMeanwhile("redis-lua", "\r\nevalsha\r\n", "replica 2 asks for the lock of redis-lua while replica 1 has it, and its script",
				"the second one has the lock as soon as the first has given it back",
				checker.All(checker.WaitedAtMost(2*time.Second, checker.OfClients(1)), checker.Outcomes(history.Sold, 2), checker.AtLeast(step.RequestsHeld, 1), checker.Clean()))),
			clocks("redis-getset", "by the second one's clock the lock has expired: two hold it, and an update is lost",
				checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			remedy(clocks("redis-lua", "only the clock of the server counts",
				checker.All(checker.ExclusiveHolders(), checker.Clean()))),
		},
	}
}

// deletedMeanwhile has the first replica give the lock back while the second
// one's look at it, or its script, is on its way.
func deletedMeanwhile(strategy, look, does, expect string, seen checker.Check) scenario.Part {
	stage := onRedis("STOCKD_LOCK_TTL=4s", "STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_TIMEOUT=5s")
	stage.Servers = step.ThroughRedis
	return scenario.Part{
		Name: strategy + "-nil", Stage: stage,
		Does:   does + " comes to Redis when replica 1 has given it back; the TTL is 4 s",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Hold(1, time.Second),
			step.Meanwhile(
				step.InOrder(step.Buy(step.Sale{Strategy: strategy, Replica: 1}), step.Held(), step.Pass()),
				step.InOrder(step.Reached(1), step.Arm(servers.Rule{Sent: look, Do: servers.Hold}),
					step.Buy(step.Sale{Strategy: strategy, Replica: 2, First: 1})),
			),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}

// clocks has the second replica's clock ten seconds ahead.
func clocks(strategy, expect string, seen checker.Check) scenario.Part {
	stage := onRedis("STOCKD_LOCK_TTL=5s", "STOCKD_LOCK_WAIT=8s")
	stage.Own = map[int][]string{2: {"STOCKD_LAB_CLOCK_OFFSET=10s"}}
	return scenario.Part{
		Name: strategy + "-clocks", Stage: stage,
		Does:   "the clock of replica 2 is ten seconds ahead; it wants the lock of " + strategy + " while replica 1 works under it; the TTL is 5 s",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Hold(1, time.Second), step.Hold(2, 500*time.Millisecond),
			step.BuyBehind(step.Sale{Strategy: strategy}),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}

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

func getCompareSet() scenario.Experiment {
	const behind = "behind the balancer of three replicas"
	shared := shared(scenario.Redis)
	return scenario.Experiment{
		Number: 28, Name: "get-compare-set", Title: "Stock in Redis by GET, compare, SET: oversold; under a lock it is right, until the lock fails",
		Claim:  "Stock that is kept in Redis and changed by a GET, a comparison and a SET is sold more than once, in one service and in several; a lock around the three is the remedy, for as long as it is held.",
		Source: twoWays + ", the introduction; " + chapterOne + ", Redisson, and Curator",
		Fix:    "stocklab demo --strategies redis-get-set,redis-get-set-locked,redis-stock",
		Parts: []scenario.Part{
			crowdOnCopy("one-replica", "redis-get-set", "on one replica", scenario.Stage{Needs: shared.Needs, Replicas: 1}, "more is sold than exists", checker.Oversold(), 3),
			crowdOnCopy("three-replicas", "redis-get-set", behind, shared, "more is sold than exists", checker.Oversold(), 3),
			remedy(crowdOnCopy("locked", "redis-get-set-locked", behind, shared, "exactly 300 are sold, one holder at a time",
				checker.All(checker.Clean(), checker.SoldOut(300), checker.ExclusiveHolders()), 0)),
			lateSet("redis-setnx-ttl", "the lock expires between the GET and the SET, and the late SET brings back units that are sold",
				checker.All(checker.OverlappingHolders(), checker.Oversold())),
			remedy(lateSet("redis-reentrant", "the lock is renewed: replica 2 waits, and exactly 100 are sold",
				checker.All(checker.ExclusiveHolders(), checker.Clean(), checker.SoldOut(100)))),
		},
	}
}

// crowdOnCopy has a crowd buy more than there is.
func crowdOnCopy(name, strategy, where string, stage scenario.Stage, expect string, seen checker.Check, tries int) scenario.Part {
	return scenario.Part{
		Name: name, Stage: stage,
		Does:   "50 clients buy 400 times from 300 units through " + strategy + ", " + where,
		Expect: expect,
		Steps:  sellOut(strategy, 300, 400),
		Check:  seen, Tries: tries,
	}
}

// lateSet has the first replica pause between its GET and its SET for longer than the TTL of
// the lock that redis-get-set-locked uses.
func lateSet(lock, expect string, seen checker.Check) scenario.Part {
	const strategy = "redis-get-set-locked"
	return scenario.Part{
		Name: "under-" + lock, Stage: onRedis("STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_GET_SET_LOCK="+lock),
		Does: "redis_get_set.lock is " + lock + "; replica 1 pauses for 2.5 TTL between GET and SET, replica 2 sells 60 of 100 units as soon as it is let in, " +
			"and then 80 more are asked for",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.Hold(1, ttl*5/2),
			step.Meanwhile(
				step.Buy(step.Sale{Strategy: strategy, Replica: 1}),
				step.InOrder(step.Reached(1), step.Sell(step.Sale{Strategy: strategy, Replica: 2, First: 1, Clients: 4, Requests: 60})),
			),
			step.Sell(step.Sale{Strategy: strategy, Replica: 3, First: 5, Clients: 4, Requests: 80}),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Timeline},
	}
}
