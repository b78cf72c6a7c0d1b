package experiments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/pause"
)

func holderCrashes() []Part {
	never := checker.All(checker.WaitedAtLeast(2*ttl, checker.OfHolders("second")), checker.NeverGrantedTo("second"))
	aTTLLater := checker.All(checker.WaitedBetween(ttl/2, ttl+slack, checker.OfHolders("second")), checker.GrantedTo("second"))
	return []Part{
		deadHolder("redis-setnx", checker.Deadlocked(4*time.Second)),
		asRemedy(deadHolder("redis-setnx-ttl", checker.FreedBetween(ttl/2, ttl+slack))),
		diesBeforeReply("setnx-then-expire", sourcelock.SetNXThenExpire, setNX, never),
		asRemedy(diesBeforeReply("set-nx-px", "redis-setnx-ttl", setNX, aTTLLater)),
		asRemedy(diesBeforeReply("script", sourcelock.SetNXExpireScript, "\r\neval\r\n", aTTLLater)),
		asRemedy(deadSession("zk-sequential", ZooKeeper)),
		asRemedy(deadSession("etcd", Etcd)),
	}
}

// deadHolder has replica 1 die between its read and its write, and others try, each for a second and then again, for
// longer than any expiry.
func deadHolder(strategy string, seen checker.Check) Part {
	return newPart(strategy, onRedis("STOCKD_LOCK_WAIT=1s"), seen, func(x *Try) {
		x.holderDies(strategy)
		x.sell(Sale{Strategy: strategy, Replica: 2, FirstClient: 1, Clients: 4, Duration: 5 * time.Second})
	}, Timeline)
}

// holderDies has replica 1 kill itself in a purchase, while it holds the lock of the item.
func (x *Try) holderDies(strategy string) {
	x.stock(1000)
	x.willCrash(1)
	x.start(func() { x.buy(1, Sale{Strategy: strategy}) })
	x.awaitGone(1)
	x.wait()
}

// setNX are the bytes by which a proxy knows a SETNX: clients of today send it as SET … NX.
const setNX = "\r\nset\r\n"

// diesBeforeReply has the first contender die, its connections cut, when Redis has carried out the first request by
// which it takes the lock.
func diesBeforeReply(name, kind, request string, seen checker.Check) Part {
	return newPart(name, on(Redis), seen, func(x *Try) {
		first, second := x.firstAndSecond(kind, Redis, ttl)
		first.askHeldUp(servers.Rule{Sent: request, Do: servers.HoldReply})
		first.die()
		second.ask(3 * ttl)
		second.giveBack()
	}, Timeline)
}

// deadSession has a holder die whose lock ends with a session or a lease that it keeps alive: not at once, when its
// connection ends, but when it has been silent for so long.
func deadSession(strategy string, need Need) Part {
	seen := checker.FreedBetween(sessionLease/3, sessionLease+slack)
	return newPart(strategy, onSessions(need, "STOCKD_LOCK_WAIT=8s"), seen, func(x *Try) {
		x.holderDies(strategy)
		x.sell(Sale{Strategy: strategy, Replica: 2, FirstClient: 1, Clients: 4, Requests: 4})
	}, Timeline)
}

func workOutlastsTTL() []Part {
	return []Part{
		slowHolders("redis-setnx-ttl", checker.All(checker.OverlappingHolders(), checker.TakenEarly(ttl), checker.LostUpdates())),
		asRemedy(slowHolders("redis-lua", checker.NeverTakenEarly(ttl))),
		asRemedy(slowHolders("redis-reentrant", checker.All(checker.ExclusiveHolders(), checker.Clean()))),
	}
}

// slowHolders has the first replica work for longer than the TTL, the second for less, so that the first is done in
// the middle of it, and the third wait.
func slowHolders(strategy string, seen checker.Check) Part {
	return newPart(strategy, onRedis("STOCKD_LOCK_WAIT=8s"), seen, func(x *Try) {
		x.stock(100)
		x.buyWhileAtWork(Sale{Strategy: strategy}, nil, ttl*16/10, ttl*8/10, 200*time.Millisecond)
		x.audit()
	}, Timeline)
}

func reentrancy() []Part {
	takenTwice := func(lock string, seen checker.Check) Part {
		return newPart(lock, on(Redis), seen, func(x *Try) { x.takeTwice(lock, Redis) }, Timeline)
	}
	return []Part{
		takenTwice("redis-setnx", checker.LockedItselfOut()),
		asRemedy(takenTwice("redis-reentrant", checker.Reentered())),
	}
}

