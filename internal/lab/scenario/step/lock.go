package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// TakeTwice has one owner take a lock, and take it again while it has it, for no
// longer than within; then it gives back what it got.
func TakeTwice(kind string, within time.Duration, needs ...scenario.Need) scenario.Step {
	return func(x *scenario.Try) {
		locker, ctx := x.Contend("owner", needs...).Locker(kind), lock.WithOwner(x, "one and the same")
		for range 2 {
			lease, err := takeWithin(ctx, locker, name(x), within)
			if errors.Is(err, lock.ErrNotAcquired) && x.Err() == nil {
				return // that is in the history
			}
			x.Must(err)
			defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // that is in the history, too
		}
	}
}

func name(x *scenario.Try) string { return fmt.Sprintf("lab/%d", x.Item) }

// Contest is a number of contenders, each with connections of its own, that
// hold a lock again and again.
type Contest struct {
	Lock       string
	Needs      []scenario.Need
	Contenders int
	// Shared has them be requests to one replica, on its connections.
	Shared bool
	// Holds ends it when each has held so often, For after so long.
	Holds int
	For   time.Duration
	// Each is how long they hold it.
	Each time.Duration
	// Wait is for how long one waits; 10 s where it is 0.
	Wait time.Duration
	// Measure is around it, when all are connected; nil: nothing is measured.
	Measure func(scenario.Step) scenario.Step
}

// Contend has them contend.
func Contend(c Contest) scenario.Step {
	return func(x *scenario.Try) {
		contest := c.among(c.lockers(x))
		if c.Measure != nil {
			contest = c.Measure(contest)
		}
		contest(x)
	}
}

func (c Contest) among(lockers []lock.Locker) scenario.Step {
	return func(x *scenario.Try) {
		end := time.Now().Add(cmp.Or(c.For, time.Hour))
		x.Each(len(lockers), func(i int) {
			for n := 0; (c.Holds == 0 || n < c.Holds) && time.Now().Before(end); n++ {
				hold(x, lockers[i], name(x), cmp.Or(c.Wait, 10*time.Second), c.Each)
			}
		})
	}
}

// lockers makes the contenders, and returns when all are connected.
func (c Contest) lockers(x *scenario.Try) []lock.Locker {
	lockers := make([]lock.Locker, c.Contenders)
	x.Each(len(lockers), func(i int) {
		if c.Shared && i > 0 {
			return
		}
		one := x.Contend(fmt.Sprintf("contender-%d", i+1), c.Needs...)
		lockers[i] = one.Locker(c.Lock)
		one.Warm(c.Lock)
	})
	for i := range lockers {
		if lockers[i] == nil {
			lockers[i] = lockers[0]
		}
	}
	return lockers
}

func takeWithin(ctx context.Context, l lock.Locker, name string, within time.Duration) (lock.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return l.Acquire(ctx, name)
}

// mustTake takes a lock that is granted in time.
func mustTake(x *scenario.Try, l lock.Locker, name string) lock.Lease {
	lease, err := takeWithin(x, l, name, patience)
	x.Must(err)
	return lease
}

// hold takes a lock, has it for some time and gives it back. Not to be granted it
// in time is no error: it is in the history.
func hold(x *scenario.Try, l lock.Locker, name string, within, each time.Duration) {
	lease, err := takeWithin(x, l, name, within)
	if errors.Is(err, lock.ErrNotAcquired) && x.Err() == nil {
		return
	}
	x.Must(err)
	defer lease.Release(context.WithoutCancel(x)) //nolint:errcheck // that is in the history
	wait(x, each)
}

// AskForTaken has one contender take a lock for some time, and a second one ask
// for it as soon as the first one has it.
func AskForTaken(kind string, each time.Duration, needs ...scenario.Need) scenario.Step {
	return func(x *scenario.Try) {
		first, second := x.Contend("first", needs...).Locker(kind), x.Contend("second", needs...).Locker(kind)
		lease := mustTake(x, first, name(x))
		x.Together(func() { hold(x, second, name(x), each+patience, 0) }, func() {
			wait(x, each)
			x.Must(lease.Release(context.WithoutCancel(x)))
		})
	}
}

// near are the masters of which each contender is first, from 0: two, two and one
// of five, so that none has a majority when all begin together.
func near() [][]int { return [][]int{{0, 1}, {2, 3}, {4}} }

// The delay to the other masters, and the pause between two tries.
const (
	far       = 120 * time.Millisecond
	splitWait = 100 * time.Millisecond
)

// FirstGrant is the figure of SplitVote.
const FirstGrant = "first_grant_ms"

// SplitVote has three contenders begin at the same time, each near to other
// masters, and want one name of Redlock until one of them has it, or for no longer
// than within. It measures FirstGrant where there is one.
func SplitVote(kind string, within time.Duration) scenario.Step {
	return func(x *scenario.Try) {
		lockers := make([]lock.Locker, len(near()))
		for i, masters := range near() {
			lockers[i] = voter(x, i+1, kind, masters)
		}
		ctx, cancel := context.WithTimeout(x, within)
		defer cancel()
		start := time.Now()
		var first sync.Once
		x.Each(len(lockers), func(i int) {
			lease, err := lockers[i].Acquire(ctx, name(x))
			if errors.Is(err, lock.ErrNotAcquired) {
				return
			}
			x.Must(err)
			first.Do(func() { x.Figure(FirstGrant, float64(time.Since(start).Milliseconds())) })
			cancel() // the others may stop
			x.Must(lease.Release(context.WithoutCancel(x)))
		})
	}
}

