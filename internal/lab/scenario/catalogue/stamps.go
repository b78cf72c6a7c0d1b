package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func timestampLocks() scenario.Experiment {
	return scenario.Experiment{
		Number: 29, Name: "timestamp-locks", Title: "The value is the expiry: what DEL, nil, whole seconds and a late holder do to it",
		Claim:  "A lock whose value is the time of its expiry is taken over by GETSET and not by DEL and SETNX; nil must be a grant, clocks may differ by a tolerance, times must be finer than seconds, and a holder checks the time before it deletes the lock.",
		Source: flashSales + ", deadlocks, and RedisLock; " + basicSearch + ", deadlock, GETSET, and the trouble with time stamps",
		Fix:    "stocklab demo --strategies redis-lua --replicas 3",
		Parts: []scenario.Part{
			takenOverTwice(sourcelock.StampDel, "del-setnx", "\r\ndel\r\n", "the late DEL deletes the lock of the first, and both hold it", checker.Together("first", "second")),
			remedy(takenOverTwice(sourcelock.StampGetSet, "getset", "\r\ngetset\r\n", "the late GETSET answers another time than the expired one, and the second waits", checker.Apart("first", "second"))),
			nilAnswer("redis-getset", "nil-is-no-grant", "no contender holds the lock, and the second waits for its own time", checker.Deadlocked(900*time.Millisecond)),
			remedy(nilAnswer(sourcelock.StampGetSet, "nil-is-a-grant", "the second has the lock", checker.Apart("first", "second"))),
			clocksApart(sourcelock.StampGetSet, "clock-ahead", 900*time.Millisecond, "by the second's clock the lock has expired, and both hold it", checker.Together("first", "second")),
			remedy(clocksApart(sourcelock.StampImproved, "tolerance", 900*time.Millisecond, "the second that is added to the expiry covers the difference", checker.Apart("first", "second"))),
			clocksApart(sourcelock.StampImproved, "beyond-tolerance", 2*time.Second, "both hold it: a tolerance only moves the bound", checker.Together("first", "second")),
			rounded(sourcelock.StampSeconds, "whole-seconds", "the expiry is rounded down to the next full second, and both hold the lock", checker.Together("first", "second")),
			remedy(rounded(sourcelock.StampGetSet, "milliseconds", "the second waits", checker.Apart("first", "second"))),
			lateHolder(sourcelock.StampGetSet, "late-delete", "the first deletes the lock of the second, and the third holds it beside the second", checker.Together("second", "third")),
			remedy(lateHolder(sourcelock.StampChecked, "checked-delete", "the first finds by its own clock that it is late, and leaves the lock alone", checker.Apart("second", "third"))),
			lostRace("redis-getset", "moved-expiry", "\r\ngetset\r\n", "the loser's time is in the lock of the winner, half a TTL later", checker.AtLeast(step.ExpiryMoved, ttl.Seconds()*500)),
			remedy(lostRace(sourcelock.StampScript, "compare-and-set", "\r\neval\r\n", "the script changes nothing where it loses", checker.AtMost(step.ExpiryMoved, 0))),
			constructed(sourcelock.StampInit, "init-deletes", "the constructor deletes the lock of the first, and both hold it", checker.Together("first", "second")),
			remedy(constructed(sourcelock.StampGetSet, "init-leaves", "the second waits", checker.Apart("first", "second"))),
		},
	}
}

// stamped is a part whose contenders have a clock that the steps move.
func stamped(c *step.Cast, name, does, expect string, seen checker.Check, steps ...scenario.Step) scenario.Part {
	c.Need, c.TTL = scenario.Redis, ttl
	return acted(c, name, does+" ("+c.Lock+")", expect, seen, steps...)
}

// asks is how long a contender may wait for its answer before the next step.
const asks = 500 * time.Millisecond

// expired is a lock whose holder has died, and whose time has come.
func expired(c *step.Cast) scenario.Step {
	return step.InOrder(c.Take("dead"), c.Die("dead"), c.Turn(2*ttl))
}

// givenBack has two contenders be done, in this order, a moment later.
func givenBack(c *step.Cast, one, other string) scenario.Step {
	return step.InOrder(step.Wait(50*time.Millisecond), c.GiveBack(one), c.Answered(other, patience), c.GiveBack(other))
}

const patience = 20 * time.Second

// setNX is how a client of today sends SETNX: as SET … NX.
const setNX = "\r\nset\r\n"

func takenOverTwice(lock, name, takeOver, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock}
	return stamped(c, name,
		"two contenders find that the lock of a dead one has expired; the request by which the second takes it over comes when the first has it",
		expect, seen,
		c.Enter("dead", "first", "second"), expired(c),
		c.AskHeldUp("second", patience, servers.Rule{Sent: takeOver, Do: servers.Hold}), c.Take("first"),
		c.PassUntil("second", setNX), c.Answered("second", asks), givenBack(c, "first", "second"))
}

func nilAnswer(lock, name, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock}
	return stamped(c, name,
		"two contenders find that the lock of a dead one has expired; the GETSET of the second comes when the first has had it and has given it back, and answers nil; the second waits for a second at most",
		expect, seen,
		c.Enter("dead", "first", "second"), expired(c),
		c.AskHeldUp("second", patience, servers.Rule{Sent: "\r\ngetset\r\n", Do: servers.Hold}), c.Take("first"), c.GiveBack("first"),
		c.Pass("second"), c.Answered("second", time.Second), c.GiveBack("second"))
}

func clocksApart(lock, name string, ahead time.Duration, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock, Ahead: map[string]time.Duration{"second": ahead}}
	return stamped(c, name,
		"the clock of the second contender is "+ahead.String()+" ahead; it asks when the first has held the lock for half a TTL",
		expect, seen,
		c.Enter("first", "second"), c.Take("first"), c.Turn(ttl/2), c.Ask("second", patience, asks), givenBack(c, "first", "second"))
}

func rounded(lock, name, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock}
	return stamped(c, name,
		"the first contender takes the lock 50 ms before a full second, and another asks for it at the full second",
		expect, seen,
		c.Enter("first", "second"), c.Take("first"), c.Turn(50*time.Millisecond), c.Ask("second", patience, asks), givenBack(c, "first", "second"))
}

func lateHolder(lock, name, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock}
	return stamped(c, name,
		"the first holder works for two TTL, the second takes the expired lock over, the first gives back what it had, and a third asks",
		expect, seen,
		c.Enter("first", "second", "third"), c.Take("first"), c.Turn(2*ttl), c.Take("second"), c.GiveBack("first"),
		c.Ask("third", patience, asks), givenBack(c, "second", "third"))
}

func lostRace(lock, name, takeOver, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock}
	held := servers.Rule{Sent: takeOver, Do: servers.Hold}
	return stamped(c, name,
		"two contenders, the second half a TTL later, find that the lock of a dead one has expired; the first takes it over, and the request of the second comes after that",
		expect, seen,
		c.Enter("dead", "first", "second"), expired(c),
		c.AskHeldUp("first", patience, held), c.Turn(ttl/2), c.AskHeldUp("second", patience, held),
		c.Pass("first"), c.Answered("first", patience),
		c.Expiring(c.PassUntil("second", setNX)), c.GiveBack("first"), c.Leave("second"), c.GiveBack("second"))
}

func constructed(lock, name, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Lock: lock}
	return stamped(c, name,
		"the second contender makes its lock, and asks, while the first holds the name",
		expect, seen,
		c.Enter("first", "second"), c.Take("first"), c.Ask("second", patience, asks), givenBack(c, "first", "second"))
}
