package experiments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
)

func failover() []Part {
	// no lock ends by its expiry here, and replica 1, which works for longer than replica 2, writes last
	pair := onRedis("STOCKD_LOCK_TTL=10s", "STOCKD_LOCK_WAIT=8s")
	pair.Servers = redisPair
	// of two claims with one token the store accepts the writes of the later one (repo/fence.go)
	lateWriteRejected := checker.All(checker.OverlappingHolders(), checker.RepeatedTokens(), checker.StaleWritesRejected(), checker.Clean())
	exclusive := checker.All(checker.ExclusiveHolders(), checker.Clean())
	return []Part{
		newPart("failover", pair, checker.All(checker.OverlappingHolders(), checker.LostUpdates()), func(x *Try) {
			x.stock(100)
			x.freezeReplication()
			x.buyWhileAtWork(Sale{Strategy: "redis-lua"}, x.failOver, 2*time.Second, 500*time.Millisecond)
			x.audit()
		}, Timeline),
		asRemedy(newPart("fenced", pair, lateWriteRejected, func(x *Try) {
			x.stock(100)
			// Redis's replica has a counter of tokens then: a Redis without one begins above all tokens, and repeats none
			x.buy(3, Sale{Strategy: "redis-lua", Fence: true})
			x.Must(x.Pair.AwaitSync(x))
			x.freezeReplication()
			x.buyWhileAtWork(Sale{Strategy: "redis-lua", Fence: true}, x.failOver, 2*time.Second, 500*time.Millisecond)
			x.audit()
		}, Timeline)),
		asRemedy(newPart("five-masters", onMasters(servers.RedlockOptions{}), exclusive, func(x *Try) {
			x.stock(100)
			x.buyWhileAtWork(Sale{Strategy: "redlock"}, func() { x.killMaster(1) }, 2*time.Second, 500*time.Millisecond)
			x.audit()
		}, Timeline)),
	}
}

// buyWhileAtWork has replica 1 buy, and work for a time between its read and its write, whatever becomes of its lock.
// Each next replica buys when the one before is at work, and works in the same way. What happens, unless it is nil, is
// done once, before replica 2 buys.
func (x *Try) buyWhileAtWork(sale Sale, happens func(), works ...time.Duration) {
	for i, d := range works {
		x.willStall(i+1, d)
	}
	last := len(works)
	for replica := 1; replica < last; replica++ {
		x.start(func() { x.buy(replica, sale) })
		x.awaitFault(replica)
		if replica == 1 && happens != nil {
			happens()
		}
	}
	x.buy(last, sale)
	x.wait()
}

// freezeReplication stops the replication from the primary of the pair.
func (x *Try) freezeReplication() {
	x.Pair.Link.Freeze()
	x.Mark("redis", "writes to the primary no longer reach Redis's replica")
}

// failOver kills the primary of the pair and puts its replica in its place, behind the same address.
func (x *Try) failOver() {
	x.Must(x.Pair.Primary.Kill(x))
	x.Must(x.Pair.Promote(x))
	x.Mark("redis", "the primary is killed, Redis's replica is promoted")
}

// masterTTL is how long a lock on the masters lasts when its holder is silent.
const masterTTL = 3 * time.Second

// onMasters is three replicas whose locks are on five masters of their own.
func onMasters(o servers.RedlockOptions) Stage {
	stage := onRedis("STOCKD_LOCK_TTL="+masterTTL.String(), "STOCKD_LOCK_WAIT=10s", "STOCKD_DEDUCT_TIMEOUT=20s")
	stage.Servers = fiveMasters(o)
	return stage
}

// threeOfFive has the first replica hold the lock by the votes of masters 1 to 3 alone, and work for two thirds of its
// time, ignoring cancellation. Something happens to master 3, and the second replica wants the lock.
func threeOfFive(name string, fence bool, o servers.RedlockOptions, happens func(x *Try), seen checker.Check) Part {
	return newPart(name, onMasters(o), seen, func(x *Try) {
		x.stock(100)
		for _, master := range []int{4, 5} {
			x.Links[master-1].Cut()
		}
		x.Mark("", "masters [4 5] are out of reach for replica 1")
		x.buyWhileAtWork(Sale{Strategy: "redlock", Fence: fence}, func() {
			x.start(func() { happens(x) })
			x.sleep(200 * time.Millisecond)
		}, masterTTL*2/3, 300*time.Millisecond)
		x.audit()
	}, Votes, Timeline)
}

