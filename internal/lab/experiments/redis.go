package experiments

import (
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
)

func ownerCheck() Experiment {
	return Experiment{
		Number: 8, Name: "owner-check", Title: "Looking whose lock it is, and then deleting it, are two steps; in Lua they are one",
		Claim:  "Between the comparison of the owner and the DEL the lock can expire and become another's, and is then deleted all the same; a script that does both at once is the remedy.",
		Source: chapterOne + ", the wrong lock is deleted, and atomicity by Lua; " + twoWays + ", releasing",
		Fix:    "stocklab demo --strategies redis-lua --replicas 3",
		Parts: []Part{
			lateDelete("redis-setnx-owner", "\r\ndel\r\n", "the second one's lock is deleted, and the third is let in beside it",
				checker.All(checker.TakenEarly(ttl), checker.LostUpdates())),
			asRemedy(lateDelete("redis-lua", "\r\nevalsha\r\n", "the script finds that the lock is another's, and leaves it",
				checker.All(checker.NeverTakenEarly(ttl), checker.Clean()))),
		},
	}
}

// lateDelete has the first replica's release come to Redis one and a half TTL after it was sent, when the lock is the
// second one's, and a third wait.
func lateDelete(strategy, release, expect string, seen checker.Check) Part {
	stage := onRedis("STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_TIMEOUT=5s")
	stage.Servers = throughRedis
	return Part{
		Name: strategy, Stage: stage,
		Does: "the release of replica 1 is held up on its way for 1.5 TTL, after the look at the owner where that is a step of its own; " +
			"replica 2 has the lock by then and works, replica 3 waits",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			sale := Sale{Strategy: strategy}
			x.stock(100)
			x.willStall(1, 300*time.Millisecond)
			x.willStall(2, ttl*9/10)
			x.willStall(3, 100*time.Millisecond)
			x.start(func() { x.buy(1, sale) })
			x.awaitFault(1)
			x.awaitMet(x.Proxy.Arm(servers.Rule{Sent: release, Do: servers.Hold, For: ttl * 12 / 10}))
			x.start(func() { x.buy(2, sale) })
			x.awaitFault(2)
			x.buy(3, sale)
			x.wait()
			x.audit()
		},
	}
}

func getSet() Experiment {
	return Experiment{
		Number: 12, Name: "getset", Title: "GETSET: a GET that answers nil blocks all contenders, and clocks that differ admit two",
		Claim:  "When the holder deletes the lock between another's SETNX and GETSET, that one has set an expiry without a holder, and all wait for it to pass; and as the times are the clients', the lock needs equal clocks.",
		Source: basicSearch + ", GETSET, and the trouble with time stamps; " + flashSales + ", deadlocks",
		Fix:    "stocklab demo --strategies redis-lua --replicas 3",
		Parts: []Part{
			deletedMeanwhile("redis-getset", "\r\nget\r\n", "replica 2 finds the lock of redis-getset taken by replica 1, and its next look at it",
				"the lock is free, and the second one waits for the TTL all the same",
				checker.Deadlocked(2*time.Second)),
			asRemedy(deletedMeanwhile("redis-lua", "\r\nevalsha\r\n", "replica 2 asks for the lock of redis-lua while replica 1 has it, and its script",
				"the second one has the lock as soon as the first has given it back",
				checker.All(checker.WaitedAtMost(2*time.Second, checker.OfClients(1)), checker.Outcomes(history.Sold, 2), checker.AtLeast("requests_held", 1), checker.Clean()))),
			clocks("redis-getset", "by the second one's clock the lock has expired: two hold it, and an update is lost",
				checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			asRemedy(clocks("redis-lua", "only the clock of the server counts",
				checker.All(checker.ExclusiveHolders(), checker.Clean()))),
		},
	}
}

// deletedMeanwhile has the first replica give the lock back while the second one's look at it, or its script, is on
// its way.
func deletedMeanwhile(strategy, look, does, expect string, seen checker.Check) Part {
	stage := onRedis("STOCKD_LOCK_TTL=4s", "STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_TIMEOUT=5s")
	stage.Servers = throughRedis
	return Part{
		Name: strategy + "-nil", Stage: stage,
		Does:   does + " comes to Redis when replica 1 has given it back; the TTL is 4 s",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			x.stock(100)
			x.willStall(1, time.Second)
			givenBack := make(chan struct{})
			x.start(func() {
				defer close(givenBack)
				x.buy(1, Sale{Strategy: strategy})
			})
			x.awaitFault(1)
			looks := x.Proxy.Arm(servers.Rule{Sent: look, Do: servers.Hold})
			x.start(func() { x.buy(2, Sale{Strategy: strategy}) })
			<-givenBack
			x.held(looks)
			x.pass("proxy", looks)
			x.wait()
			x.audit()
		},
	}
}

