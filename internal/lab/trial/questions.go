package trial

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lock"
)

// Question is what every library is asked, by the same steps.
type Question struct {
	Name string `json:"name"`
	// Asks and Chinese are the question, in words.
	Asks    string `json:"asks"`
	Chinese string `json:"zh"`
	// Figure is what is measured where nothing is judged: names, with spaces between them.
	Figure string `json:"figure,omitempty"`

	on      string // the backends that it is of; empty: all
	renewal bool   // it is of holds that are renewed by requests with their name
	check   checker.Check
	do      func(t *try)
}

// lease is for how long names stay taken in the trial. ZooKeeper's clients bear a delay of a third of it.
const lease = 3 * time.Second

// asked has a line with the name of each question, and after a tab each its English and its Chinese words.
//
//go:embed questions.txt
var asked string

// Questions are all questions, in the order of the table.
func Questions() []Question {
	soon := checker.WaitedAtMost(lease/2, checker.OfHolders("second"))
	after := checker.All(checker.GrantedTo("second"), checker.WaitedAtMost(lease+2*time.Second, checker.OfHolders("second")))
	lost := func(check checker.Check) checker.Check { return checker.All(checker.AtLeast("replies_lost", 1), check) }
	all := []Question{
		{Name: "crowd", check: checker.ExclusiveHolders(), do: crowd},
		{Name: "dies", check: after, do: dies},
		{Name: "outlasts", check: checker.ExclusiveHolders(), do: outlasts},
		{Name: "paused", check: fenced, do: paused},
		{Name: "token", check: tokensGrow, do: tokens},
		{Name: "learns", check: knownInTime, do: hangs},
		{Name: "taken", check: checker.LossNoticed("first", taken, lease+lease/3), do: takenAway},
		{Name: "acquire-reply", check: lost(checker.All(checker.GrantedTo("second"), checker.WaitedAtMost(lease/2, checker.OfHolders("first", "second")))), do: loseAcquire},
		{Name: "renew-reply", renewal: true, check: kept, do: loseRenewal},
		{Name: "release-reply", check: lost(checker.All(checker.GrantedTo("second"), soon)), do: loseRelease},
		{Name: "late-release", check: checker.Apart("second", "third"), do: lateRelease},
		{Name: "cancelled", check: checker.All(checker.RejectedWithin(1500*time.Millisecond), checker.GrantedTo("second"), checker.WaitedAtMost(time.Second, checker.OfHolders("second"))), do: cancelled},
		{Name: "failover", on: "redis", check: checker.ExclusiveHolders(), do: failover},
		{Name: "cluster", on: "redis", check: checker.All(checker.ExclusiveHolders(), checker.GrantedTo("second")), do: clusterFailover},
		{Name: "restarts", on: "redlock", check: apart, do: restarts},
		{Name: "clock", on: "redis redlock zookeeper", check: apart, do: clockSteps},
		{Name: "compaction", on: "etcd", check: served, do: compaction},
		{Name: "waiters", Figure: "requests_per_s requests_per_handoff", do: waiters},
		{Name: "handoffs", Figure: "handoffs_per_s", do: handoffs},
		{Name: "round-trips", Figure: "round_trips_per_hold", do: roundTrips},
		{Name: "allocations", Figure: "allocations_per_hold", do: allocations},
	}
	words := make(map[string][]string, len(all))
	for line := range strings.Lines(asked) {
		one := strings.Split(strings.TrimSpace(line), "\t")
		words[one[0]] = one[1:]
	}
	for i := range all {
		all[i].Asks, all[i].Chinese = words[all[i].Name][0], words[all[i].Name][1]
	}
	return all
}

// taken begins the mark of takenAway.
const taken = "the server takes all holds away"

func crowd(t *try) {
	for i := range 8 {
		c := t.client(fmt.Sprintf("client-%d", i+1))
		t.working.Go(func() {
			for range 20 {
				lease := c.ask(30 * time.Second)
				t.sleep(time.Millisecond)
				c.giveBack(lease)
			}
		})
	}
}

func dies(t *try) {
	second := t.client("second")
	p := t.ownProcess()
	t.Must(p.Kill(t))
	t.Mark("first", checker.Killed)
	second.turn(leases(3))
}

func outlasts(t *try) {
	first, second := t.client("first"), t.client("second")
	held := first.take()
	t.working.Go(func() { second.turn(leases(5)) })
	t.sleep(leases(2.5))
	first.giveBack(held)
}

func paused(t *try) {
	second := t.client("second")
	p := t.ownProcess()
	t.Must(p.Pause(t))
	t.Mark("first", "paused")
	got := second.ask(leases(1.8))
	t.sleep(leases(0.5))
	t.Must(p.Resume(t))
	t.Mark("first", "resumed")
	t.sleep(leases(0.5))
	t.Must(p.Kill(t))
	t.Mark("first", checker.Killed)
	second.giveBack(got)
}

func tokens(t *try) {
	a, b := t.client("first"), t.client("second")
	for range 3 {
		a.giveBack(a.take())
		b.giveBack(b.take())
	}
}

