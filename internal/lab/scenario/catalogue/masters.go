package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

// masterTTL is how long a lock on the masters lasts when its holder is silent.
const masterTTL = 3 * time.Second

// onMasters is three replicas whose locks are on five masters of their own.
func onMasters(o servers.RedlockOptions) scenario.Stage {
	stage := onRedis("STOCKD_LOCK_TTL="+masterTTL.String(), "STOCKD_LOCK_WAIT=10s", "STOCKD_DEDUCT_TIMEOUT=20s")
	stage.Servers = step.OnMasters(o)
	return stage
}

// threeOfFive has the first replica hold the lock by the votes of masters 1 to 3
// alone, and work for two thirds of its time, ignoring cancellation. Something
// happens to master 3, and the second replica wants the lock.
func threeOfFive(name string, fence bool, o servers.RedlockOptions, happens scenario.Step, does, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: name, Stage: onMasters(o),
		Does:   "replica 1 holds redlock by the votes of masters 1, 2 and 3, and works; " + does + "; replica 2 wants the lock",
		Expect: expect,
		Steps: []scenario.Step{
			step.Stock(100), step.CutOff(4, 5), step.Hold(1, masterTTL*2/3), step.Hold(2, 300*time.Millisecond),
			step.Meanwhile(
				step.Buy(step.Sale{Strategy: "redlock", Fence: fence, Replica: 1}),
				step.InOrder(step.Reached(1), step.Meanwhile(
					happens,
					step.InOrder(step.Wait(200*time.Millisecond), step.Buy(step.Sale{Strategy: "redlock", Fence: fence, Replica: 2, First: 1})),
				)),
			),
			step.Audit(),
		},
		Check: seen, Pictures: []scenario.Picture{scenario.Votes, scenario.Timeline},
	}
}

func failover() scenario.Experiment {
	pair := onRedis("STOCKD_LOCK_TTL=10s", "STOCKD_LOCK_WAIT=8s")
	pair.Servers = step.OnPair
	five := onMasters(servers.RedlockOptions{})
	return scenario.Experiment{
		Number: 13, Name: "failover", Title: "Redis fails over before the key is replicated: two holders; five masters survive the same loss",
		Claim:  "The lock is taken on the master and the master dies before its replica has the key: the promoted replica grants it again. On five independent masters the loss of one changes nothing.",
		Source: chapterOne + ", Redlock",
		Fix:    "stocklab demo --strategies redlock --replicas 3",
		Parts: []scenario.Part{{
			Name: "failover", Stage: pair,
			Does:   "replica 1 works under redis-lua; the key never reaches Redis's replica, which is promoted when the primary is killed; replica 2 wants the lock",
			Expect: "two hold the lock at once, and an update is lost",
			Steps: []scenario.Step{
				step.Stock(100), step.Freeze(), step.Hold(1, 2*time.Second), step.Hold(2, 500*time.Millisecond),
				step.BuyBehind(step.Sale{Strategy: "redis-lua"}, step.Promote()),
				step.Audit(),
			},
			Check: checker.All(checker.OverlappingHolders(), checker.LostUpdates()), Pictures: []scenario.Picture{scenario.Timeline},
		}, {
			Name: "fenced", Remedy: true, Stage: pair,
			Does:   "replica 3 sells once, and Redis's replica has the counter of tokens; then the same failure with fence=true: the promoted counter is one lower, and both holders get the same token",
			Expect: "two hold the lock at once with one token; the late write is rejected, and nothing is lost",
			Steps: []scenario.Step{
				step.Stock(100), step.Buy(step.Sale{Strategy: "redis-lua", Fence: true, Replica: 3, First: 2}), step.Sync(),
				step.Freeze(), step.Hold(1, 2*time.Second), step.Hold(2, 500*time.Millisecond),
				step.BuyBehind(step.Sale{Strategy: "redis-lua", Fence: true}, step.Promote()),
				step.Audit(),
			},
			Check: checker.All(checker.OverlappingHolders(), checker.RepeatedTokens(), checker.StaleWritesRejected(), checker.Clean()), Pictures: []scenario.Picture{scenario.Timeline},
		}, {
			Name: "five-masters", Remedy: true, Stage: five,
			Does:   "replica 1 works under redlock; one of the five masters that have granted it is killed; replica 2 wants the lock",
			Expect: "replica 2 waits, and nothing is lost",
			Steps: []scenario.Step{
				step.Stock(100), step.Hold(1, 2*time.Second), step.Hold(2, 500*time.Millisecond),
				step.BuyBehind(step.Sale{Strategy: "redlock"}, step.KillMaster(1)),
				step.Audit(),
			},
			Check: checker.All(checker.ExclusiveHolders(), checker.Clean()), Pictures: []scenario.Picture{scenario.Timeline},
		}},
	}
}