// voter is a contender that is near to some masters and far from the others.
func voter(x *scenario.Try, number int, kind string, near []int) lock.Locker {
	proxies := links(x, x.Backends.Redlock)
	for _, p := range proxies {
		p.Slow(far)
	}
	for _, master := range near {
		proxies[master].Slow(0)
	}
	c := x.Contend(fmt.Sprintf("contender-%d", number))
	clients := c.UseMasters(addresses(proxies), x.Backends.Redlock.Nodes[0].Password)
	for _, client := range clients { // or connecting would be part of the race
		x.Must(client.Ping(x).Err())
	}
	if kind == sourcelock.InStep {
		return c.Record(kind, sourcelock.NewInStep(clients, splitWait))
	}
	c.Retry = splitWait
	return c.Locker(kind)
}

// The figures of Tries: how often Redis was asked for the lock for each time that it was
// held, how often it was held in a second, and the processor time of Redis for that.
const (
	TriesPerHold = "tries_per_hold"
	HoldsPerS    = "holds_per_s"
	CPUMsPerHold = "redis_cpu_ms_per_hold"
)

// Tries counts what Redis does while contenders take a lock by SET and give it back by DEL.
// Nothing else may do that meanwhile.
func Tries(do scenario.Step) scenario.Step {
	return func(x *scenario.Try) {
		client := redisOf(x)
		before, begun := redisWork(x, client), time.Now()
		do(x)
		took, after := time.Since(begun), redisWork(x, client)
		holds := after["del"] - before["del"]
		if holds == 0 {
			x.Must(errors.New("the lock was never held, so that there is nothing to count tries for"))
		}
		x.Figures(map[string]float64{
			TriesPerHold: (after["set"] - before["set"]) / holds, HoldsPerS: holds / took.Seconds(),
			CPUMsPerHold: 1000 * (after["cpu"] - before["cpu"]) / holds,
		})
	}
}