func masterRestarts() []Part {
	restarts := func(away time.Duration) func(x *Try) {
		return func(x *Try) {
			x.killMaster(3)
			x.sleep(away)
			x.startMaster(3)
		}
	}
	exclusive := checker.All(checker.ExclusiveHolders(), checker.Clean())
	everySecond, always := servers.RedlockOptions{EverySecond: true}, servers.RedlockOptions{Durable: true}
	killed := func(x *Try) { x.killMaster(3) }
	return []Part{
		threeOfFive("empty", false, servers.RedlockOptions{}, restarts(0), checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
		asRemedy(threeOfFive("on-disk", false, always, restarts(0), exclusive)),
		asRemedy(threeOfFive("delayed", false, servers.RedlockOptions{}, restarts(masterTTL), exclusive)),
		afterCut("everysec-power-cut", everySecond, cutPower, checker.All(checker.Together("first", "second"), checker.AtLeast("lost_bytes", 1))),
		asRemedy(afterCut("everysec-kill", everySecond, killed, checker.Apart("first", "second"))),
		asRemedy(afterCut("always-power-cut", always, cutPower, checker.All(checker.Apart("first", "second"), checker.AtMost("lost_bytes", 0)))),
	}
}

// cutPower ends master 3, and takes from it what was not on its disk.
func cutPower(x *Try) {
	lost, err := x.Backends.Redlock.Nodes[2].CutPower(x)
	x.Must(err)
	x.Figure("lost_bytes", float64(lost))
	x.markMaster(3, "loses its power, and what was not on its disk")
}

// afterCut has the first contender hold the lock by the votes of masters 1 to 3, and master 3 be started again after
// its end. The lock is not renewed before that is over. The second of the grant may be over, too, and it is made again.
func afterCut(name string, o servers.RedlockOptions, end func(x *Try), seen checker.Check) Part {
	return newPart(name, Stage{Servers: fiveMasters(o)}, seen, func(x *Try) {
		first, second := x.firstAndSecond("redlock", Redlock, 30*time.Second)
		first.cutOff(4, 5)
		x.Must(x.Backends.Redlock.Nodes[2].AwaitOnDisk(x))
		x.markMaster(3, "has all on its disk")
		first.acquire()
		end(x)
		x.startMaster(3)
		second.askAndGoOn(time.Second)
		x.givenBack(first, second)
	}, Votes, Timeline)
}

func splitVote() []Part {
	voted := func(kind string, seen checker.Check) Part {
		return newPart(kind, on(Redlock), seen, func(x *Try) { x.splitVote(kind) }, Votes)
	}
	return []Part{
		voted(sourcelock.InStep, checker.All(checker.NeverGranted(), checker.WaitedAtLeast(3*time.Second, checker.OfHolders()))),
		asRemedy(voted("redlock", checker.AtMost("first_grant_ms", 3000))),
	}
}

// splitVote has three contenders begin at the same time, near to two, two and one of five masters, so that none has a
// majority, and want one name until one of them has it, or for four seconds.
func (x *Try) splitVote(kind string) {
	near := [][]int{{0, 1}, {2, 3}, {4}}
	lockers := make([]lock.Locker, len(near))
	for i, masters := range near {
		lockers[i] = x.voter(i+1, kind, masters)
	}
	ctx, cancel := context.WithTimeout(x, 4*time.Second)
	defer cancel()
	start := time.Now()
	var first sync.Once
	x.Each(len(lockers), func(i int) {
		lease, err := lockers[i].Acquire(ctx, x.lockName())
		if errors.Is(err, lock.ErrNotAcquired) {
			return
		}
		x.Must(err)
		first.Do(func() { x.Figure("first_grant_ms", float64(time.Since(start).Milliseconds())) })
		cancel() // the others may stop
		x.release(lease)
	})
}

// voter is a contender that is near to some masters and far from the others.
func (x *Try) voter(number int, kind string, near []int) lock.Locker {
	c := x.contend(fmt.Sprintf("contender-%d", number))
	for master, link := range c.connectByProxies(Redlock) {
		if !slices.Contains(near, master) {
			link.Slow(120 * time.Millisecond)
		}
	}
	for _, client := range c.clients.Redlock { // or connecting would be part of the race
		x.Must(client.Ping(x).Err())
	}
	c.retry = 100 * time.Millisecond
	return c.locker(kind)
}

func redlockQuorum() []Part {
	found := checker.All(checker.AtMost("keys_left", 0), checker.GrantedTo("second"))
	return []Part{
		lateVote(sourcelock.QuorumUntimed, "untimed", checker.Together("first", "second")),
		asRemedy(lateVote(sourcelock.QuorumInTime, "in-time", checker.Apart("first", "second"))),
		asRemedy(lateVotes()),
		lostVote(sourcelock.QuorumAcknowledged, "acknowledged", checker.All(checker.AtLeast("keys_left", 1), checker.NeverGrantedTo("second"))),
		asRemedy(lostVote(sourcelock.QuorumInTime, "all-masters", found)),
		asRemedy(lostVote("redlock", "redlock", found)),
	}
}

// lateVote has the answer of the third master come when the first two votes, and its own, have expired, and the
// second contender has the lock.
func lateVote(kind, name string, seen checker.Check) Part {
	return newPart(name, on(Redlock), seen, func(x *Try) {
		first, second := x.firstAndSecond(kind, Redlock, sessionLease)
		first.proxy = first.links[2]
		first.askHeldUp(servers.Rule{Sent: setNX, Do: servers.HoldReply})
		second.acquire()
		first.goOn()
		first.awaitAnswer(asks)
		x.givenBack(second, first)
	}, Votes, Timeline)
}

// lateVotes is the same for a lock that asks all masters at once: three of them answer late.
func lateVotes() Part {
	return newPart("at-once", on(Redlock), checker.Apart("first", "second"), func(x *Try) {
		first, second := x.firstAndSecond("redlock", Redlock, sessionLease)
		first.armAt(servers.Rule{Sent: setNX, Do: servers.HoldReply, For: 2 * sessionLease}, 3, 4, 5)
		first.acquire()
		second.acquire()
		first.askAndGoOn(asks)
		x.givenBack(second, first)
	}, Votes, Timeline)
}

// lostVote has two masters be out of reach, and the answer of the last one be lost. The second asks for less than the
// TTL of the key that is left.
func lostVote(kind, name string, seen checker.Check) Part {
	return newPart("lost-reply-"+name, on(Redlock), seen, func(x *Try) {
		first, second := x.firstAndSecond(kind, Redlock, 10*time.Second)
		first.cutOff(1, 2)
		second.cutOff(1, 2)
		first.armAt(servers.Rule{Sent: setNX, Do: servers.LoseReply}, 5)
		first.ask(asks)
		first.giveBack()
		left := 0
		for _, master := range x.Backends.Redlock.Nodes {
			client := master.Open()
			x.Later(client.Close)
			left += len(x.keysOf(client, kind))
		}
		x.Figure("keys_left", float64(left))
		second.ask(time.Second)
		second.giveBack()
	}, Votes, Timeline)
}
