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

func holderCrashes() Experiment {
	aTTLLater := checker.All(checker.WaitedBetween(ttl/2, ttl+slack, checker.OfHolders("second")), checker.GrantedTo("second"))
	return Experiment{
		Number: 6, Name: "holder-crashes", Title: "SETNX without an expiry: the lock of a dead holder is never released",
		Claim: "A holder that dies between SETNX and DEL, or between SETNX and EXPIRE, leaves the lock taken for ever; with an expiry that is set together with the key, " +
			"or with a session or lease that the holder keeps alive, the others wait no longer than that.",
		Source: chapterOne + ", what if the lock is never released; " + basicSearch + ", simple form, and deadlock; " + twoWays + ", Redis; " +
			zooKeeping + ", the end of a session",
		Fix: "stocklab lab run holder-crashes  # redis-setnx-ttl and better ones come back by themselves",
		Parts: []Part{
			deadHolder("redis-setnx", "buyers find the lock taken until the end, long after the TTL of the others",
				checker.Deadlocked(4*time.Second)),
			asRemedy(deadHolder("redis-setnx-ttl", "the lock is free again one TTL after the crash",
				checker.Freed(ttl+slack))),
			diesBetween("setnx-then-expire", sourcelock.SetNXThenExpire, setNX, "the key has no expiry, and the second finds it taken until its limit",
				checker.WaitedAtLeast(2*ttl, checker.OfHolders("second"))),
			asRemedy(diesBetween("set-nx-px", "redis-setnx-ttl", setNX, "key and expiry are one command: the second has the lock one TTL later", aTTLLater)),
			asRemedy(diesBetween("script", sourcelock.SetNXExpireScript, "\r\neval\r\n", "the two commands are one script: the second has the lock one TTL later", aTTLLater)),
			deadSession("zk-sequential", ZooKeeper, "session"),
			deadSession("etcd", Etcd, "lease"),
		},
	}
}

// deadHolder has replica 1 die between its read and its write, and others try for longer than any expiry.
func deadHolder(strategy, expect string, seen checker.Check) Part {
	return Part{
		Name: strategy, Stage: onRedis("STOCKD_LOCK_WAIT=1s"),
		Does:   "replica 1 is killed while it holds the lock of " + strategy + "; for five seconds four clients try at replica 2",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			x.holderDies(strategy)
			x.sell(Sale{Strategy: strategy, Replica: 2, FirstClient: 1, Clients: 4, Duration: 5 * time.Second})
		},
	}
}

// holderDies has replica 1 kill itself in a purchase, while it holds the lock of the item.
func (x *Try) holderDies(strategy string) {
	x.stock(1000)
	x.willCrash(1)
	x.start(func() { x.buy(1, Sale{Strategy: strategy}) })
	x.awaitGone(1)
	x.wait()
}

// setNX is how a client of today sends SETNX: as SET … NX.
const setNX = "\r\nset\r\n"

// diesBetween has the first contender die when Redis has carried out the first request by which it takes the lock.
func diesBetween(name, kind, request, expect string, seen checker.Check) Part {
	return Part{
		Name: name, Stage: on(Redis),
		Does:   "the first contender takes " + kind + " and dies before it has the reply to its first request; the second asks for three TTL",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			first, second := x.firstAndSecond(kind, Redis, ttl)
			first.askHeldUp(servers.Rule{Sent: request, Do: servers.HoldReply})
			first.die()
			second.ask(3 * ttl)
			second.giveBack()
		},
	}
}

// deadSession has a holder die whose lock ends with a session or a lease that it keeps alive. The end of its
// connection does not end it.
func deadSession(strategy string, need Need, what string) Part {
	return Part{
		Name: strategy, Remedy: true, Stage: onSessions(need, "STOCKD_LOCK_WAIT=8s"),
		Does:   "replica 1 is killed while it holds the lock of " + strategy + "; four clients wait for it at replica 2",
		Expect: "the server ends the " + what + " of the dead holder, not at once with its connection but when it has been silent for so long: then the lock is free",
		Do: func(x *Try) {
			x.holderDies(strategy)
			x.sell(Sale{Strategy: strategy, Replica: 2, FirstClient: 1, Clients: 4, Requests: 4})
		},
		Check: checker.FreedBetween(sessionLease/3, sessionLease+slack), Pictures: []Picture{Timeline},
	}
}