// moments is at how many moments of a period of timers, clients' and servers', a link hangs: which side notices its silence
// first is a matter of those.
const (
	moments = 6
	period  = time.Second
)

func hangs(t *try) {
	for range moments {
		first, second := t.client("first"), t.client("second")
		first.name = t.newName()
		second.name = first.name
		t.working.Go(func() { hang(first, second) })
		t.sleep(period / moments)
	}
}

func hang(first, second *client) {
	held := first.take()
	first.sleep(leases(0.5)) // sessions have been renewed once
	first.each((*servers.Proxy).Freeze)
	first.Mark("first", "its link hangs")
	next := second.ask(leases(2.5))
	first.sleep(leases(0.5))
	first.each((*servers.Proxy).Thaw)
	first.giveBack(held)
	second.giveBack(next)
}

func takenAway(t *try) {
	first := t.client("first")
	held := first.take()
	t.Mark("", taken)
	t.Must(t.forget(t, t.library.Server))
	t.sleep(leases(1.5))
	first.giveBack(held)
}

func loseAcquire(t *try) {
	first, second := t.client("first"), t.client("second")
	first.losing(t.name, func() { first.turn(leases(3)) })
	second.turn(leases(3))
}

func loseRenewal(t *try) {
	first, second := t.client("first"), t.client("second")
	held := first.take()
	t.working.Go(func() { second.turn(leases(5)) })
	t.sleep(leases(0.2)) // the second one waits
	first.losing(t.name, func() { t.sleep(leases(0.8)) })
	t.sleep(leases(1.5))
	first.giveBack(held)
}

func loseRelease(t *try) {
	first, second := t.client("first"), t.client("second")
	held := first.take()
	sent := t.library.Release
	if sent == "" {
		sent = t.name
	}
	first.losing(sent, func() { first.giveBack(held) })
	second.turn(leases(3))
}

// lateRelease has the release come when the second one has the name. Where a link that hangs does not lose it, the
// connection breaks.
func lateRelease(t *try) {
	first, second, third := t.client("first"), t.client("second"), t.client("third")
	held := first.take()
	first.each((*servers.Proxy).Freeze)
	next := second.ask(leases(2))
	if next == nil {
		first.each((*servers.Proxy).Break)
		next = second.take()
	}
	first.each((*servers.Proxy).Thaw)
	first.giveBack(held)
	t.working.Go(func() { third.turn(leases(2)) })
	t.sleep(leases(0.6))
	second.giveBack(next)
}

func cancelled(t *try) {
	first, second, leaving := t.client("first"), t.client("second"), t.client("leaving")
	held := first.take()
	for range 20 {
		t.working.Go(func() { leaving.turn(500 * time.Millisecond) })
	}
	t.sleep(1500 * time.Millisecond)
	first.giveBack(held)
	second.turn(leases(2))
}

func failover(t *try) {
	pair, err := servers.StartRedisPair(t, t.supervisor)
	t.Must(err)
	t.Later(func() error { return pair.Close(context.WithoutCancel(t)) })
	t.conn.Conn = pair.Conn().AsAdmin()
	first, second := t.client("first"), t.client("second")
	pair.Link.Freeze()
	held := first.take()
	t.Must(pair.Primary.Kill(t))
	t.Must(pair.Promote(t))
	t.Mark("redis", "the primary is killed before its replica has the key")
	next := second.ask(leases(2))
	t.sleep(leases(0.3))
	first.giveBack(held)
	second.giveBack(next)
}

// clusterFailover has a replica that knows the key follow its master.
func clusterFailover(t *try) {
	cluster, err := servers.StartRedisCluster(t, t.supervisor, servers.RedisClusterOptions{Masters: 3, Replicas: true})
	t.Must(err)
	t.Later(func() error { return cluster.Close(context.WithoutCancel(t)) })
	t.conn.Conn = cluster.Conn().AsAdmin()
	first, second := t.direct("first"), t.direct("second")
	held := first.take()
	t.working.Go(func() { // it asks again where it gets an error, as long as no master has the key
		for end, got := time.Now().Add(leases(6)), lock.Lease(nil); got == nil && time.Now().Before(end); t.sleep(leases(0.1)) {
			got = second.ask(time.Until(end))
			second.giveBack(got)
		}
	})
	t.sleep(leases(0.2)) // the key is replicated, and the second one waits
	for _, master := range cluster.Masters {
		client := master.Open()
		keys, err := client.Keys(t, "*"+t.name+"*").Result()
		t.Must(errors.Join(err, client.Close()))
		if len(keys) > 0 {
			t.Must(master.Kill(t))
			t.Mark("redis", "the master of the key is killed")
		}
	}
	t.sleep(leases(3))
	first.giveBack(held)
}

func restarts(t *try) {
	first, second := t.client("first"), t.client("second")
	held := first.take()
	t.working.Go(func() { second.turn(leases(5)) })
	for i, master := range t.Redlock.Nodes {
		t.Must(master.Restart(t))
		t.Mark(fmt.Sprintf("master-%d", i+1), "restarted without its data")
		t.sleep(leases(0.5))
	}
	first.giveBack(held)
}

