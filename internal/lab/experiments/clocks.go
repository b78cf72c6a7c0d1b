package experiments

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func clockJumps() Experiment {
	clocks, jump := servers.RedlockOptions{Clocks: true}, func(x *Try) { x.moveClock(3, time.Hour) }
	return Experiment{
		Number: 15, Name: "clock-jumps", Title: "Redlock: the clock of a master jumps, and the lock runs out on it",
		Claim: "When the clock of one of three masters jumps ahead, or runs too fast, the key runs out there and another contender has three of five; where the clocks of three step back, " +
			"a dead holder's lock stays. Avoid jumps, or have the store check a fencing token; ZooKeeper does not depend on clocks.",
		Source: chapterOne + ", Redlock: clocks that change; " + chapterOne + ", ZooKeeper: clocks that change; " + zooKeeping + ", Redlock",
		Fix:    "curl -X POST 'http://127.0.0.1:8080/deduct?strategy=redlock&fence=true&goods_id=1'",
		Parts: []Part{
			threeOfFive("jump", false, clocks, jump, "the clock of master 3 jumps an hour ahead",
				"two hold the lock at once, and an update is lost", checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			asRemedy(threeOfFive("jump-fenced", true, clocks, jump, "the clock of master 3 jumps an hour ahead, and the store checks the tokens",
				"two hold the lock at once; the late write is rejected, and nothing is lost",
				checker.All(checker.OverlappingHolders(), checker.StaleWritesRejected(), checker.Clean()))),
			asRemedy(threeOfFive("no-jump", false, clocks, func(x *Try) { x.moveClock(3, 0) }, "no clock jumps",
				"replica 2 waits, and nothing is lost", checker.All(checker.ExclusiveHolders(), checker.Clean()))),
			drifting("drift", sourcelock.QuorumInTime, fast, "the key runs out on master 3 while the first still has its lock, and both hold it", checker.Together("first", "second")),
			asRemedy(drifting("drift-renewed", "redlock", fast, "redlock renews the key at a third of the TTL, before the fast clock is there: the second waits", checker.Apart("first", "second"))),
			asRemedy(drifting("no-drift", sourcelock.QuorumInTime, 1, "the second waits", checker.Apart("first", "second"))),
			steppedBack("step-back", "three", 3, "three masters keep the key for an hour, and the second has two of five until its limit", checker.NeverGrantedTo("second")),
			asRemedy(steppedBack("step-back-of-two", "two", 2, "the other three are a majority, and the second has the lock after one TTL", checker.GrantedTo("second"))),
			unmoved("zookeeper-jump", "6s; the clock of ZooKeeper jumps an hour ahead; the second asks for two seconds",
				"ZooKeeper counts the time since the last heartbeat, whatever the clock says: the first keeps the lock, and the second gives up",
				checker.All(checker.RejectedWithin(patience), checker.AtLeast("clock_ahead_h", 1)),
				func(x *Try) {
					first, second := x.firstAndSecond("zk-sequential", ZooKeeper, 3*sessionLease)
					first.acquire()
					x.moveZooKeeper(time.Hour)
					second.ask(sessionLease)
					first.giveBack()
				}),
			unmoved("zookeeper-step-back", "2s; the clock of ZooKeeper steps back by an hour, and the first dies; the second asks for three sessions",
				"the session of the dead holder ends as it would have, and the second has the lock",
				checker.All(checker.GrantedTo("second"), checker.AtMost("clock_ahead_h", -1)),
				func(x *Try) {
					first, second := x.firstAndSecond("zk-sequential", ZooKeeper, sessionLease)
					first.acquire()
					x.moveZooKeeper(-time.Hour)
					first.die()
					second.ask(3 * sessionLease)
					second.giveBack()
				}),
		},
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
func drifting(name, kind string, rate float64, expect string, seen checker.Check) Part {
	runs := "runs 1.6 times as fast"
	if rate == 1 {
		runs = "is right"
	}
	return Part{
		Name: name, Stage: Stage{Servers: fiveMasters(servers.RedlockOptions{Clocks: true})},
		Does:   "the clock of master 3 " + runs + "; the first contender holds the lock by the votes of masters 1, 2 and 3 for seven eighths of its TTL (" + kind + "), and the second asks for it",
		Expect: expect, Check: seen, Tries: 3, Pictures: []Picture{Votes, Timeline},
		Do: func(x *Try) {
			x.Must(x.Masters.Nodes[2].Clock.Run(rate)) // it jumps, too, and so while there is no key
			x.markMaster(3, fmt.Sprintf("its clock runs %g times as fast", rate))
			first, second := x.firstAndSecond(kind, Redlock, driftTTL)
			first.cutOff(4, 5)
			first.acquire()
			second.askAndGoOn(driftTTL * 7 / 8)
			x.givenBack(first, second)
		},
	}
}

// steppedBack has the clocks of so many masters step back, and the holder die.
func steppedBack(name, count string, masters int, expect string, seen checker.Check) Part {
	return Part{
		Name: name, Stage: Stage{Servers: fiveMasters(servers.RedlockOptions{Clocks: true})},
		Does:   "the first contender holds redlock; the clocks of " + count + " of five masters step back by an hour, the first dies, and the second asks for three TTL",
		Expect: expect, Check: seen, Pictures: []Picture{Votes, Timeline},
		Do: func(x *Try) {
			first, second := x.firstAndSecond("redlock", Redlock, ttl)
			first.acquire()
			for master := range masters {
				x.moveClock(master+1, -time.Hour)
			}
			first.die()
			second.ask(3 * ttl)
			second.giveBack()
		},
	}
}

// unmoved has the clock of a ZooKeeper jump while the first contender holds a lock there.
func unmoved(name, session, expect string, seen checker.Check, do func(x *Try)) Part {
	return Part{
		Name: name, Remedy: true, Stage: Stage{Servers: zooKeeperWithClock},
		Does:   "the first contender holds zk-sequential, whose session lasts for " + session,
		Expect: expect, Do: do, Check: seen, Pictures: []Picture{Timeline},
	}
}

// zooKeeperWithClock gives a stage a ZooKeeper with a clock of its own.
func zooKeeperWithClock(x *Try) (env []string) {
	var err error
	x.ZooKeeper, err = servers.StartZooKeeperWithClock(x, x.Supervisor)
	x.Must(err)
	x.closeLater(x.ZooKeeper)
	x.clockOfZooKeeper() // its first request takes a Java long that has just started
	return x.ZooKeeper.Env()
}

// moveZooKeeper has the clock of the stage's ZooKeeper jump, and records by how many hours it is ahead, as the server
// itself writes the time.
func (x *Try) moveZooKeeper(ahead time.Duration) {
	x.Must(x.ZooKeeper.Clock.Set(ahead))
	x.Mark("zookeeper", where(ahead))
	x.Figure("clock_ahead_h", x.clockOfZooKeeper().Round(time.Minute).Hours())
}

// clockOfZooKeeper reads by how much it is ahead: from the time that the server writes into a new node.
func (x *Try) clockOfZooKeeper() (ahead time.Duration) {
	conn, _, err := zk.Connect([]string{x.ZooKeeper.Address}, patience, zk.WithLogger(quiet{}))
	x.Must(err)
	defer conn.Close()
	path, err := conn.Create("/lab-clock-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	x.Must(err)
	there, stat, err := conn.Exists(path)
	if err == nil && !there {
		err = errors.New("read the clock of ZooKeeper: the node is gone")
	}
	x.Must(err)
	return time.Until(time.UnixMilli(stat.Ctime))
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}