func workOutlastsTTL() Experiment {
	return Experiment{
		Number: 7, Name: "work-outlasts-ttl", Title: "The expiry is shorter than the work: two holders, and one deletes the other's lock",
		Claim:  "When work takes longer than the expiry a second holder gets in, and the first one, when it is done, deletes the second one's lock, so that a third gets in.",
		Source: chapterOne + ", what if the wrong lock is deleted",
		Fix:    "stocklab demo --strategies redis-reentrant --replicas 3",
		Parts: []Part{
			slowHolders("redis-setnx-ttl", "two hold the lock at once, the third is let in while the second one's lease is good, and updates are lost",
				checker.All(checker.OverlappingHolders(), checker.TakenEarly(ttl), checker.LostUpdates())),
			asRemedy(slowHolders("redis-lua", "no contender is granted the lock while the lease of another is valid: a holder deletes only its own",
				checker.NeverTakenEarly(ttl))),
			asRemedy(slowHolders("redis-reentrant", "one holder at a time, because its lease is renewed while it works, and no update is lost",
				checker.All(checker.ExclusiveHolders(), checker.Clean()))),
		},
	}
}

// slowHolders has the first replica work for longer than the TTL, the second for less, so that the first is done in
// the middle of it, and the third wait.
func slowHolders(strategy, expect string, seen checker.Check) Part {
	return Part{
		Name: strategy, Stage: onRedis("STOCKD_LOCK_WAIT=8s"),
		Does:   "replica 1 works for 1.6 TTL under " + strategy + ", replica 2 for 0.8, and replica 3 wants the lock, too",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			sale := Sale{Strategy: strategy}
			x.stock(100)
			x.willStall(1, ttl*16/10)
			x.willStall(2, ttl*8/10)
			x.willStall(3, 200*time.Millisecond)
			x.start(func() { x.buy(1, sale) })
			x.awaitFault(1)
			x.start(func() { x.buy(2, sale) })
			x.awaitFault(2)
			x.buy(3, sale)
			x.wait()
			x.audit()
		},
	}
}

func reentrancy() Experiment {
	takenTwice := func(lock, expect string, seen checker.Check) Part {
		return Part{
			Name: lock, Stage: on(Redis),
			Does:   "one owner takes " + lock + ", and takes it again while it has it, for two seconds at most",
			Expect: expect,
			Do:     func(x *Try) { x.takeTwice(lock, Redis) },
			Check:  seen, Pictures: []Picture{Timeline},
		}
	}
	return Experiment{
		Number: 9, Name: "reentrancy", Title: "A lock that is not reentrant, taken twice, waits for itself",
		Claim:  "A method that holds the lock and calls another that wants it deadlocks itself; a hash with the owner and a count lets it in again.",
		Source: chapterOne + ", reentrancy; " + basicSearch + ", what a distributed lock needs",
		Fix:    "stocklab lab run reentrancy  # redis-reentrant is",
		Parts: []Part{
			takenTwice("redis-setnx", "the second one is never granted", checker.LockedItselfOut()),
			asRemedy(takenTwice("redis-reentrant", "the second one is granted at once", checker.Reentered())),
		},
	}
}

func watchdog() Experiment {
	dead := deadHolder("redis-reentrant", "the watchdog died with its process: the lock is free again one TTL after the crash", checker.Freed(ttl+slack))
	dead.Name = "watchdog-dies"
	renewed := deadHolder("redis-lua", "the renewals go on, and no contender gets the lock of the dead holder", checker.Deadlocked(4*time.Second))
	renewed.Name, renewed.Does = "separate-renewer", renewed.Does+"; a service of its own renews the lock ten times a TTL"
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
	return Experiment{
		Number: 10, Name: "watchdog", Title: "A watchdog renews the lease while its holder works, and dies with it",
		Claim:  "Renewed at a third of its time the lease does not run out in the middle of the work; as it is renewed by the holder's own process, and not by a service beside it, it runs out when that dies.",
		Source: chapterOne + ", renewal by a service or by the holder, and the watchdog of Redisson; " + twoWays + ", the watchdog",
		Fix:    "stocklab demo --strategies redis-reentrant --replicas 3",
		Parts: []Part{
			longWork("redis-setnx-owner", "the second one is let in while the first one works, and an update is lost",
				checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			asRemedy(longWork("redis-reentrant", "the second one waits until the first one is done",
				checker.All(checker.ExclusiveHolders(), checker.Clean()))),
			renewed,
			asRemedy(dead),
		},
	}
}

// longWork has the first replica work for longer than the TTL while the second wants the lock.
func longWork(strategy, expect string, seen checker.Check) Part {
	return Part{
		Name: strategy, Stage: onRedis("STOCKD_LOCK_WAIT=8s"),
		Does:   "replica 1 works for 2.5 TTL under " + strategy + ", and replica 2 wants the lock",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			x.stock(100)
			x.whileOneWorks(Sale{Strategy: strategy}, ttl*5/2, nil)
			x.audit()
		},
	}
}