func masterRestarts() scenario.Experiment {
	atOnce := step.InOrder(step.KillMaster(3), step.StartMaster(3))
	delayed := step.InOrder(step.KillMaster(3), step.Wait(masterTTL), step.StartMaster(3))
	exclusive := checker.All(checker.ExclusiveHolders(), checker.Clean())
	everySecond, always := servers.RedlockOptions{EverySecond: true}, servers.RedlockOptions{Durable: true}
	return scenario.Experiment{
		Number: 14, Name: "master-restarts", Title: "Redlock: a master restarts without its data, and its vote is given twice",
		Claim: "Of three masters that granted the lock one restarts empty, or without its last second, and grants it again, so that another contender has three of five; " +
			"writing every command to disk, or staying away for longer than the TTL, is the remedy.",
		Source: chapterOne + ", Redlock: recovery after a crash, and delayed restarts",
		Fix:    "redis-server --appendonly yes --appendfsync always",
		Parts: []scenario.Part{
			threeOfFive("empty", false, servers.RedlockOptions{}, atOnce, "master 3 is killed and started again without its data",
				"two hold the lock at once, and an update is lost", checker.All(checker.OverlappingHolders(), checker.LostUpdates())),
			remedy(threeOfFive("on-disk", false, always, atOnce, "master 3 is killed and started again; it writes every command to its disk first",
				"replica 2 waits, and nothing is lost", exclusive)),
			remedy(threeOfFive("delayed", false, servers.RedlockOptions{}, delayed, "master 3 is killed and stays away for one TTL",
				"replica 2 waits until the lock of replica 1 cannot be good any more, and nothing is lost", exclusive)),
			afterCut("everysec-power-cut", everySecond, step.CutPower(3), "syncs once a second, and loses its power in the second of the grant",
				"the key is not on its disk: the second has three of five, and both hold the lock",
				checker.All(checker.Together("first", "second"), checker.AtLeast(step.LostBytes, 1))),
			remedy(afterCut("everysec-kill", everySecond, step.KillMaster(3), "syncs once a second, and only its process is killed",
				"the kernel has the key, and the second waits", checker.Apart("first", "second"))),
			remedy(afterCut("always-power-cut", always, step.CutPower(3), "syncs every command, and loses its power",
				"the key is on its disk, and the second waits", checker.All(checker.Apart("first", "second"), checker.AtMost(step.LostBytes, 0)))),
		},
	}
}

// afterCut has the first contender hold the lock by the votes of masters 1 to 3, and master 3 be
// started again after its end. The lock is not renewed before that is over.
func afterCut(name string, o servers.RedlockOptions, end scenario.Step, does, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: "redlock", Need: scenario.Redlock, TTL: 30 * time.Second}
	p := acted(c, name,
		"the first contender holds redlock by the votes of masters 1, 2 and 3; master 3 writes to a file, "+does+", and is started again; the second asks for the lock",
		expect, seen,
		c.Enter("first", "second"), c.CutOff("first", 4, 5), step.AwaitOnDisk(3), c.Take("first"),
		end, step.StartMaster(3), c.Ask("second", patience, time.Second), givenBack(c, "first", "second"))
	p.Stage = scenario.Stage{Servers: step.OnMasters(o)}
	p.Tries = 5 // the second of the grant may be over
	return p
}

func splitVote() scenario.Experiment {
	voted := func(lock, does, expect string, seen checker.Check) scenario.Part {
		return scenario.Part{
			Name: lock, Stage: scenario.Stage{Needs: []scenario.Need{scenario.Redlock}},
			Does:   "three contenders begin together, near to two, two and one of five masters, and 120 ms each way from the others; " + does,
			Expect: expect, Steps: []scenario.Step{step.SplitVote(lock, 4*time.Second)},
			Check: seen, Tries: 5, Pictures: []scenario.Picture{scenario.Votes, scenario.Bars},
		}
	}
	return scenario.Experiment{
		Number: 16, Name: "split-vote", Title: "Redlock: contenders split the vote again and again; a random delay ends it",
		Claim:  "Contenders that ask at the same time get less than half each, give back, and do the same again after the same pause, so that none gets the lock; a random delay is the remedy.",
		Source: chapterOne + ", Redlock: split votes",
		Fix:    "stocklab demo --strategies redlock --replicas 3",
		Parts: []scenario.Part{
			voted(sourcelock.InStep, "a contender that fails tries again after 100 ms", "for four seconds no contender is granted the lock",
				checker.All(checker.NeverGranted(), checker.WaitedAtLeast(3*time.Second, checker.OfHolders()))),
			remedy(voted("redlock", "a contender that fails tries again after a random pause", "one is granted it soon", checker.AtMost(step.FirstGrant, 3000))),
		},
	}
}

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
