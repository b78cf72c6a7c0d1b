package experiments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
)

func fairness() Experiment {
	e := Experiment{
		Number: 24, Name: "fairness", Title: "The longest wait: locks with and without first-in-first-out order",
		Claim:  "A good lock has a fair form, in which waiters are served in the order in which they came; where they try again and again, luck decides.",
		Source: chapterOne + ", what a distributed lock needs",
		Fix:    "stocklab demo --strategies redis-fair,zk-sequential,etcd --replicas 3",
		Parts:  []Part{contended("redsync", Redis, "the unluckiest waits many times as long as most", checker.Unfair(10, checker.OfHolders()))},
	}
	for _, l := range []struct {
		lock string
		need Need
	}{{"redis-fair", Redis}, {"zk-sequential", ZooKeeper}, {"etcd", Etcd}} {
		e.Parts = append(e.Parts, asRemedy(contended(l.lock, l.need, "no waiter is overtaken by later ones, but for contenders that ask at the same moment",
			checker.All(checker.Waited(checker.OfHolders()), checker.InTurn(2*contenders), checker.ExclusiveHolders(), checker.Granted(contenders)))))
	}
	return e
}

// contenders is how many want the same name.
const contenders = 24

func contended(kind string, need Need, expect string, seen checker.Check) Part {
	return Part{
		Name: kind, Stage: on(need),
		Does:   fmt.Sprintf("%d contenders with connections of their own hold %s for 2 ms each, again and again, for three seconds", contenders, kind),
		Expect: expect, Check: seen, Pictures: []Picture{Waits},
		Do: func(x *Try) {
			x.contendFor(3*time.Second, x.crowd(contenders, kind, need, false), 2*time.Millisecond, 10*time.Second)
		},
	}
}

// contendFor has contenders hold a lock again and again for so long. None waits for it longer than within.
func (x *Try) contendFor(lasts time.Duration, crowd []lock.Locker, each, within time.Duration) {
	end := time.Now().Add(lasts)
	x.Each(len(crowd), func(i int) {
		for time.Now().Before(end) {
			x.holdFor(each, crowd[i], x.lockName(), within)
		}
	})
}

func herd() Experiment {
	const few = 1.5
	// A release that does not come wakes none.
	atMost := func(most float64) checker.Check {
		return checker.All(checker.AtMost(wakeUps, most), checker.Granted(contenders*herdHolds))
	}
	session, replica := fmt.Sprintf("%d contenders with a session each", contenders), fmt.Sprintf("%d requests to one replica, with one session,", contenders)
	sharing := woken("etcd", Etcd, true, replica, "they are requests to one replica, which gets two events a release, however many wait, and wakes the one whose turn it is", atMost(2+few/2))
	sharing.Name += "-shared"
	return Experiment{
		Number: 17, Name: "herd", Title: "The herd: every release wakes all waiters, or just the next one",
		Claim:  "Where all waiters watch the same node, each release wakes all of them and all but one for nothing; where each watches the one before it, one is woken.",
		Source: flashSales + ", the herd; " + zooKeeping + ", the optimization; " + chapterOne + ", watching the predecessor; " + chapterOne + ", etcd: watching the key before",
		Fix:    "stocklab demo --strategies zk-herd,zk-sequential --replicas 3",
		Parts: []Part{
			woken("zk-herd", ZooKeeper, false, session, "about half as many wake-ups a release as there are contenders, because the queue shrinks", checker.AtLeast(wakeUps, contenders/4)),
			woken("zk-ephemeral", ZooKeeper, false, session, "the same", checker.AtLeast(wakeUps, contenders/4)),
			asRemedy(woken("zk-sequential", ZooKeeper, false, session, "at most one wake-up a release", atMost(few))),
			woken("etcd", Etcd, false, session, "each contender is a replica, whose one watch of the prefix gets every key that comes or goes: two events a release for each of them", checker.AtLeast(wakeUps, contenders)),
			asRemedy(woken(sourcelock.PreKey, Etcd, false, session, "each watches the key before its own: at most one event a release", atMost(few))),
			asRemedy(sharing),
		},
	}
}

const (
	herdHolds = 2 // of each
	wakeUps   = "wakeups_per_release"
)

// woken has contenders hold a lock twice each, and counts.
func woken(kind string, need Need, shared bool, who, expect string, seen checker.Check) Part {
	counts, fired := "how many watches it fired", (*Try).firedByZooKeeper
	if need == Etcd {
		counts, fired = "how many events it sent to watches", (*Try).sentByEtcd
	}
	return Part{
		Name: kind, Stage: on(need),
		Does:   fmt.Sprintf("%s hold %s twice for 10 ms; the server tells %s", who, kind, counts),
		Expect: expect,
		Do: func(x *Try) {
			crowd := x.crowd(contenders, kind, need, shared)
			before := fired(x)
			x.Each(contenders, func(i int) {
				for range herdHolds {
					x.holdFor(10*time.Millisecond, crowd[i], x.lockName(), patience)
				}
			})
			woken := fired(x) - before
			x.Figures(map[string]float64{"watches_fired": woken, wakeUps: woken / (contenders * herdHolds)})
		},
		Check: checker.All(seen, checker.ExclusiveHolders()), Pictures: []Picture{Wakes, Timeline},
	}
}

