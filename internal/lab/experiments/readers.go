package experiments

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

func readWriteLock() []Part {
	whole := checker.WholePages(pageUnits)
	made := checker.AtLeast("purchases", 10)
	return []Part{
		shown("no-lock", checker.All(checker.HalfMadePages(pageUnits), made), page{}),
		asRemedy(shown("both-locks", checker.All(whole, made, checker.ReadersShare(), checker.ExclusiveHolders()),
			page{read: sourcelock.ReadLock, write: sourcelock.WriteLockAnnounced})),
		asRemedy(shown("in-one-step", checker.All(whole, made),
			page{atOnce: true})),
		asRemedy(compared(8, checker.AtLeast("reads_ratio", 3))),
		compared(1, checker.AtMost("reads_ratio", 1.5)),
		inTurns("new-readers-come-in", sourcelock.WriteLock, checker.All(checker.NeverGrantedTo("writer"), checker.ReadersShare())),
		asRemedy(inTurns("new-readers-wait", sourcelock.WriteLockAnnounced,
			checker.All(checker.GrantedTo("writer"), checker.WaitedAtMost(2*time.Second, checker.OfHolders("writer"))))),
		longRead("lease-runs-out", sourcelock.ReadLockUnrenewed, checker.Together("reader", "writer")),
		asRemedy(longRead("lease-is-renewed", sourcelock.ReadLock, checker.Apart("reader", "writer"))),
		asRemedy(lostRead()),
	}
}

// page is that of an item in Redis: how many units are left, and how many are sold. Visitors read it under one lock,
// or without one, and purchases change one number after the other under another one, or both in one step.
type page struct {
	read, write string
	atOnce      bool
}

// pageUnits are left and sold together, at any time between two purchases.
const pageUnits = 1_000_000

// shown has visitors look at the page of an item while buyers buy it.
func shown(name string, seen checker.Check, p page) Part {
	return newPart(name, on(Redis), seen, p.show)
}

// show records what each visitor saw.
func (p page) show(x *Try) {
	const visitors, buyers = 4, 2
	client := x.redis()
	left, sold := fmt.Sprintf("stockd:lab:{page/%d}:left", x.Item), fmt.Sprintf("stockd:lab:{page/%d}:sold", x.Item)
	defer client.Del(context.WithoutCancel(x), left, sold)
	x.Must(client.MSet(x, left, pageUnits, sold, 0).Err())
	var made atomic.Int64
	x.Each(visitors+buyers, func(i int) {
		if i < visitors {
			x.again(fmt.Sprintf("visitor-%d", i+1), p.read, func() { p.visit(x, client, left, sold) })
			return
		}
		x.again(fmt.Sprintf("buyer-%d", i-visitors+1), p.write, func() {
			made.Add(1)
			p.buy(x, client, left, sold)
		})
	})
	x.Figure("purchases", float64(made.Load()))
}

// again does something again and again for a second, under a lock where there is one.
func (x *Try) again(who, kind string, do func()) {
	var locker lock.Locker
	if kind != "" {
		locker = x.contend(who, Redis).locker(kind)
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		x.under(locker, do)
		x.Must(pause.About(x, 10*time.Millisecond))
	}
}

// under does something under a lock, or without one where it is nil.
func (x *Try) under(l lock.Locker, do func()) {
	if l == nil {
		do()
		return
	}
	lease := x.take(l, x.lockName())
	do()
	x.release(lease)
}

func (p page) visit(x *Try, client *redis.Client, left, sold string) {
	read := func(keys ...string) (values []int64) { // by one command
		found := flow.Get(client.MGet(x, keys...).Result())(x.Flow)
		for _, one := range found {
			value := flow.Get(strconv.ParseInt(fmt.Sprint(one), 10, 64))(x.Flow)
			values = append(values, value)
		}
		return values
	}
	var seen []int64
	if p.atOnce {
		seen = read(left, sold)
	} else {
		seen = append(read(left), read(sold)...)
	}
	x.Add(history.Line{Sample: &history.Sample{At: time.Now(), GoodsID: x.Item, Stock: seen[0], Sold: seen[1]}})
}

func (p page) buy(x *Try, client *redis.Client, left, sold string) {
	if p.atOnce {
		_, err := client.TxPipelined(x, func(both redis.Pipeliner) error {
			both.Decr(x, left)
			both.Incr(x, sold)
			return nil
		})
		x.Must(err)
		return
	}
	x.Must(client.Decr(x, left).Err())
	x.sleep(2 * time.Millisecond)
	x.Must(client.Incr(x, sold).Err())
}

