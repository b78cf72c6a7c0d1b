package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func clockJumps() scenario.Experiment {
	clocks, jump := servers.RedlockOptions{Clocks: true}, step.MoveClock(3, time.Hour)
	return scenario.Experiment{
		Number: 15, Name: "clock-jumps", Title: "Redlock: the clock of a master jumps, and the lock runs out on it",
		Claim: "When the clock of one of three masters jumps ahead, or runs too fast, the key runs out there and another contender has three of five; where the clocks of three step back, " +
			"a dead holder's lock stays. Avoid jumps, or have the store check a fencing token; ZooKeeper does not depend on clocks.",
		Source: chapterOne + ", Redlock: clocks that change; " + chapterOne + ", ZooKeeper: clocks that change; " + zooKeeping + ", Redlock",
		Fix:    "curl -X POST 'http://127.0.0.1:8080/deduct?strategy=redlock&fence=true&goods_id=1'",
		Parts: []scenario.Part{
			threeOfFive("jump", false, clocks, jump, "the clock of master 3 jumps an hour ahead",
				"two hold the lock at once, and an update is lost", checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			remedy(threeOfFive("jump-fenced", true, clocks, jump, "the clock of master 3 jumps an hour ahead, and the store checks the tokens",
				"two hold the lock at once; the late write is rejected, and nothing is lost",
				checker.All(checker.OverlappingHolders(), checker.StaleWritesRejected(), checker.Clean()))),
			remedy(threeOfFive("no-jump", false, clocks, step.MoveClock(3, 0), "no clock jumps",
				"replica 2 waits, and nothing is lost", checker.All(checker.ExclusiveHolders(), checker.Clean()))),
			drifting("drift", sourcelock.QuorumInTime, fast, "the key runs out on master 3 while the first still has its lock, and both hold it", checker.Together("first", "second")),
			remedy(drifting("drift-renewed", "redlock", fast, "redlock renews the key at a third of the TTL, before the fast clock is there: the second waits", checker.Apart("first", "second"))),
			remedy(drifting("no-drift", sourcelock.QuorumInTime, 1, "the second waits", checker.Apart("first", "second"))),
			steppedBack("step-back", 3, "three masters keep the key for an hour, and the second has two of five until its limit", checker.NeverGrantedTo("second")),
			remedy(steppedBack("step-back-of-two", 2, "the other three are a majority, and the second has the lock after one TTL", checker.GrantedTo("second"))),
			remedy(unmoved("zookeeper-jump", time.Hour, 3*sessionLease, "ZooKeeper counts the time since the last heartbeat, whatever the clock says: the first keeps the lock, and the second gives up",
				checker.All(checker.RejectedWithin(patience), checker.AtLeast(step.ClockAhead, 1)),
				func(c *step.Cast) scenario.Step {
					return step.InOrder(c.Ask("second", sessionLease, patience), c.GiveBack("first"))
				})),
			remedy(unmoved("zookeeper-step-back", -time.Hour, sessionLease, "the session of the dead holder ends as it would have, and the second has the lock",
				checker.All(checker.GrantedTo("second"), checker.AtMost(step.ClockAhead, -1)),
				func(c *step.Cast) scenario.Step {
					return step.InOrder(c.Die("first"), c.Ask("second", 3*sessionLease, patience), c.GiveBack("second"))
				})),
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

// onClocks is a part on five masters that have a clock each.
func onClocks(p scenario.Part) scenario.Part {
	p.Stage = scenario.Stage{Servers: step.OnMasters(servers.RedlockOptions{Clocks: true})}
	return p
}

// drifting has the first contender hold the votes of masters 1 to 3 for seven eighths of the
// TTL, and the clock of master 3 run fast.
func drifting(name, lock string, rate float64, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock, Need: scenario.Redlock, TTL: driftTTL}
	runs := "runs 1.6 times as fast"
	if rate == 1 {
		runs = "is right"
	}
	p := onClocks(acted(c, name,
		"the clock of master 3 "+runs+"; the first contender holds the lock by the votes of masters 1, 2 and 3 for seven eighths of its TTL ("+lock+"), and the second asks for it",
		expect, seen,
		step.RunClock(3, rate), c.Enter("first", "second"), c.CutOff("first", 4, 5), c.Take("first"),
		c.Ask("second", patience, driftTTL*7/8), givenBack(c, "first", "second")))
	p.Tries = 3
	return p
}

// steppedBack has the clocks of so many masters step back, and the holder die.
func steppedBack(name string, masters int, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: "redlock", Need: scenario.Redlock, TTL: ttl}
	back := make([]scenario.Step, masters)
	for i := range back {
		back[i] = step.MoveClock(i+1, -time.Hour)
	}
	count := map[int]string{2: "two", 3: "three"}[masters]
	return onClocks(acted(c, name,
		"the first contender holds redlock; the clocks of "+count+" of five masters step back by an hour, the first dies, and the second asks for three TTL",
		expect, seen,
		c.Enter("first", "second"), c.Take("first"), step.InOrder(back...), c.Die("first"), c.Ask("second", 3*ttl, patience), c.GiveBack("second")))
}

// unmoved has the clock of a ZooKeeper jump while the first contender holds a lock there.
func unmoved(name string, by, session time.Duration, expect string, seen checker.Check, then func(c *step.Cast) scenario.Step) scenario.Part {
	c := &step.Cast{Lock: "zk-sequential", Need: scenario.ZooKeeper, TTL: session}
	happens := "jumps an hour ahead; the second asks for two seconds"
	if by < 0 {
		happens = "steps back by an hour, and the first dies; the second asks for three sessions"
	}
	p := acted(c, name,
		"the first contender holds zk-sequential, whose session lasts for "+session.String()+"; the clock of ZooKeeper "+happens,
		expect, seen,
		c.Enter("first", "second"), c.Take("first"), step.MoveZooKeeper(by), then(c))
	p.Stage = scenario.Stage{Servers: step.OnZooKeeperWithClock}
	return p
}
