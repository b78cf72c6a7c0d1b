package experiments

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func clockJumps() []Part {
	clocks, jump := servers.RedlockOptions{Clocks: true}, func(x *Try) { x.moveClock(3, time.Hour) }
	return []Part{
		threeOfFive("jump", false, clocks, jump, checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
		asRemedy(threeOfFive("jump-fenced", true, clocks, jump,
			checker.All(checker.OverlappingHolders(), checker.StaleWritesRejected(), checker.Clean()))),
		asRemedy(threeOfFive("no-jump", false, clocks, func(x *Try) { x.moveClock(3, 0) }, checker.All(checker.ExclusiveHolders(), checker.Clean()))),
		drifting("drift", sourcelock.QuorumInTime, fast, checker.Together("first", "second")),
		asRemedy(drifting("drift-renewed", "redlock", fast, checker.Apart("first", "second"))),
		asRemedy(drifting("no-drift", sourcelock.QuorumInTime, 1, checker.Apart("first", "second"))),
		steppedBack("step-back", 3, checker.NeverGrantedTo("second")),
		asRemedy(steppedBack("step-back-of-two", 2, checker.GrantedTo("second"))),
		asRemedy(unmoved("zookeeper-jump", checker.All(checker.RejectedWithin(patience), checker.AtLeast("clock_ahead_h", 1)),
			func(x *Try) {
				first, second := x.firstAndSecond("zk-sequential", ZooKeeper, 3*sessionLease)
				first.acquire()
				x.moveZooKeeper(time.Hour)
				second.ask(sessionLease)
				first.giveBack()
			})),
		asRemedy(unmoved("zookeeper-step-back", checker.All(checker.GrantedTo("second"), checker.AtMost("clock_ahead_h", -1)),
			func(x *Try) {
				first, second := x.firstAndSecond("zk-sequential", ZooKeeper, sessionLease)
				first.acquire()
				x.moveZooKeeper(-time.Hour)
				first.die()
				second.ask(3 * sessionLease)
				second.giveBack()
			})),
	}
}

const (
	// fast is how many times as fast a clock runs: less than three, which is as often as
	// a lock is renewed in its TTL.
	fast = 1.6
	// driftTTL has times between the expiry by a fast clock, the renewal and the expiry by
	// the right one that a busy machine can tell apart.
	driftTTL = 4 * time.Second
)

// drifting has the first contender hold the votes of masters 1 to 3 for seven eighths of the TTL, and the clock of
// master 3 run fast.
func drifting(name, kind string, rate float64, seen checker.Check) Part {
	return newPart(name, Stage{Servers: fiveMasters(servers.RedlockOptions{Clocks: true})}, seen, func(x *Try) {
		x.Must(x.Backends.Redlock.Nodes[2].Clock.Run(rate)) // it jumps, too, and so while there is no key
		x.markMaster(3, fmt.Sprintf("its clock runs %g times as fast", rate))
		first, second := x.firstAndSecond(kind, Redlock, driftTTL)
		first.cutOff(4, 5)
		first.acquire()
		second.askAndGoOn(driftTTL * 7 / 8)
		x.givenBack(first, second)
	}, Votes, Timeline)
}

// steppedBack has the clocks of so many masters step back, and the holder die.
func steppedBack(name string, masters int, seen checker.Check) Part {
	return newPart(name, Stage{Servers: fiveMasters(servers.RedlockOptions{Clocks: true})}, seen, func(x *Try) {
		first, second := x.firstAndSecond("redlock", Redlock, ttl)
		first.acquire()
		for master := range masters {
			x.moveClock(master+1, -time.Hour)
		}
		first.die()
		second.ask(3 * ttl)
		second.giveBack()
	}, Votes, Timeline)
}

// unmoved has the clock of a ZooKeeper jump while the first contender holds a lock there.
func unmoved(name string, seen checker.Check, do func(x *Try)) Part {
	return newPart(name, Stage{Servers: zooKeeperWithClock}, seen, do, Timeline)
}

// zooKeeperWithClock gives a stage a ZooKeeper with a clock of its own.
func zooKeeperWithClock(x *Try) (env []string) {
	x.Backends.ZooKeeper = flow.Get(servers.StartZooKeeperWithClock(x, x.Supervisor))(x.Flow)
	x.closeLater(x.Backends.ZooKeeper)
	x.clockOfZooKeeper() // its first request takes a Java long that has just started
	return x.Backends.ZooKeeper.Conn().Env()
}

// moveZooKeeper has the clock of the stage's ZooKeeper jump, and records by how many hours it is ahead, as the server
// itself writes the time.
func (x *Try) moveZooKeeper(ahead time.Duration) {
	x.Must(x.Backends.ZooKeeper.Clock.Set(ahead))
	x.Mark("zookeeper", where(ahead))
	x.Figure("clock_ahead_h", x.clockOfZooKeeper().Round(time.Minute).Hours())
}

// clockOfZooKeeper reads by how much it is ahead: from the time that the server writes into a new node.
func (x *Try) clockOfZooKeeper() (ahead time.Duration) {
	conn := flow.Get(servers.OpenZooKeeper(patience, x.Backends.ZooKeeper.Address))(x.Flow)
	defer conn.Close()
	path := flow.Get(conn.Create("/lab-clock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll)))(x.Flow)
	there, stat, err := conn.Exists(path)
	if err == nil && !there {
		err = errors.New("read the clock of ZooKeeper: the node is gone")
	}
	x.Must(err)
	return time.Until(time.UnixMilli(stat.Ctime))
}