func tryLock() Experiment {
	// limited has one replica work for three seconds, and ten clients wait at another.
	limited := func(name, limit, expect string, seen checker.Check) Part {
		return Part{
			Name: name, Stage: onRedis(limit, "STOCKD_DEDUCT_TIMEOUT=30s"),
			Does:   "replica 1 works for three seconds under redis-reentrant, ten clients buy at replica 2; lock.wait is set by " + limit,
			Expect: expect, Check: seen, Pictures: []Picture{Waits},
			Do: func(x *Try) {
				x.stock(100)
				x.willWork(1, 3*time.Second)
				x.start(func() { x.buy(1, Sale{Strategy: "redis-reentrant"}) })
				x.awaitFault(1)
				x.sell(Sale{Strategy: "redis-reentrant", Replica: 2, FirstClient: 1, Clients: 10, Requests: 10})
				x.wait()
				x.audit()
			},
		}
	}
	waiting := checker.OfClients(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	return Experiment{
		Number: 11, Name: "try-lock", Title: "Waiting without a limit, against a wait limit and “busy”",
		Claim:  "A request that waits for a lock without a limit is blocked as long as the holder works; in a flash sale one tries for some time and answers that the system is busy.",
		Source: chapterOne + ", a lock that blocks",
		Fix:    "stockd serve --lock-wait 1s",
		Parts: []Part{
			limited("no-limit", "STOCKD_LOCK_WAIT=20s", "all ten wait until the holder is done",
				checker.All(checker.WaitedAtLeast(2*time.Second, waiting), checker.Outcomes(history.Sold, 11))),
			asRemedy(limited("one-second", "STOCKD_LOCK_WAIT=1s", "all ten get busy, in about a second",
				checker.Busy(10, time.Second+slack))),
		},
	}
}

func pausedHolder() Experiment {
	e := Experiment{
		Number: 19, Name: "paused-holder", Title: "A holder pauses past its lease: two holders; a fence makes that harmless",
		Claim:  "A client that is paused for longer than its session, lease or expiry still believes that it holds the lock when it resumes, and writes; a fencing token that the store checks rejects the write.",
		Source: chapterOne + ", the true problem of ZooKeeper; " + chapterOne + ", fencing tokens; " + chapterOne + ", Redlock: pauses of the client; " + zooKeeping + ", Redlock",
		Fix:    "curl -X POST 'http://127.0.0.1:8080/deduct?strategy=zk-sequential&fence=true&goods_id=1'",
	}
	for _, l := range []struct {
		strategy string
		need     Need
	}{{"redis-lua", Redis}, {"redlock", Redlock}, {"zk-sequential", ZooKeeper}, {"etcd", Etcd}} {
		e.Parts = append(e.Parts,
			pausedIn(l.strategy, Sale{Strategy: l.strategy}, l.need, "two hold the lock at once, and an update is lost",
				checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			asRemedy(pausedIn(l.strategy+"-fenced", Sale{Strategy: l.strategy, Fence: true}, l.need, "two hold the lock at once; the late write is rejected, and nothing is lost",
				checker.All(checker.OverlappingHolders(), checker.StaleWritesRejected(), checker.Clean()))))
	}
	return e
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
func pausedIn(name string, sale Sale, need Need, expect string, seen checker.Check) Part {
	return Part{
		Name: name, Stage: onSessions(need, "STOCKD_LOCK_WAIT=10s", "STOCKD_DEDUCT_TIMEOUT=20s"),
		Does:   "replica 1 is stopped (SIGSTOP) in its critical section under " + sale.Strategy + " for 2.5 leases, and replica 2 sells meanwhile",
		Expect: expect, Check: seen, Tries: 3, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			x.stock(100)
			x.willPause(1)
			x.start(func() { x.buy(1, sale) })
			x.awaitStopped(1)
			x.start(func() { x.buy(2, sale) })
			x.sleep(sessionLease * 5 / 2)
			x.wake(1)
			x.wait()
			x.audit()
		},
	}
}
