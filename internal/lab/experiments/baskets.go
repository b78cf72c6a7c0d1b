package experiments

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/checker"
	"github.com/stockd/stockd/internal/lock"
)

func multiLock() []Part {
	return []Part{
		crossed(asGiven, checker.All(checker.AtMost("baskets_bought", 0), checker.Deadlocked(basketLimit/2))),
		asRemedy(crossed(asOne, checker.All(checker.AtLeast("baskets_bought", 2), checker.ExclusiveHolders()))),
		many(asGiven, checker.AtLeast("baskets_timed_out", 1)),
		asRemedy(many(asOne, checker.All(checker.AtMost("baskets_timed_out", 0), checker.ExclusiveHolders()))),
		failing(kept, checker.NeverGrantedTo("next")),
		asRemedy(failing(asOne, checker.GrantedTo("next"))),
	}
}

// basket is how an order of several items takes their locks.
type basket string

const (
	// asGiven takes one lock after the other in the order of the basket, and gives back what
	// it has where one is not granted.
	asGiven basket = "as-given"
	// kept keeps then what it has.
	kept basket = "kept"
	// asOne takes them by lock.Multi.
	asOne basket = "multi-lock"
)

const (
	// basketLock is renewed, and served in the order of arrival: no basket times out by bad luck.
	basketLock = "redis-fair"
	// basketLimit is for how long a basket asks for its locks, and basketWork for how long it holds them.
	basketLimit = time.Second
	basketWork  = 2 * time.Millisecond
)

// take returns how to give the locks back. Where one is not granted, that is nil or what is left.
func (b basket) take(ctx context.Context, l lock.Locker, names ...string) (giveBack func(context.Context) error, err error) {
	if b == asOne {
		lease, err := lock.NewMulti(l).Acquire(ctx, names...)
		if err != nil {
			return nil, err
		}
		return lease.Release, nil
	}
	var leases []lock.Lease
	giveBack = func(ctx context.Context) (err error) {
		for _, lease := range leases {
			err = errors.Join(err, lease.Release(ctx))
		}
		return err
	}
	for _, name := range names {
		lease, err := l.Acquire(ctx, name)
		switch {
		case err == nil:
			leases = append(leases, lease)
		case b == kept:
			return giveBack, err
		default:
			return nil, errors.Join(err, giveBack(context.WithoutCancel(ctx)))
		}
	}
	return giveBack, nil
}

// order holds the locks of a basket of two items for a moment, and reports whether it got them in time.
func (b basket) order(x *Try, l lock.Locker, one, other int) (bought bool) {
	limited, cancel := context.WithTimeout(x, basketLimit)
	defer cancel()
	giveBack, err := b.take(limited, l, x.itemName(one), x.itemName(other))
	if errors.Is(err, lock.ErrNotAcquired) && x.Err() == nil {
		return false // that is in the history
	}
	x.Must(err)
	x.sleep(basketWork)
	x.Must(giveBack(context.WithoutCancel(x)))
	return true
}

// meeting is a lock whose first grant waits for that of the other contender, for 300 ms at most.
type meeting struct {
	lock.Locker

	own, other chan struct{}
	once       *sync.Once
}

// Acquire asks the lock.
func (m meeting) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	lease, err := m.Locker.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	m.once.Do(func() { close(m.own) })
	select {
	case <-m.other:
	case <-time.After(300 * time.Millisecond):
	}
	return lease, nil
}

// crossed has two contenders order the same two items, the one in the one order and the other in the other.
func crossed(b basket, seen checker.Check) Part {
	return newPart(string(b), on(Redis), seen, func(x *Try) {
		granted := []chan struct{}{make(chan struct{}), make(chan struct{})}
		var bought atomic.Int64
		x.Each(2, func(i int) {
			locker := x.contend(fmt.Sprintf("basket-%d", i+1), Redis).locker(basketLock)
			if b.order(x, meeting{locker, granted[i], granted[1-i], new(sync.Once)}, i, 1-i) {
				bought.Add(1)
			}
		})
		x.Figure("baskets_bought", float64(bought.Load()))
	}, Timeline)
}

// many has contenders order two of four items each, in any order, again and again.
func many(b basket, seen checker.Check) Part {
	return newPart("many-"+string(b), on(Redis), checker.All(seen, checker.Reported("baskets_per_s")), func(x *Try) {
		crowd := x.crowd(8, basketLock, Redis, false)
		var bought, late atomic.Int64
		began := time.Now()
		x.Each(len(crowd), func(i int) {
			for time.Since(began) < 3*time.Second {
				items := rand.Perm(4)
				if b.order(x, crowd[i], items[0], items[1]) {
					bought.Add(1)
				} else {
					late.Add(1)
				}
			}
		})
		x.Figure("baskets_per_s", float64(bought.Load())/time.Since(began).Seconds())
		x.Figure("baskets_timed_out", float64(late.Load()))
	}, Waits)
}

// failing has a basket fail at its second item, which another contender holds, and then a next contender ask for the
// first item alone.
func failing(b basket, seen checker.Check) Part {
	return newPart("fails-halfway-"+string(b), on(Redis), seen, func(x *Try) {
		lockerOf := func(who string) lock.Locker { return x.contend(who, Redis).locker(basketLock) }
		holder, order, next := lockerOf("holder"), lockerOf("basket"), lockerOf("next")
		held := x.take(holder, x.itemName(1))
		defer held.Release(context.WithoutCancel(x)) //nolint:errcheck // that is in the history
		limited, cancel := context.WithTimeout(x, basketLimit)
		defer cancel()
		giveBack, err := b.take(limited, order, x.itemName(0), x.itemName(1))
		if giveBack != nil {
			defer giveBack(context.WithoutCancel(x)) //nolint:errcheck // the same
		}
		if !errors.Is(err, lock.ErrNotAcquired) {
			x.Must(fmt.Errorf("the basket was to find its second item taken: %w", errors.Join(err, x.Err())))
		}
		x.holdFor(basketWork, next, x.itemName(0), 2*basketLimit)
	}, Timeline)
}