// clockSteps has servers of its own, whose clocks can be set.
func clockSteps(t *try) {
	var clocks []*servers.Clock
	if t.library.Server == "zookeeper" {
		z, err := servers.StartZooKeeperWithClock(t, t.supervisor)
		t.Must(err)
		t.Later(func() error { return z.Close(context.WithoutCancel(t)) })
		t.conn.Conn, clocks = z.Conn(), []*servers.Clock{z.Clock}
	} else {
		masters, err := servers.StartRedlockWith(t, t.supervisor, servers.RedlockOptions{Clocks: true})
		t.Must(err)
		t.Later(func() error { return masters.Close(context.WithoutCancel(t)) })
		nodes, to := masters.Nodes, masters.Conn()
		if t.library.Server == "redis" {
			nodes, to = nodes[:1], nodes[0].Conn()
		}
		for _, one := range nodes {
			clocks = append(clocks, one.Clock)
		}
		t.conn.Conn = to.AsAdmin()
	}
	first, second := t.client("first"), t.client("second")
	held := first.take()
	t.working.Go(func() { second.turn(leases(4)) })
	t.sleep(leases(0.1)) // the second one waits, and no extension is due
	for _, one := range clocks[:len(clocks)/2+1] {
		t.Must(one.Set(time.Hour))
	}
	t.Mark("", "the clocks of most servers step an hour ahead")
	t.sleep(leases(1.5))
	first.giveBack(held)
}

// compaction takes away what a watch would read on from whose link has broken.
func compaction(t *try) {
	first, second := t.client("first"), t.client("second")
	held := first.take()
	t.working.Go(func() { second.turn(leases(5)) })
	t.sleep(leases(0.2)) // the second one waits
	second.each((*servers.Proxy).Cut)
	client, err := t.Etcd.Open()
	t.Must(err)
	t.Later(client.Close)
	for range 2 {
		_, err = client.Put(t, "of-no-lock", "")
		t.Must(err)
	}
	now, err := client.Get(t, "of-no-lock")
	t.Must(err)
	_, err = client.Compact(t, now.Header.Revision, clientv3.WithCompactPhysical())
	t.Must(err)
	t.Mark("etcd", "its history is compacted")
	second.each(func(link *servers.Proxy) { t.Must(link.Mend()) })
	t.sleep(leases(0.7))
	first.giveBack(held)
}

// waiters counts the requests of a thousand that wait, and then those of as many handoffs as there are in a second.
func waiters(t *try) {
	first := t.client("first")
	held := first.take()
	ctx, leave := context.WithCancel(t)
	const clients = 10
	counts := make([]*servers.Trigger, 0, clients)
	var grants atomic.Int64
	for i := range clients {
		c := t.client(fmt.Sprintf("waiters-%d", i+1))
		// It never acts, and counts a request once, however often it has the name.
		counts = append(counts, c.arm(servers.Rule{Sent: t.name, Nth: math.MaxInt, Do: servers.Hold})...)
		for range 100 {
			t.working.Go(func() {
				for ctx.Err() == nil {
					got, err := c.locker.Acquire(ctx, t.name)
					if err == nil {
						grants.Add(1)
						c.giveBack(got)
					} else if ctx.Err() == nil {
						t.Fail(err)
						return
					}
				}
			})
		}
	}
	sent := func() (n float64) {
		for _, one := range counts {
			n += float64(one.Seen())
		}
		return n
	}
	t.sleep(leases(1)) // all of them wait
	before := sent()
	t.sleep(time.Second)
	waiting := sent()
	first.giveBack(held)
	t.sleep(time.Second)
	t.Figure("requests_per_s", waiting-before)
	t.Figure("requests_per_handoff", (sent()-waiting)/max(1, float64(grants.Load())))
	leave()
}

// roundTrips counts them by what they cost where each takes a tenth of a second.
func roundTrips(t *try) {
	const each = 100 * time.Millisecond
	c := t.client("first")
	c.giveBack(c.take()) // connects
	c.each(func(link *servers.Proxy) { link.Slow(each / 2) })
	fastest := leases(3)
	for range 3 {
		began := time.Now()
		c.giveBack(c.take())
		fastest = min(fastest, time.Since(began))
	}
	t.Figure("round_trips_per_hold", float64(fastest/each))
}

func handoffs(t *try) {
	var grants atomic.Int64
	end := time.Now().Add(2 * time.Second)
	for i := range 8 {
		c := t.direct(fmt.Sprintf("client-%d", i+1))
		t.working.Go(func() {
			for time.Now().Before(end) {
				if held := c.ask(leases(2)); held != nil {
					grants.Add(1)
					c.giveBack(held)
				}
			}
		})
	}
	t.working.Wait()
	t.Figure("handoffs_per_s", float64(grants.Load()/2))
}

func allocations(t *try) {
	const holds = 100
	c := t.direct("first")
	c.giveBack(c.take()) // connects
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range holds {
		c.giveBack(c.take())
	}
	runtime.ReadMemStats(&after)
	t.Figure("allocations_per_hold", float64((after.Mallocs-before.Mallocs)/holds))
}
