package catalogue

import (
	"fmt"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/scenario/step"
	"github.com/stockd/stockd/internal/lab/sourcelock"
)

func readWriteLock() scenario.Experiment {
	half := checker.HalfMadePages(step.PageUnits)
	whole := checker.WholePages(step.PageUnits)
	made := checker.AtLeast(step.Purchases, 10)
	return scenario.Experiment{
		Number: 33, Name: "read-write-lock", Title: "A read-write lock: readers share, a writer waits for all, and may wait for ever",
		Claim: "Readers of the stock's page share a read lock and do not wait for each other, and a purchase that takes the write lock is never seen half made; " +
			"but a writer starves while readers keep coming, and a read lock whose lease runs out protects no page.",
		Source: chapterOne + ", Redisson: the read-write lock among its other locks, by name",
		Fix:    "stocklab lab run read-write-lock  # in-one-step needs no lock",
		Parts: []scenario.Part{
			shown("no-lock", "no lock is taken", "visitors see that a unit has left the stock and is not sold", checker.All(half, made),
				step.Page{}),
			remedy(shown("both-locks", "a visitor takes the read lock, a purchase the write lock, which is announced", "no page is half made, visitors read at the same time, and no purchase is made meanwhile",
				checker.All(whole, made, checker.ReadersShare(), checker.ExclusiveHolders()),
				step.Page{Read: sourcelock.ReadLock, Write: sourcelock.WriteLockAnnounced})),
			remedy(shown("in-one-step", "no lock is taken; one command reads both numbers, and one transaction changes both", "no page is half made", checker.All(whole, made),
				step.Page{AtOnce: true})),
			remedy(compared(8, "the readers of the read lock read at the same time: three times as many reads a second, or more", checker.AtLeast(step.ReadsRatio, 3))),
			compared(1, "one reader has nothing to share: about as many reads a second under both", checker.AtMost(step.ReadsRatio, 1.5)),
			inTurns("new-readers-come-in", sourcelock.WriteLock, "the readers share the lock all the time, and the writer is never granted it",
				checker.All(checker.NeverGrantedTo("writer"), checker.ReadersShare())),
			remedy(inTurns("new-readers-wait", sourcelock.WriteLockAnnounced, "new readers wait for the writer, which waits for those that read already",
				checker.All(checker.GrantedTo("writer"), checker.WaitedAtMost(turnsEnd, checker.OfHolders("writer"))))),
			longRead("lease-runs-out", sourcelock.ReadLockUnrenewed, "the writer is let in beside the reader", checker.Together("reader", "writer")),
			remedy(longRead("lease-is-renewed", sourcelock.ReadLock, "the writer waits until the reader has given the lock back", checker.Apart("reader", "writer"))),
			remedy(lostRead()),
		},
	}
}

// shown has visitors look at the page of an item while buyers buy it.
func shown(name, how, expect string, seen checker.Check, p step.Page) scenario.Part {
	p.Visitors, p.Buyers, p.For = 4, 2, time.Second
	return scenario.Part{
		Name: name, Stage: scenario.Stage{Needs: []scenario.Need{scenario.Redis}},
		Does:   "four visitors read in Redis how many units are left and how many are sold, for a second, and two buyers change one number and 2 ms later the other; " + how,
		Expect: expect, Steps: []scenario.Step{step.Show(p)}, Check: seen, Tries: triesOf(p), Pictures: []scenario.Picture{scenario.Bars},
	}
}

// triesOf are more than one where luck decides what a visitor sees.
func triesOf(p step.Page) int {
	if p.Read == "" && !p.AtOnce {
		return 3
	}
	return 0
}

// compared has readers read for five rounds under the read lock and under the write lock.
func compared(readers int, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: fmt.Sprintf("readers-%d", readers), Stage: scenario.Stage{Needs: []scenario.Need{scenario.Redis}},
		Does: fmt.Sprintf("readers: %d; each reads for 5 ms again and again, under the read lock and under the write lock, which is a plain mutex to them, "+
			"for 400 ms each in five rounds; medians", readers),
		Expect: expect, Steps: []scenario.Step{step.CompareReads(readers, sourcelock.ReadLock, sourcelock.WriteLock)},
		Check:    checker.All(seen, checker.Reported(step.ReadsShared, step.ReadsExclusive, step.ReadsRatio+"_min", step.ReadsRatio+"_max"), checker.ExclusiveHolders()),
		Pictures: []scenario.Picture{scenario.Bars},
	}
}

// turnsLimit is for how long a writer asks, and turnsEnd for how long it waits for readers that read
// already.
const (
	turnsLimit = 3 * time.Second
	turnsEnd   = 2 * time.Second
)

func inTurns(name, write, expect string, seen checker.Check) scenario.Part {
	return scenario.Part{
		Name: name, Stage: scenario.Stage{Needs: []scenario.Need{scenario.Redis}},
		Does: "two readers hold the read lock in turns, each until the other has it, too, and no longer than half a second then; " +
			"a writer asks for the " + write + " for three seconds",
		Expect: expect, Steps: []scenario.Step{step.TakeTurns(sourcelock.ReadLock, write, turnsLimit)},
		Check: checker.All(seen, checker.Reported(step.ReadsMeanwhile), checker.ExclusiveHolders()), Tries: 3,
		Pictures: []scenario.Picture{scenario.Timeline},
	}
}

// longRead has the reader read for as long as the writer asks: three TTL.
func longRead(name, read, expect string, seen checker.Check) scenario.Part {
	c := &step.Cast{Locks: map[string]string{"reader": read, "writer": sourcelock.WriteLock}, Need: scenario.Redis, TTL: ttl}
	return acted(c, name,
		"the reader holds the "+read+"; the writer asks for three TTL, and once more when the reader has given it back",
		expect, seen,
		c.Enter("reader", "writer"), c.Take("reader"), c.Ask("writer", 3*ttl, patience), c.GiveBack("reader"), c.GiveBack("writer"),
		c.Take("writer"), c.GiveBack("writer"))
}

// lostRead has Redis forget the lock while it is held.
func lostRead() scenario.Part {
	c := &step.Cast{Locks: map[string]string{"reader": sourcelock.ReadLock, "writer": sourcelock.WriteLock}, Need: scenario.Redis, TTL: ttl}
	return acted(c, "lease-is-lost",
		"the reader holds the read lock, and Redis loses its keys; the writer takes the lock a TTL later",
		"no watchdog keeps the writer out, and the reader knows within a TTL that its page may be half made",
		checker.All(checker.LossNoticed("reader", step.Forgotten, ttl), checker.GrantedTo("writer")),
		c.Enter("reader", "writer"), c.Take("reader"), step.Forget(), step.Wait(ttl), c.Take("writer"), c.GiveBack("writer"), c.GiveBack("reader"))
}
