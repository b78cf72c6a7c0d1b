package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func redlockQuorum() scenario.Experiment {
	return scenario.Experiment{
		Number: 31, Name: "redlock-quorum", Title: "Redlock: votes that came too late, and a vote of which the client does not know",
		Claim: "A quorum that took longer than the TTL is no grant, because its first votes have expired; " +
			"and a release goes to all masters, also to those that did not answer, because one may have the key all the same.",
		Source: chapterOne + ", Redlock: why the time is counted after the grants, and why a release goes to all masters",
		Fix:    "stocklab demo --strategies redlock --replicas 3",
		Parts: []scenario.Part{
			lateVote(sourcelock.QuorumUntimed, "untimed", "three votes count, of which two have expired: it holds the lock beside the second", checker.Together("first", "second")),
			remedy(lateVote(sourcelock.QuorumInTime, "in-time", "it finds that the votes took longer than the TTL, and waits for the second", checker.Apart("first", "second"))),
			remedy(lateVotes("redlock", "redlock asks all masters at once, each for a third of the TTL at most: the three count as down, and the first is not granted the lock before the second has given it back",
				checker.Apart("first", "second"))),
			lostVote(sourcelock.QuorumAcknowledged, "acknowledged", "the key stays on master 5, and the second has two of five until its limit",
				checker.All(checker.AtLeast(step.KeysLeft, 1), checker.NeverGrantedTo("second"))),
			remedy(lostVote(sourcelock.QuorumInTime, "all-masters", "no key is left, and the second has the lock", lostVoteFound())),
			remedy(lostVote("redlock", "redlock", "no key is left, and the second has the lock", lostVoteFound())),
		},
	}
}

// lateVote has the answer of the third master come when the first two votes, and its own, have
// expired, and the second contender has the lock.
func lateVote(lock, name, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock, Need: scenario.Redlock, TTL: sessionLease}
	return acted(c, name,
		"the first contender asks five masters one after the other ("+lock+"); the answer of master 3 is held up for longer than the TTL, and the second takes the lock meanwhile",
		expect, seen,
		c.Enter("first", "second"), c.At("first", 3), c.AskHeldUp("first", patience, servers.Rule{Sent: setNX, Do: servers.HoldReply}),
		c.Take("second"), c.Pass("first"), c.Answered("first", asks), givenBack(c, "second", "first"))
}

// lateVotes is the same for a lock that asks all masters at once: three of them answer late.
func lateVotes(lock, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock, Need: scenario.Redlock, TTL: sessionLease}
	return acted(c, "at-once",
		"the first contender asks through "+lock+"; the answers of masters 3, 4 and 5 are held up for longer than the TTL; the second takes the lock, and the first asks again",
		expect, seen,
		c.Enter("first", "second"), c.Arm("first", servers.Rule{Sent: setNX, Do: servers.HoldReply, For: 2 * sessionLease}, 3, 4, 5),
		c.Ask("first", patience, patience), c.Take("second"), c.Ask("first", patience, asks), givenBack(c, "second", "first"))
}

// lostVoteLimit is for how long the second asks: for less than the TTL of the key that is left.
const lostVoteLimit = time.Second

// lostVote has two masters be out of reach, and the answer of the last one be lost.
func lostVote(lock, name, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock, Need: scenario.Redlock, TTL: 10 * time.Second}
	return acted(c, "lost-reply-"+name,
		"masters 1 and 2 are out of reach; the first contender asks ("+lock+"), master 5 sets its key and its answer is lost; the first gives up or gives back, and the second asks for one second",
		expect, seen,
		c.Enter("first", "second"), c.CutOff("first", 1, 2), c.CutOff("second", 1, 2), c.Arm("first", servers.Rule{Sent: setNX, Do: servers.LoseReply}, 5),
		c.Ask("first", asks, patience), c.GiveBack("first"), c.CountKeys(), c.Ask("second", lostVoteLimit, patience), c.GiveBack("second"))
}

func lostVoteFound() checker.Check {
	return checker.All(checker.AtMost(step.KeysLeft, 0), checker.GrantedTo("second"))
}