func watchdog() []Part {
	dead := deadHolder("redis-reentrant", checker.Freed(ttl+slack))
	dead.Name = "watchdog-dies"
	renewed := deadHolder("redis-lua", checker.Deadlocked(4*time.Second))
	renewed.Name = "separate-renewer" // a service of its own renews the lock
	dies := renewed.Do
	renewed.Do = func(x *Try) {
		client := x.redis()
		x.meanwhile(func() { dies(x) }, func(during context.Context) { // it does not know whether the holder lives
			keys, err := client.Keys(during, fmt.Sprintf("*{goods%%2F%d}:redis-lua", x.Item)).Result()
			for _, key := range keys {
				err = errors.Join(err, client.PExpire(during, key, ttl).Err())
			}
			if during.Err() == nil {
				x.Must(err)
			}
			_ = pause.For(during, ttl/10) // what ends it ends the renewals
		})
	}
	return []Part{
		longWork("redis-setnx-owner", checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
		asRemedy(longWork("redis-reentrant", checker.All(checker.ExclusiveHolders(), checker.Clean()))),
		renewed,
		asRemedy(dead),
	}
}

// longWork has the first replica work for longer than the TTL while the second wants the lock.
func longWork(strategy string, seen checker.Check) Part {
	return newPart(strategy, onRedis("STOCKD_LOCK_WAIT=8s"), seen, func(x *Try) {
		x.stock(100)
		x.buyWhileAtWork(Sale{Strategy: strategy}, nil, ttl*5/2, 500*time.Millisecond)
		x.audit()
	}, Timeline)
}

func tryLock() []Part {
	// limited has one replica work for three seconds, and ten clients wait at another.
	limited := func(name, limit string, seen checker.Check) Part {
		return newPart(name, onRedis(limit, "STOCKD_DEDUCT_TIMEOUT=30s"), seen, func(x *Try) {
			x.stock(100)
			x.willWork(1, 3*time.Second)
			x.start(func() { x.buy(1, Sale{Strategy: "redis-reentrant"}) })
			x.awaitFault(1)
			x.sell(Sale{Strategy: "redis-reentrant", Replica: 2, FirstClient: 1, Clients: 10, Requests: 10})
			x.wait()
			x.audit()
		}, Waits)
	}
	waiting := checker.OfClients(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	return []Part{
		limited("no-limit", "STOCKD_LOCK_WAIT=20s", checker.All(checker.WaitedAtLeast(2*time.Second, waiting), checker.Outcomes(history.Sold, 11))),
		asRemedy(limited("one-second", "STOCKD_LOCK_WAIT=1s", checker.Busy(10, time.Second+slack))),
	}
}

func pausedHolder() []Part {
	locks := []struct {
		strategy string
		need     Need
	}{{"redis-lua", Redis}, {"redlock", Redlock}, {"zk-sequential", ZooKeeper}, {"etcd", Etcd}}
	parts := make([]Part, 0, 2*len(locks))
	for _, l := range locks {
		parts = append(parts,
			pausedIn(l.strategy, Sale{Strategy: l.strategy}, l.need, checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			asRemedy(pausedIn(l.strategy+"-fenced", Sale{Strategy: l.strategy, Fence: true}, l.need,
				checker.All(checker.OverlappingHolders(), checker.StaleWritesRejected(), checker.Clean()))))
	}
	return parts
}

// sessionLease is how long a silent holder keeps a lock of these stages: the shortest that
// etcd grants with its defaults.
const sessionLease = 2 * time.Second

// onSessions is three replicas whose locks are on one kind of server.
func onSessions(need Need, env ...string) Stage {
	return Stage{
		Needs: []Need{need}, Replicas: 3, Lab: true,
		Env: append([]string{"STOCKD_LOCK_TTL=" + sessionLease.String()}, env...),
	}
}

// pausedIn has the first replica stop in its critical section for two and a half times as long as its lease lasts.
func pausedIn(name string, sale Sale, need Need, seen checker.Check) Part {
	return newPart(name, onSessions(need, "STOCKD_LOCK_WAIT=10s", "STOCKD_DEDUCT_TIMEOUT=20s"), seen, func(x *Try) {
		x.stock(100)
		x.willPause(1)
		x.start(func() { x.buy(1, sale) })
		x.awaitStopped(1)
		x.start(func() { x.buy(2, sale) })
		x.sleep(sessionLease * 5 / 2)
		x.wake(1)
		x.wait()
		x.audit()
	}, Timeline)
}