// redisWork is how often Redis has carried out SET and DEL, and its processor time in seconds.
func redisWork(x *scenario.Try, client *redis.Client) map[string]float64 {
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

// WakeUps counts how many watches ZooKeeper fires, or how many events etcd sends to watches,
// while the step is done, and divides them by the number of releases.
func WakeUps(by scenario.Need, releases int) func(scenario.Step) scenario.Step {
	fired := firedByZooKeeper
	if by == scenario.Etcd {
		fired = sentByEtcd
	}
	return func(do scenario.Step) scenario.Step {
		return func(x *scenario.Try) {
			before := fired(x)
			do(x)
			woken := fired(x) - before
			x.Figures(map[string]float64{"watches_fired": woken, "wakeups_per_release": woken / float64(releases)})
		}
	}
}

// firedByZooKeeper asks the server how many watches on nodes that went, and on the
// children of nodes, it has fired.
func firedByZooKeeper(x *scenario.Try) (sum float64) {
	said := ask(x, "mntr")
	for _, counter := range []string{"zk_sum_node_deleted_watch_count", "zk_sum_node_children_watch_count"} {
		value, err := shop.Counter(said, counter+"\t")
		x.Must(err)
		sum += value
	}
	return sum
}

// sentByEtcd is how many events etcd has sent to watches when no more come: a watch that
// lags is served from a loop of 100 ms.
func sentByEtcd(x *scenario.Try) (sent float64) {
	const etcdLoop = 100 * time.Millisecond
	for last := -1.0; sent != last; {
		last = sent
		wait(x, 3*etcdLoop)
		ctx, cancel := context.WithTimeout(x, answerWithin)
		var err error
		sent, err = shop.Client{AdminURL: x.Backends.Etcd.Endpoint}.Metric(ctx, "etcd_debugging_mvcc_events_total")
		cancel()
		x.Must(err)
	}
	return sent
}

// The figures of CompareReads: reads a second under both locks, medians of the rounds, and how many
// times as many one has in a round: the median, the least and the most.
const (
	ReadsShared    = "reads_per_s_shared"
	ReadsExclusive = "reads_per_s_exclusive"
	ReadsRatio     = "reads_ratio"
	readRounds     = 5
	readRound      = 400 * time.Millisecond
	readWork       = 5 * time.Millisecond
)

// CompareReads has readers read under two locks, round after round, one lock after the other in
// each.
func CompareReads(readers int, shared, exclusive string) scenario.Step {
	return func(x *scenario.Try) {
		kinds := [2]string{shared, exclusive}
		var crowds [2][]lock.Locker
		for i := range readers {
			c := x.Contend(fmt.Sprintf("reader-%d", i+1), scenario.Redis)
			for k, kind := range kinds {
				crowds[k] = append(crowds[k], c.Locker(kind))
				c.Warm(kind)
			}
		}
		var reads [2][]float64
		for range readRounds {
			for k, crowd := range crowds {
				reads[k] = append(reads[k], perS(x, readers, readRound, func(i int) {
					under(x, crowd[i], func() { wait(x, readWork) })
				}))
			}
		}
		times := ratios(reads[0], reads[1])
		x.Figures(map[string]float64{
			ReadsShared: median(reads[0]), ReadsExclusive: median(reads[1]), ReadsRatio: median(times),
			ReadsRatio + "_min": slices.Min(times), ReadsRatio + "_max": slices.Max(times),
		})
	}
}

// perS has so many do something again and again at the same time, and returns how often it was done in a second.
func perS(x *scenario.Try, crowd int, lasts time.Duration, do func(i int)) float64 {
	var done atomic.Int64
	began := time.Now()
	x.Each(crowd, func(i int) {
		for time.Since(began) < lasts {
			do(i)
			done.Add(1)
		}
	})
	return float64(done.Load()) / time.Since(began).Seconds()
}

const (
	// ReadsMeanwhile is a figure of TakeTurns: how often the name was read while the writer waited.
	ReadsMeanwhile = "reads_meanwhile"
	// readTurn is for how long a reader of TakeTurns reads, and lastTurn for how long it waits
	// for the next one.
	readTurn = 20 * time.Millisecond
	lastTurn = 500 * time.Millisecond
)

// TakeTurns has two readers hold a name in turns, each until the other has it, too, while a
// writer asks for it for no longer than within. A reader that is kept out does not keep the other
// one in: that goes after lastTurn.
func TakeTurns(read, write string, within time.Duration) scenario.Step {
	return func(x *scenario.Try) {
		readers := [2]lock.Locker{x.Contend("reader-1", scenario.Redis).Locker(read), x.Contend("reader-2", scenario.Redis).Locker(read)}
		writer := x.Contend("writer", scenario.Redis).Locker(write)
		lease, turn := mustTake(x, readers[0], name(x)), 1
		written, stop := context.WithCancel(x)
		x.Together(func() {
			defer stop()
			hold(x, writer, name(x), within, readTurn)
		}, func() {
			for ; pause.For(written, readTurn) == nil; turn++ {
				lease = handOver(x, lease, readers[turn%2])
			}
			x.Must(lease.Release(context.WithoutCancel(x)))
		})
		x.Figure(ReadsMeanwhile, float64(turn))
	}
}

// handOver has the next reader come, and the one before leave.
func handOver(x *scenario.Try, before lock.Lease, next lock.Locker) (lease lock.Lease) {
	came, here := context.WithCancel(x)
	x.Together(func() {
		defer here()
		lease = mustTake(x, next, name(x))
	}, func() {
		_ = pause.For(came, lastTurn) // or until the next one has come
		x.Must(before.Release(context.WithoutCancel(x)))
	})
	return lease
}

// Forgotten begins the mark of Forget.
const Forgotten = "forgotten"

// Forget deletes all keys of the name in Redis, as a failover to a replica that has not got
// them yet does.
func Forget() scenario.Step {
	return func(x *scenario.Try) {
		client := redisOf(x)
		keys := keysOf(x, client, "*")
		if len(keys) == 0 {
			x.Must(fmt.Errorf("delete the keys of %s: there is none", name(x)))
		}
		x.Must(client.Del(x, keys...).Err())
		x.Mark("redis", Forgotten+": the lock")
	}
}

// under does something under a lock, or without one where it is nil.
func under(x *scenario.Try, l lock.Locker, do func()) {
	if l == nil {
		do()
		return
	}
	lease := mustTake(x, l, name(x))
	do()
	x.Must(lease.Release(context.WithoutCancel(x)))
}

// lateSession outlasts what a proxy holds up.
const lateSession = 6 * time.Second

// LateWatch has two contenders want one name of a lock in ZooKeeper. The second
// one's watch of the first one's node comes to the server when that is gone. It
// waits for no longer than within.
func LateWatch(kind string, within time.Duration) scenario.Step {
	return func(x *scenario.Try) {
		x.Proxy = proxied(x, x.Backends.ZooKeeper.Address)
		first, second := queuer(x, "first", kind, x.Backends.ZooKeeper.Address, lateSession), queuer(x, "second", kind, x.Proxy.Address, lateSession)
		lease := mustTake(x, first, name(x))
		Arm(servers.Rule{Sent: ephemeral(x), Do: servers.Hold})(x)
		x.Together(func() { hold(x, second, name(x), within, 0) }, func() {
			Met()(x)
			x.Must(lease.Release(x))
			Pass()(x)
		})
	}
}

func queuer(x *scenario.Try, who, kind, address string, session time.Duration) lock.Locker {
	c := x.Contend(who)
	if kind != sourcelock.NodeCache && kind != sourcelock.NodeCacheTimeout {
		c.Timeout = castTimeout
		c.UseZooKeeper(address, session)
		return c.Locker(kind)
	}
	l, err := sourcelock.NewNodeCache(kind, address, session)
	x.Must(err)
	return c.Record(kind, l)
}