// firedByZooKeeper asks the server how many watches on nodes that went, and on the children of nodes, it has fired.
func (x *Try) firedByZooKeeper() (sum float64) {
	said := x.askZooKeeper("mntr")
	for _, counter := range []string{"zk_sum_node_deleted_watch_count", "zk_sum_node_children_watch_count"} {
		value, err := shop.Counter(said, counter+"\t")
		x.Must(err)
		sum += value
	}
	return sum
}

// sentByEtcd is how many events etcd has sent to watches when no more come: a watch that lags is served from a loop
// of 100 ms.
func (x *Try) sentByEtcd() (sent float64) {
	const etcdLoop = 100 * time.Millisecond
	for last := -1.0; sent != last; {
		last = sent
		x.sleep(3 * etcdLoop)
		ctx, cancel := context.WithTimeout(x, answerWithin)
		var err error
		sent, err = shop.Client{AdminURL: x.Backends.Etcd.Endpoint}.Metric(ctx, "etcd_debugging_mvcc_events_total")
		cancel()
		x.Must(err)
	}
	return sent
}

func lateWatch() Experiment {
	watched := func(kind, does, expect string, seen checker.Check) Part {
		return Part{
			Name: kind, Stage: on(ZooKeeper),
			Does:   does + "; a proxy holds up the watch until the node before is gone",
			Expect: expect, Check: seen, Pictures: []Picture{Timeline},
			Do: func(x *Try) {
				proxy := x.proxied(x.Backends.ZooKeeper.Address)
				first := x.queuer("first", kind, x.Backends.ZooKeeper.Address, lateSession)
				second := x.queuer("second", kind, proxy.Address, lateSession)
				lease := x.take(first, x.lockName())
				watch := proxy.Arm(servers.Rule{Sent: x.latestNode(), Do: servers.Hold})
				x.start(func() { x.holdFor(0, second, x.lockName(), 4*time.Second) })
				x.awaitMet(watch)
				x.Must(lease.Release(x))
				x.pass("proxy", watch)
				x.wait()
			},
		}
	}
	return Experiment{
		Number: 18, Name: "late-watch", Title: "The watched node is gone before the watch is set: nothing ever comes",
		Claim:  "Where the node before is deleted between the list and the watch, the listener waits for a deletion that has been already; to look whether it is there once the watch is set closes the gap.",
		Source: flashSales + ", a bug; " + basicSearch + ", ZooKeeper; " + zooKeeping + ", atomic reads and watches",
		Fix:    "stocklab demo --strategies zk-sequential --replicas 3",
		Parts: []Part{
			watched(sourcelock.NodeCache, "the second of two contenders listens for the deletion of the first one's node, and does not look whether it is there",
				"the lock is free, and the second one waits until its limit", checker.Deadlocked(3*time.Second)),
			asRemedy(watched("zk-sequential", "the same two contend through zk-sequential",
				"the second one has the lock as soon as the watch has been answered", checker.All(checker.WaitedAtMost(2*time.Second, checker.OfHolders("second")), checker.GrantedTo("second")))),
		},
	}
}

// lateSession outlasts what a proxy holds up.
const lateSession = 6 * time.Second

func waitersLeave() Experiment {
	return Experiment{
		Number: 30, Name: "end-of-waiting", Title: "The end of a wait is not the grant: the waiter ahead leaves, or time is up",
		Claim:  "A waiter that takes any deletion of the node before its own for its turn, or the end of its time for the lock, holds it beside the holder; it must look who is first when it is woken, and give up when its time is up.",
		Source: flashSales + ", the node listener; " + zooKeeping + ", waitForLock; " + chapterOne + ", ZooKeeper, and etcd: watching the key before",
		Fix:    "stocklab demo --strategies zk-sequential --replicas 3",
		Parts: []Part{
			middleLeaves("any-deletion", sourcelock.NodeCache, ZooKeeper, "node", "the third takes the deletion for its turn, and holds the lock beside the first", checker.Together("first", "third")),
			asRemedy(middleLeaves("looks-again", "zk-sequential", ZooKeeper, "node", "the third looks who is first, and waits for the first", checker.Apart("first", "third"))),
			middleLeaves("any-deletion-etcd", sourcelock.PreKeyOnce, Etcd, "key", "the same in etcd: the third holds the lock beside the first", checker.Together("first", "third")),
			asRemedy(middleLeaves("looks-again-etcd", sourcelock.PreKey, Etcd, "key", "the third looks whose key is the first, and waits for the first", checker.Apart("first", "third"))),
			timeIsUp("timeout-is-true", sourcelock.NodeCacheTimeout, "after 300 ms the second goes on as if it held the lock", checker.Together("first", "second")),
			asRemedy(timeIsUp("timeout-is-false", "zk-sequential", "the second gives up when its time is up", checker.RejectedWithin(time.Second+slack))),
		},
	}
}

