package experiments

import (
	"fmt"
	"strconv"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func timestampLocks() []Part {
	return []Part{
		takenOverTwice(sourcelock.StampDel, "del-setnx", "\r\ndel\r\n", checker.Together("first", "second")),
		asRemedy(takenOverTwice(sourcelock.StampGetSet, "getset", "\r\ngetset\r\n", checker.Apart("first", "second"))),
		nilAnswer("redis-getset", "nil-is-no-grant", checker.Deadlocked(900*time.Millisecond)),
		asRemedy(nilAnswer(sourcelock.StampGetSet, "nil-is-a-grant", checker.Apart("first", "second"))),
		whileHeld(sourcelock.StampGetSet, "clock-ahead", 900*time.Millisecond, ttl/2, checker.Together("first", "second")),
		asRemedy(whileHeld(sourcelock.StampImproved, "tolerance", 900*time.Millisecond, ttl/2, checker.Apart("first", "second"))),
		whileHeld(sourcelock.StampImproved, "beyond-tolerance", 2*time.Second, ttl/2, checker.Together("first", "second")),
		whileHeld(sourcelock.StampSeconds, "whole-seconds", 0, 50*time.Millisecond, checker.Together("first", "second")),
		asRemedy(whileHeld(sourcelock.StampGetSet, "milliseconds", 0, 50*time.Millisecond, checker.Apart("first", "second"))),
		lateHolder(sourcelock.StampGetSet, "late-delete", checker.Together("second", "third")),
		asRemedy(lateHolder(sourcelock.StampChecked, "checked-delete", checker.Apart("second", "third"))),
		lostRace("redis-getset", "moved-expiry", "\r\ngetset\r\n", checker.AtLeast("expiry_moved_ms", ttl.Seconds()*500)),
		asRemedy(lostRace(sourcelock.StampScript, "compare-and-set", "\r\neval\r\n", checker.AtMost("expiry_moved_ms", 0))),
		whileHeld(sourcelock.StampInit, "init-deletes", 0, 0, checker.Together("first", "second")),
		asRemedy(whileHeld(sourcelock.StampGetSet, "init-leaves", 0, 0, checker.Apart("first", "second"))),
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

func takenOverTwice(kind, name, takeOver string, seen checker.Check) Part {
	return newPart(name, on(Redis), seen, func(x *Try) {
		x.expired(kind)
		first, second := x.firstAndSecond(kind, Redis, ttl)
		second.askHeldUp(servers.Rule{Sent: takeOver, Do: servers.Hold})
		first.acquire()
		second.goOnUntil(setNX)
		second.awaitAnswer(asks)
		x.givenBack(first, second)
	}, Timeline)
}

func nilAnswer(kind, name string, seen checker.Check) Part {
	return newPart(name, on(Redis), seen, func(x *Try) {
		x.expired(kind)
		first, second := x.firstAndSecond(kind, Redis, ttl)
		second.askHeldUp(servers.Rule{Sent: "\r\ngetset\r\n", Do: servers.Hold})
		first.acquire()
		first.giveBack()
		second.goOn()
		second.awaitAnswer(time.Second)
		second.giveBack()
	}, Timeline)
}

// whileHeld has the second contender, whose clock is ahead, ask while the first one has the lock, a time after it took it.
func whileHeld(kind, name string, ahead, after time.Duration, seen checker.Check) Part {
	return newPart(name, on(Redis), seen, func(x *Try) {
		first, second := x.firstAndSecond(kind, Redis, ttl)
		second.ahead = ahead
		first.acquire()
		if after > 0 {
			x.turn(after)
		}
		second.askAndGoOn(asks)
		x.givenBack(first, second)
	}, Timeline)
}

func lateHolder(kind, name string, seen checker.Check) Part {
	return newPart(name, on(Redis), seen, func(x *Try) {
		first, second := x.firstAndSecond(kind, Redis, ttl)
		third := x.enter("third", kind, Redis, ttl)
		first.acquire()
		x.turn(2 * ttl)
		second.acquire()
		first.giveBack()
		third.askAndGoOn(asks)
		x.givenBack(second, third)
	}, Timeline)
}

func lostRace(kind, name, takeOver string, seen checker.Check) Part {
	return newPart(name, on(Redis), seen, func(x *Try) {
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
	}, Timeline)
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
