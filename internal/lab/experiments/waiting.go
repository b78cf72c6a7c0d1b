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

func fairness() []Part {
	locks := []struct {
		lock string
		need Need
	}{{"redis-fair", Redis}, {"zk-sequential", ZooKeeper}, {"etcd", Etcd}}
	parts := append(make([]Part, 0, 1+len(locks)), contended("redsync", Redis, checker.Unfair(10, checker.OfHolders())))
	for _, l := range locks {
		parts = append(parts, asRemedy(contended(l.lock, l.need,
			checker.All(checker.Waited(checker.OfHolders()), checker.InTurn(2*contenders), checker.ExclusiveHolders(), checker.Granted(contenders)))))
	}
	return parts
}

// contenders is how many want the same name.
const contenders = 24

func contended(kind string, need Need, seen checker.Check) Part {
	return newPart(kind, on(need), seen, func(x *Try) {
		x.contendFor(3*time.Second, x.crowd(contenders, kind, need, false), 2*time.Millisecond, 10*time.Second)
	}, Waits)
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

func herd() []Part {
	const few = 1.5
	// A release that does not come wakes none.
	atMost := func(most float64) checker.Check {
		return checker.All(checker.AtMost(wakeUps, most), checker.Granted(contenders*herdHolds))
	}
	sharing := woken("etcd", Etcd, true, atMost(2+few/2))
	sharing.Name += "-shared"
	return []Part{
		woken("zk-herd", ZooKeeper, false, checker.AtLeast(wakeUps, contenders/4)),
		woken("zk-ephemeral", ZooKeeper, false, checker.AtLeast(wakeUps, contenders/4)),
		asRemedy(woken("zk-sequential", ZooKeeper, false, atMost(few))),
		woken("etcd", Etcd, false, checker.AtLeast(wakeUps, contenders)),
		asRemedy(woken(sourcelock.PreKey, Etcd, false, atMost(few))),
		asRemedy(sharing),
	}
}

const (
	herdHolds = 2 // of each
	wakeUps   = "wakeups_per_release"
)

// woken has contenders hold a lock twice each, and counts.
func woken(kind string, need Need, shared bool, seen checker.Check) Part {
	fired := (*Try).firedByZooKeeper
	if need == Etcd {
		fired = (*Try).sentByEtcd
	}
	return newPart(kind, on(need), checker.All(seen, checker.ExclusiveHolders()), func(x *Try) {
		crowd := x.crowd(contenders, kind, need, shared)
		before := fired(x)
		x.Each(contenders, func(i int) {
			for range herdHolds {
				x.holdFor(10*time.Millisecond, crowd[i], x.lockName(), patience)
			}
		})
		woken := fired(x) - before
		x.Figures(map[string]float64{"watches_fired": woken, wakeUps: woken / (contenders * herdHolds)})
	}, Wakes, Timeline)
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

func lateWatch() []Part {
	watched := func(kind string, seen checker.Check) Part {
		return newPart(kind, on(ZooKeeper), seen, func(x *Try) {
			first, second := x.firstAndSecond(kind, ZooKeeper, lateSession)
			lease := x.take(first.locker, x.lockName())
			watch := second.proxy.Arm(servers.Rule{Sent: x.latestNode(), Do: servers.Hold})
			x.start(func() { x.holdFor(0, second.locker, x.lockName(), 4*time.Second) })
			x.awaitMet(watch)
			x.Must(lease.Release(x))
			x.pass("proxy", watch)
			x.wait()
		}, Timeline)
	}
	return []Part{
		watched(sourcelock.NodeCache, checker.Deadlocked(3*time.Second)),
		asRemedy(watched("zk-sequential", checker.All(checker.WaitedAtMost(2*time.Second, checker.OfHolders("second")), checker.GrantedTo("second")))),
	}
}

// lateSession outlasts what a proxy holds up.
const lateSession = 6 * time.Second

func waitersLeave() []Part {
	return []Part{
		middleLeaves("any-deletion", sourcelock.NodeCache, ZooKeeper, checker.Together("first", "third")),
		asRemedy(middleLeaves("looks-again", "zk-sequential", ZooKeeper, checker.Apart("first", "third"))),
		middleLeaves("any-deletion-etcd", sourcelock.PreKeyOnce, Etcd, checker.Together("first", "third")),
		asRemedy(middleLeaves("looks-again-etcd", sourcelock.PreKey, Etcd, checker.Apart("first", "third"))),
		timeIsUp("timeout-is-true", sourcelock.NodeCacheTimeout, checker.Together("first", "second")),
		asRemedy(timeIsUp("timeout-is-false", "zk-sequential", checker.RejectedWithin(time.Second+slack))),
	}
}

// middleLeaves has the second of three in a queue give up.
func middleLeaves(name, kind string, need Need, seen checker.Check) Part {
	return newPart(name, on(need), seen, func(x *Try) {
		first, second := x.firstAndSecond(kind, need, 3*sessionLease)
		third := x.enter("third", kind, need, 3*sessionLease)
		first.acquire()
		second.queue()
		third.queue()
		second.giveUp()
		third.awaitAnswer(asks)
		x.givenBack(first, third)
	}, Timeline)
}

func timeIsUp(name, kind string, seen checker.Check) Part {
	return newPart(name, on(ZooKeeper), seen, func(x *Try) {
		first, second := x.firstAndSecond(kind, ZooKeeper, lateSession)
		first.acquire()
		second.ask(time.Second)
		x.givenBack(first, second)
	}, Timeline)
}

func spinning() []Part {
	// Between the two is what a busy machine may change: 23 that wait send one request each in the
	// 50 ms for which the lock is held, or all that they can.
	const many, few = 150, 75
	return []Part{
		retried(sourcelock.SetNXSpin, checker.AtLeast("tries_per_hold", many)),
		asRemedy(retried(sourcelock.SetNXPause, checker.All(checker.AtMost("tries_per_hold", few), checker.Granted(contenders)))),
	}
}

// retried counts what Redis does while contenders take a lock by SET and give it back by DEL. Nothing else may do that
// meanwhile.
func retried(kind string, seen checker.Check) Part {
	seen = checker.All(seen, checker.Reported("holds_per_s", "redis_cpu_ms_per_hold"), checker.ExclusiveHolders())
	return newPart(kind, on(Redis), seen, func(x *Try) {
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
	})
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
