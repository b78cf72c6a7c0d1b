package experiments

import (
	"fmt"
	"strconv"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func timestampLocks() Experiment {
	return Experiment{
		Number: 29, Name: "timestamp-locks", Title: "The value is the expiry: what DEL, nil, whole seconds and a late holder do to it",
		Claim:  "A lock whose value is the time of its expiry is taken over by GETSET and not by DEL and SETNX; nil must be a grant, clocks may differ by a tolerance, times must be finer than seconds, and a holder checks the time before it deletes the lock.",
		Source: flashSales + ", deadlocks, and RedisLock; " + basicSearch + ", deadlock, GETSET, and the trouble with time stamps",
		Fix:    "stocklab demo --strategies redis-lua --replicas 3",
		Parts: []Part{
			takenOverTwice(sourcelock.StampDel, "del-setnx", "\r\ndel\r\n", "the late DEL deletes the lock of the first, and both hold it", checker.Together("first", "second")),
			asRemedy(takenOverTwice(sourcelock.StampGetSet, "getset", "\r\ngetset\r\n", "the late GETSET answers another time than the expired one, and the second waits", checker.Apart("first", "second"))),
			nilAnswer("redis-getset", "nil-is-no-grant", "no contender holds the lock, and the second waits for its own time", checker.Deadlocked(900*time.Millisecond)),
			asRemedy(nilAnswer(sourcelock.StampGetSet, "nil-is-a-grant", "the second has the lock", checker.Apart("first", "second"))),
			clocksApart(sourcelock.StampGetSet, "clock-ahead", 900*time.Millisecond, "by the second's clock the lock has expired, and both hold it", checker.Together("first", "second")),
			asRemedy(clocksApart(sourcelock.StampImproved, "tolerance", 900*time.Millisecond, "the second that is added to the expiry covers the difference", checker.Apart("first", "second"))),
			clocksApart(sourcelock.StampImproved, "beyond-tolerance", 2*time.Second, "both hold it: a tolerance only moves the bound", checker.Together("first", "second")),
			rounded(sourcelock.StampSeconds, "whole-seconds", "the expiry is rounded down to the next full second, and both hold the lock", checker.Together("first", "second")),
			asRemedy(rounded(sourcelock.StampGetSet, "milliseconds", "the second waits", checker.Apart("first", "second"))),
			lateHolder(sourcelock.StampGetSet, "late-delete", "the first deletes the lock of the second, and the third holds it beside the second", checker.Together("second", "third")),
			asRemedy(lateHolder(sourcelock.StampChecked, "checked-delete", "the first finds by its own clock that it is late, and leaves the lock alone", checker.Apart("second", "third"))),
			lostRace("redis-getset", "moved-expiry", "\r\ngetset\r\n", "the loser's time is in the lock of the winner, half a TTL later", checker.AtLeast("expiry_moved_ms", ttl.Seconds()*500)),
			asRemedy(lostRace(sourcelock.StampScript, "compare-and-set", "\r\neval\r\n", "the script changes nothing where it loses", checker.AtMost("expiry_moved_ms", 0))),
			constructed(sourcelock.StampInit, "init-deletes", "the constructor deletes the lock of the first, and both hold it", checker.Together("first", "second")),
			asRemedy(constructed(sourcelock.StampGetSet, "init-leaves", "the second waits", checker.Apart("first", "second"))),
		},
	}
}

// stamped is a part whose contenders have a clock that it moves.
func stamped(kind, name, does, expect string, seen checker.Check, do func(x *Try)) Part {
	return Part{
		Name: name, Stage: on(Redis), Does: does + " (" + kind + ")", Expect: expect, Do: do, Check: seen, Pictures: []Picture{Timeline},
	}
}

// asks is how long a contender may wait for its answer before the next step.
const asks = 500 * time.Millisecond

// expired leaves a lock whose holder has died, and whose time has come.
func (x *Try) expired(kind string) {
	dead := x.enter("dead", kind, Redis, ttl)
	dead.acquire()
	dead.die()
	x.turn(2 * ttl)
}

func takenOverTwice(kind, name, takeOver, expect string, seen checker.Check) Part {
	return stamped(kind, name,
		"two contenders find that the lock of a dead one has expired; the request by which the second takes it over comes when the first has it",
		expect, seen, func(x *Try) {
			x.expired(kind)
			first, second := x.firstAndSecond(kind, Redis, ttl)
			second.askHeldUp(servers.Rule{Sent: takeOver, Do: servers.Hold})
			first.acquire()
			second.goOnUntil(setNX)
			second.awaitAnswer(asks)
			x.givenBack(first, second)
		})
}

func nilAnswer(kind, name, expect string, seen checker.Check) Part {
	return stamped(kind, name,
		"two contenders find that the lock of a dead one has expired; the GETSET of the second comes when the first has had it and has given it back, and answers nil; the second waits for a second at most",
		expect, seen, func(x *Try) {
			x.expired(kind)
			first, second := x.firstAndSecond(kind, Redis, ttl)
			second.askHeldUp(servers.Rule{Sent: "\r\ngetset\r\n", Do: servers.Hold})
			first.acquire()
			first.giveBack()
			second.goOn()
			second.awaitAnswer(time.Second)
			second.giveBack()
		})
}

func clocksApart(kind, name string, ahead time.Duration, expect string, seen checker.Check) Part {
	return stamped(kind, name,
		"the clock of the second contender is "+ahead.String()+" ahead; it asks when the first has held the lock for half a TTL",
		expect, seen, func(x *Try) {
			first, second := x.firstAndSecond(kind, Redis, ttl)
			second.ahead = ahead
			first.acquire()
			x.turn(ttl / 2)
			second.askAndGoOn(asks)
			x.givenBack(first, second)
		})
}

func rounded(kind, name, expect string, seen checker.Check) Part {
	return stamped(kind, name,
		"the first contender takes the lock 50 ms before a full second, and another asks for it at the full second",
		expect, seen, func(x *Try) {
			first, second := x.firstAndSecond(kind, Redis, ttl)
			first.acquire()
			x.turn(50 * time.Millisecond)
			second.askAndGoOn(asks)
			x.givenBack(first, second)
		})
}

func lateHolder(kind, name, expect string, seen checker.Check) Part {
	return stamped(kind, name,
		"the first holder works for two TTL, the second takes the expired lock over, the first gives back what it had, and a third asks",
		expect, seen, func(x *Try) {
			first, second := x.firstAndSecond(kind, Redis, ttl)
			third := x.enter("third", kind, Redis, ttl)
			first.acquire()
			x.turn(2 * ttl)
			second.acquire()
			first.giveBack()
			third.askAndGoOn(asks)
			x.givenBack(second, third)
		})
}

func lostRace(kind, name, takeOver, expect string, seen checker.Check) Part {
	return stamped(kind, name,
		"two contenders, the second half a TTL later, find that the lock of a dead one has expired; the first takes it over, and the request of the second comes after that",
		expect, seen, func(x *Try) {
			x.expired(kind)
			first, second := x.firstAndSecond(kind, Redis, ttl)
			first.askHeldUp(servers.Rule{Sent: takeOver, Do: servers.Hold})
			x.turn(ttl / 2)
			second.askHeldUp(servers.Rule{Sent: takeOver, Do: servers.Hold})
			first.goOn()
			first.awaitAnswer(patience)
			before := x.expiry(kind)
			second.goOnUntil(setNX)
			x.Figure("expiry_moved_ms", x.expiry(kind)-before)
			first.giveBack()
			second.giveUp()
			second.giveBack()
		})
}

// expiry is the time that is the value of the lock, in ms.
func (x *Try) expiry(kind string) (ms float64) {
	client := x.redis()
	keys := x.keysOf(client, kind)
	if len(keys) != 1 {
		x.Must(fmt.Errorf("look for the one key of %s: %d found", kind, len(keys)))
	}
	value, err := client.Get(x, keys[0]).Result()
	x.Must(err)
	ms, err = strconv.ParseFloat(value, 64)
	x.Must(err)
	return ms
}

func constructed(kind, name, expect string, seen checker.Check) Part {
	return stamped(kind, name,
		"the second contender makes its lock, and asks, while the first holds the name",
		expect, seen, func(x *Try) {
			first, second := x.firstAndSecond(kind, Redis, ttl)
			first.acquire()
			second.askAndGoOn(asks)
			x.givenBack(first, second)
		})
}