// clocks has the second replica's clock ten seconds ahead.
func clocks(strategy, expect string, seen checker.Check) Part {
	stage := onRedis("STOCKD_LOCK_TTL=5s", "STOCKD_LOCK_WAIT=8s")
	stage.Own = map[int][]string{2: {"STOCKD_LAB_CLOCK_OFFSET=10s"}}
	return Part{
		Name: strategy + "-clocks", Stage: stage,
		Does:   "the clock of replica 2 is ten seconds ahead; it wants the lock of " + strategy + " while replica 1 works under it; the TTL is 5 s",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			x.stock(100)
			x.whileOneWorks(Sale{Strategy: strategy}, time.Second, nil)
			x.audit()
		},
	}
}

func lostReply() Experiment {
	// sentAgain has a buyer who gets no answer send the purchase once more.
	sentAgain := func(name, key, expect string, seen checker.Check) Part {
		return Part{
			Name: name, Stage: Stage{Replicas: 1},
			Does:   "a proxy before the replica drops the answer to a purchase after the replica has made it, and the buyer sends it again",
			Expect: expect, Check: seen,
			Do: func(x *Try) {
				x.stock(100)
				proxy := x.proxied(strings.TrimPrefix(x.URL(1), "http://"))
				sale := Sale{Strategy: "sql-conditional", Key: key, URL: "http://" + proxy.Address}
				lost := proxy.Arm(servers.Rule{Sent: "POST /deduct", Do: servers.LoseReply})
				x.buy(1, sale)
				x.awaitMet(lost)
				x.buy(1, sale)
				x.audit()
			},
		}
	}
	return Experiment{
		Number: 25, Name: "lost-reply", Title: "A reply is lost after the server acted: sent again blindly, it deducts twice; with a key, once",
		Claim:  "An answer that does not come says nothing of what happened: the server may have acted and only its reply be lost, so that a blind second try deducts a second time.",
		Source: chapterOne + ", why a lock is released on all nodes",
		Fix:    "curl -X POST -H 'Idempotency-Key: order-17' 'http://127.0.0.1:8080/deduct?goods_id=1'",
		Parts: []Part{
			sentAgain("blind", "", "two orders for one purchase", checker.DeductedTwice()),
			asRemedy(sentAgain("with-key", "order-17", "one order, and the second try gets the first answer", checker.All(checker.DeductedOnce(), checker.Clean()))),
		},
	}
}

func getCompareSet() Experiment {
	const behind = "behind the balancer of three replicas"
	three := shared(Redis)
	// crowd buys more than there is.
	crowd := func(name, strategy, where string, stage Stage, expect string, seen checker.Check, tries int) Part {
		return Part{
			Name: name, Stage: stage,
			Does:   "50 clients buy 400 times from 300 units through " + strategy + ", " + where,
			Expect: expect, Do: sellOut(strategy, 300, 400), Check: seen, Tries: tries,
		}
	}
	return Experiment{
		Number: 28, Name: "get-compare-set", Title: "Stock in Redis by GET, compare, SET: oversold; under a lock it is right, until the lock fails",
		Claim:  "Stock that is kept in Redis and changed by a GET, a comparison and a SET is sold more than once, in one service and in several; a lock around the three is the remedy, for as long as it is held.",
		Source: twoWays + ", the introduction; " + chapterOne + ", Redisson, and Curator",
		Fix:    "stocklab demo --strategies redis-get-set,redis-get-set-locked,redis-stock",
		Parts: []Part{
			crowd("one-replica", "redis-get-set", "on one replica", Stage{Needs: three.Needs, Replicas: 1}, "more is sold than exists", checker.Oversold(), 3),
			crowd("three-replicas", "redis-get-set", behind, three, "more is sold than exists", checker.Oversold(), 3),
			asRemedy(crowd("locked", "redis-get-set-locked", behind, three, "exactly 300 are sold, one holder at a time",
				checker.All(checker.Clean(), checker.SoldOut(300), checker.ExclusiveHolders()), 0)),
			lateSet("redis-setnx-ttl", "the lock expires between the GET and the SET, and the late SET brings back units that are sold",
				checker.All(checker.OverlappingHolders(), checker.Oversold())),
			asRemedy(lateSet("redis-reentrant", "the lock is renewed: replica 2 waits, and exactly 100 are sold",
				checker.All(checker.ExclusiveHolders(), checker.Clean(), checker.SoldOut(100)))),
		},
	}
}

// lateSet has the first replica pause between its GET and its SET for longer than the TTL of the lock that
// redis-get-set-locked uses.
func lateSet(lock, expect string, seen checker.Check) Part {
	const strategy = "redis-get-set-locked"
	return Part{
		Name: "under-" + lock, Stage: onRedis("STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_GET_SET_LOCK="+lock),
		Does: "redis_get_set.lock is " + lock + "; replica 1 pauses for 2.5 TTL between GET and SET, replica 2 sells 60 of 100 units as soon as it is let in, " +
			"and then 80 more are asked for",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			x.stock(100)
			x.willStall(1, ttl*5/2)
			x.start(func() { x.buy(1, Sale{Strategy: strategy}) })
			x.awaitFault(1)
			x.sell(Sale{Strategy: strategy, Replica: 2, FirstClient: 1, Clients: 4, Requests: 60})
			x.wait()
			x.sell(Sale{Strategy: strategy, Replica: 3, FirstClient: 5, Clients: 4, Requests: 80})
			x.audit()
		},
	}
}
