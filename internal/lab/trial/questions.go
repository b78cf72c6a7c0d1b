package trial

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/servers"
)

// Question is what every library is asked, by the same steps.
type Question struct {
	Name string `json:"name"`
	// Asks is the question, in words.
	Asks string `json:"asks"`
	// Figure is what is measured where nothing is judged.
	Figure string `json:"figure,omitempty"`

	on      string // the backend that it is of; empty: all
	renewal bool   // it is of holds that are renewed by requests with their name
	check   checker.Check
	do      func(t *try)
}

// lease is for how long names stay taken in the trial. ZooKeeper's clients bear a delay of a third of it.
const lease = 3 * time.Second

// Questions are all questions, in the order of the table.
func Questions() []Question {
	soon := checker.WaitedAtMost(lease/2, checker.OfHolders("second"))
	after := checker.All(checker.GrantedTo("second"), checker.WaitedAtMost(lease+2*time.Second, checker.OfHolders("second")))
	lost := func(check checker.Check) checker.Check { return checker.All(checker.AtLeast("replies_lost", 1), check) }
	return []Question{
		{Name: "crowd", Asks: "8 clients, 20 holds each: never two at once?", check: checker.ExclusiveHolders(), do: crowd},
		{Name: "dies", Asks: "The holder's process is killed: is the name free within a lease?", check: after, do: dies},
		{Name: "outlasts", Asks: "The work takes 2.5 leases, extended as documented: does it stay alone?", check: checker.ExclusiveHolders(), do: outlasts},
		{Name: "paused", Asks: "The holder is stopped (SIGSTOP) for longer than a lease: does it stay alone, or can a store reject its late write by the tokens?", check: fenced, do: paused},
		{Name: "token", Asks: "Is there a token that grows with each holder, for a store to check?", check: tokensGrow, do: tokens},
		{Name: "learns", Asks: "The holder's link hangs: does it know before another has the name?", check: knownInTime, do: hangs},
		{Name: "taken", Asks: "The server takes the hold away (flushed, node deleted, lease revoked, connection killed): does the holder know within a lease?", check: checker.LossNoticed("first", taken, lease+lease/3), do: takenAway},
		{Name: "acquire-reply", Asks: "The reply to the acquire is lost: do this client and the next have the name within half a lease?", check: lost(checker.All(checker.GrantedTo("second"), checker.WaitedAtMost(lease/2, checker.OfHolders("first", "second")))), do: loseAcquire},
		{Name: "renew-reply", Asks: "The reply to a renewal by request is lost: never two at once?", renewal: true, check: kept, do: loseRenewal},
		{Name: "release-reply", Asks: "The reply to the release is lost: is the name free for the next within half a lease?", check: lost(checker.All(checker.GrantedTo("second"), soon)), do: loseRelease},
		{Name: "late-release", Asks: "A holder that lost the name releases it late: does the next holder keep it?", check: checker.Apart("second", "third"), do: lateRelease},
		{Name: "cancelled", Asks: "20 waiters leave after 0.5 s: do they leave at once, and delay the next by less than a second?", check: checker.All(checker.RejectedWithin(1500*time.Millisecond), checker.GrantedTo("second"), checker.WaitedAtMost(time.Second, checker.OfHolders("second"))), do: cancelled},
		{Name: "failover", Asks: "Redis fails over before the key is replicated: never two at once?", on: "redis", check: checker.ExclusiveHolders(), do: failover},
		{Name: "restarts", Asks: "The masters are restarted empty, one after the other, under a hold that is extended: never two at once?", on: "redlock", check: apart, do: restarts},
		{Name: "waiters", Asks: "Requests a second to the server while 100 wait", Figure: "requests_per_s", do: waiters},
		{Name: "handoffs", Asks: "Handoffs a second among 8 clients", Figure: "handoffs_per_s", do: handoffs},
		{Name: "allocations", Asks: "Allocations of the client a hold", Figure: "allocations_per_hold", do: allocations},
	}
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

func hangs(t *try) {
	first, second := t.client("first"), t.client("second")
	held := first.take()
	t.sleep(leases(0.5)) // sessions have been renewed once
	first.each((*servers.Proxy).Freeze)
	t.Mark("first", "its link hangs")
	next := second.ask(leases(2.5))
	t.sleep(leases(0.5))
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
	t.conn.Addresses, t.conn.Password = []string{pair.Front.Address}, pair.Primary.Password
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

func waiters(t *try) {
	first, crowd := t.client("first"), t.client("waiters")
	held := first.take()
	for range 100 {
		t.working.Go(func() { crowd.turn(leases(1.2)) })
	}
	t.sleep(leases(0.5))
	counts := crowd.arm(servers.Rule{Sent: t.name, Do: servers.Count})
	t.sleep(time.Second)
	seen := 0
	for _, one := range counts {
		one.Disarm()
		seen += one.Seen()
	}
	t.Figure("requests_per_s", float64(seen))
	t.sleep(leases(0.5))
	first.giveBack(held)
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
