package experiments

import (
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
)

func ownerCheck() []Part {
	return []Part{
		lateDelete("redis-setnx-owner", "\r\ndel\r\n", checker.All(checker.TakenEarly(ttl), checker.LostUpdates())),
		asRemedy(lateDelete("redis-lua", "\r\nevalsha\r\n", checker.All(checker.NeverTakenEarly(ttl), checker.Clean()))),
	}
}

// lateDelete has the first replica's release come to Redis one and a half TTL after it was sent, when the lock is the
// second one's, and a third wait.
func lateDelete(strategy, release string, seen checker.Check) Part {
	stage := onRedis("STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_TIMEOUT=5s")
	stage.Servers = throughRedis
	return newPart(strategy, stage, seen, func(x *Try) {
		x.stock(100)
		x.buyWhileAtWork(Sale{Strategy: strategy}, func() {
			x.awaitMet(x.Proxy.Arm(servers.Rule{Sent: release, Do: servers.Hold, For: ttl * 12 / 10}))
		}, 300*time.Millisecond, ttl*9/10, 100*time.Millisecond)
		x.audit()
	}, Timeline)
}

func getSet() []Part {
	return []Part{
		deletedMeanwhile("redis-getset", "\r\nget\r\n", checker.Deadlocked(2*time.Second)),
		asRemedy(deletedMeanwhile("redis-lua", "\r\nevalsha\r\n",
			checker.All(checker.WaitedAtMost(2*time.Second, checker.OfClients(1)), checker.Outcomes(history.Sold, 2), checker.AtLeast("requests_held", 1), checker.Clean()))),
		clocks("redis-getset", checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
		asRemedy(clocks("redis-lua", checker.All(checker.ExclusiveHolders(), checker.Clean()))),
	}
}

// deletedMeanwhile has the first replica give the lock back while the second one's look at it, or its script, is on
// its way.
func deletedMeanwhile(strategy, look string, seen checker.Check) Part {
	stage := onRedis("STOCKD_LOCK_TTL=4s", "STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_TIMEOUT=5s")
	stage.Servers = throughRedis
	return newPart(strategy+"-nil", stage, seen, func(x *Try) {
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
	}, Timeline)
}

// clocks has the second replica's clock ten seconds ahead.
func clocks(strategy string, seen checker.Check) Part {
	stage := onRedis("STOCKD_LOCK_TTL=5s", "STOCKD_LOCK_WAIT=8s")
	stage.Own = map[int][]string{2: {"STOCKD_LAB_CLOCK_OFFSET=10s"}}
	return newPart(strategy+"-clocks", stage, seen, func(x *Try) {
		x.stock(100)
		x.buyWhileAtWork(Sale{Strategy: strategy}, nil, time.Second, 500*time.Millisecond)
		x.audit()
	}, Timeline)
}

func lostReply() []Part {
	// sentAgain has a buyer who gets no answer send the purchase once more.
	sentAgain := func(name, key string, seen checker.Check) Part {
		return newPart(name, Stage{Replicas: 1}, seen, func(x *Try) {
			x.stock(100)
			proxy := x.proxied(strings.TrimPrefix(x.URL(1), "http://"))
			sale := Sale{Strategy: "sql-conditional", Key: key, URL: "http://" + proxy.Address}
			lost := proxy.Arm(servers.Rule{Sent: "POST /deduct", Do: servers.LoseReply})
			x.buy(1, sale)
			x.awaitMet(lost)
			x.buy(1, sale)
			x.audit()
		})
	}
	return []Part{
		sentAgain("blind", "", checker.DeductedTwice()),
		asRemedy(sentAgain("with-key", "order-17", checker.All(checker.DeductedOnce(), checker.Clean()))),
	}
}

func getCompareSet() []Part {
	three := shared(Redis)
	// crowd buys more than there is.
	crowd := func(name, strategy string, stage Stage, seen checker.Check) Part {
		return newPart(name, stage, seen, sellOut(strategy, 300, 400))
	}
	return []Part{
		crowd("one-replica", "redis-get-set", Stage{Needs: three.Needs, Replicas: 1}, checker.Oversold()),
		crowd("three-replicas", "redis-get-set", three, checker.Oversold()),
		asRemedy(crowd("locked", "redis-get-set-locked", three, checker.All(checker.Clean(), checker.SoldOut(300), checker.ExclusiveHolders()))),
		lateSet("redis-setnx-ttl", checker.All(checker.OverlappingHolders(), checker.Oversold())),
		asRemedy(lateSet("redis-reentrant", checker.All(checker.ExclusiveHolders(), checker.Clean(), checker.SoldOut(100)))),
	}
}

// lateSet has the first replica pause between its GET and its SET for longer than the TTL of the lock that
// redis-get-set-locked uses.
func lateSet(lock string, seen checker.Check) Part {
	const strategy = "redis-get-set-locked"
	return newPart("under-"+lock, onRedis("STOCKD_LOCK_WAIT=8s", "STOCKD_REDIS_GET_SET_LOCK="+lock), seen, func(x *Try) {
		x.stock(100)
		x.willStall(1, ttl*5/2)
		x.start(func() { x.buy(1, Sale{Strategy: strategy}) })
		x.awaitFault(1)
		x.sell(Sale{Strategy: strategy, Replica: 2, FirstClient: 1, Clients: 4, Requests: 60})
		x.wait()
		x.sell(Sale{Strategy: strategy, Replica: 3, FirstClient: 5, Clients: 4, Requests: 80})
		x.audit()
	}, Timeline)
}