// compared has readers read for five rounds under the read lock and under the write lock, one lock after the other in
// each.
func compared(readers int, seen checker.Check) Part {
	seen = checker.All(seen, checker.Reported("reads_per_s_shared", "reads_per_s_exclusive", "reads_ratio_min", "reads_ratio_max"), checker.ExclusiveHolders())
	return newPart(fmt.Sprintf("readers-%d", readers), on(Redis), seen, func(x *Try) {
		kinds := [2]string{sourcelock.ReadLock, sourcelock.WriteLock}
		var crowds [2][]lock.Locker
		for i := range readers {
			c := x.contend(fmt.Sprintf("reader-%d", i+1), Redis)
			for k, kind := range kinds {
				crowds[k] = append(crowds[k], c.locker(kind))
				c.warm(kind)
			}
		}
		var reads [2][]float64
		for range 5 {
			for k, crowd := range crowds {
				reads[k] = append(reads[k], x.perS(readers, 400*time.Millisecond, func(i int) {
					x.under(crowd[i], func() { x.sleep(5 * time.Millisecond) })
				}))
			}
		}
		times := ratios(reads[0], reads[1])
		x.Figures(map[string]float64{
			"reads_per_s_shared": median(reads[0]), "reads_per_s_exclusive": median(reads[1]), "reads_ratio": median(times),
			"reads_ratio_min": slices.Min(times), "reads_ratio_max": slices.Max(times),
		})
	})
}

// inTurns has two readers hold the lock in turns, so that one of them has it all the time, while a writer asks for it.
// A reader that is kept out does not keep the other one in: that goes after half a second.
func inTurns(name, write string, seen checker.Check) Part {
	const turn = 20 * time.Millisecond
	seen = checker.All(seen, checker.Reported("reads_meanwhile"), checker.ExclusiveHolders())
	return newPart(name, on(Redis), seen, func(x *Try) {
		readers := [2]lock.Locker{x.contend("reader-1", Redis).locker(sourcelock.ReadLock), x.contend("reader-2", Redis).locker(sourcelock.ReadLock)}
		writer := x.contend("writer", Redis).locker(write)
		lease, turns := x.take(readers[0], x.lockName()), 1
		written, stop := context.WithCancel(x)
		x.start(func() {
			defer stop()
			x.holdFor(turn, writer, x.lockName(), 3*time.Second)
		})
		for ; pause.For(written, turn) == nil; turns++ {
			lease = x.handOver(lease, readers[turns%2])
		}
		x.release(lease)
		x.wait()
		x.Figure("reads_meanwhile", float64(turns))
	}, Timeline)
}

// handOver has the next reader come, and the one before leave.
func (x *Try) handOver(before lock.Lease, next lock.Locker) (lease lock.Lease) {
	came, here := context.WithCancel(x)
	x.Together(func() {
		defer here()
		lease = x.take(next, x.lockName())
	}, func() {
		_ = pause.For(came, 500*time.Millisecond) // or until the next one has come
		x.release(before)
	})
	return lease
}

// longRead has the reader read for as long as the writer asks: three TTL.
func longRead(name, read string, seen checker.Check) Part {
	return newPart(name, on(Redis), seen, func(x *Try) {
		reader, writer := x.enter("reader", read, Redis, ttl), x.enter("writer", sourcelock.WriteLock, Redis, ttl)
		reader.acquire()
		writer.ask(3 * ttl)
		reader.giveBack()
		writer.giveBack()
		writer.acquire()
		writer.giveBack()
	}, Timeline)
}

// lostRead has Redis forget the lock while it is held, as a failover to a replica that has not got it yet does.
func lostRead() Part {
	seen := checker.All(checker.LossNoticed("reader", forgotten, ttl), checker.GrantedTo("writer"))
	return newPart("lease-is-lost", on(Redis), seen, func(x *Try) {
		reader, writer := x.enter("reader", sourcelock.ReadLock, Redis, ttl), x.enter("writer", sourcelock.WriteLock, Redis, ttl)
		reader.acquire()
		client := x.redis()
		keys := x.keysOf(client, "*")
		if len(keys) == 0 {
			x.Must(fmt.Errorf("delete the keys of %s: there is none", x.lockName()))
		}
		x.Must(client.Del(x, keys...).Err())
		x.Mark("redis", forgotten+": the lock")
		x.sleep(ttl)
		writer.acquire()
		writer.giveBack()
		reader.giveBack()
	}, Timeline)
}

// forgotten begins the mark of a Redis that has lost the keys of a lock.
const forgotten = "forgotten"