// middleLeaves has the second of three in a queue give up.
func middleLeaves(name, kind string, need Need, what, expect string, seen checker.Check) Part {
	return Part{
		Name: name, Stage: on(need),
		Does:   "three contenders queue for " + kind + "; while the first holds it, the second gives up and deletes its " + what,
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			first, second := x.firstAndSecond(kind, need, 3*sessionLease)
			third := x.enter("third", kind, need, 3*sessionLease)
			first.acquire()
			second.queue()
			third.queue()
			second.giveUp()
			third.awaitAnswer(asks)
			x.givenBack(first, third)
		},
	}
}

func timeIsUp(name, kind, expect string, seen checker.Check) Part {
	return Part{
		Name: name, Stage: on(ZooKeeper),
		Does:   "the second contender asks for " + kind + " while the first holds it, for a second at most",
		Expect: expect, Check: seen, Pictures: []Picture{Timeline},
		Do: func(x *Try) {
			first, second := x.firstAndSecond(kind, ZooKeeper, lateSession)
			first.acquire()
			second.ask(time.Second)
			x.givenBack(first, second)
		},
	}
}

func spinning() Experiment {
	// Between the two is what a busy machine may change: 23 that wait send one request each in the
	// 50 ms for which the lock is held, or all that they can.
	const many, few = 150, 75
	return Experiment{
		Number: 32, Name: "spinning", Title: "Asking again at once keeps Redis busy; a pause does not",
		Claim:  "A loop that asks for the lock again as soon as it finds it taken loads Redis with requests in vain; a pause of 50 ms between two tries is the remedy.",
		Source: chapterOne + ", SETNX and the loop that tries again",
		Fix:    "stocklab demo --strategies redis-lua,redis-reentrant --replicas 3",
		Parts: []Part{
			retried(sourcelock.SetNXSpin, "again at once", "many requests for each time that the lock is held", checker.AtLeast("tries_per_hold", many)),
			asRemedy(retried(sourcelock.SetNXPause, "again after 50 ms", "a few requests for each time that the lock is held", checker.All(checker.AtMost("tries_per_hold", few), checker.Granted(contenders)))),
		},
	}
}

// retried counts what Redis does while contenders take a lock by SET and give it back by DEL. Nothing else may do that
// meanwhile.
func retried(kind, how, expect string, seen checker.Check) Part {
	return Part{
		Name: kind, Stage: on(Redis),
		Does:   fmt.Sprintf("%d contenders hold a lock for 50 ms each, again and again for two seconds; one that finds it taken asks %s (%s); Redis counts", contenders, how, kind),
		Expect: expect,
		Do: func(x *Try) {
			crowd, client := x.crowd(contenders, kind, Redis, false), x.redis()
			before, begun := x.redisWork(client), time.Now()
			x.contendFor(2*time.Second, crowd, 50*time.Millisecond, patience)
			took, after := time.Since(begun), x.redisWork(client)
			holds := after["del"] - before["del"]
			if holds == 0 {
				x.Must(errors.New("the lock was never held, so that there is nothing to count tries for"))
			}
			x.Figures(map[string]float64{
				"tries_per_hold": (after["set"] - before["set"]) / holds, "holds_per_s": holds / took.Seconds(),
				"redis_cpu_ms_per_hold": 1000 * (after["cpu"] - before["cpu"]) / holds,
			})
		},
		Check: checker.All(seen, checker.Reported("holds_per_s", "redis_cpu_ms_per_hold"), checker.ExclusiveHolders()),
	}
}

// redisWork is how often Redis has carried out SET and DEL, and its processor time in seconds.
func (x *Try) redisWork(client *redis.Client) map[string]float64 {
	commands, times := client.InfoMap(x, "commandstats"), client.InfoMap(x, "cpu")
	x.Must(errors.Join(commands.Err(), times.Err()))
	number := func(text, format string) (n float64) {
		_, _ = fmt.Sscanf(text, format, &n) // a command that was never sent has none
		return n
	}
	return map[string]float64{
		"set": number(commands.Item("Commandstats", "cmdstat_set"), "calls=%g"), "del": number(commands.Item("Commandstats", "cmdstat_del"), "calls=%g"),
		"cpu": number(times.Item("CPU", "used_cpu_user"), "%g") + number(times.Item("CPU", "used_cpu_sys"), "%g"),
	}
}
