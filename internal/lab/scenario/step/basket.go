package step

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lock"
)

// Basket is how an order of several items takes their locks.
type Basket string

// The baskets.
const (
	// AsGiven takes one lock after the other in the order of the basket, and gives back what
	// it has where one is not granted.
	AsGiven Basket = "as-given"
	// Kept keeps then what it has.
	Kept Basket = "kept"
	// AsOne takes them by lock.Multi.
	AsOne Basket = "multi-lock"
)

// take returns how to give the locks back. Where one is not granted, that is nil or what is
// left.
func (b Basket) take(ctx context.Context, l lock.Locker, names []string) (giveBack func(context.Context) error, err error) {
	if b == AsOne {
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
		case b == Kept:
			return giveBack, err
		default:
			return nil, errors.Join(err, giveBack(context.WithoutCancel(ctx)))
		}
	}
	return giveBack, nil
}

// order holds the locks of a basket for a moment, and reports whether it got them in time.
func (b Basket) order(x *scenario.Try, l lock.Locker, names []string, within time.Duration) (bought bool) {
	limited, cancel := context.WithTimeout(x, within)
	defer cancel()
	giveBack, err := b.take(limited, l, names)
	if errors.Is(err, lock.ErrNotAcquired) && x.Err() == nil {
		return false // that is in the history
	}
	x.Must(err)
	wait(x, basketWork)
	x.Must(giveBack(context.WithoutCancel(x)))
	return true
}

// The figures of baskets, and for how long an order holds its locks.
const (
	BasketsBought   = "baskets_bought"
	BasketsTimedOut = "baskets_timed_out"
	BasketsPerS     = "baskets_per_s"
	basketWork      = 2 * time.Millisecond
)

// nameOf is the name of one of several items.
func nameOf(x *scenario.Try, item int) string { return fmt.Sprintf("%s/%d", name(x), item) }

// meeting is a lock whose first grant waits for that of the other contender, or for meets.
type meeting struct {
	lock.Locker

	own, other chan struct{}
	once       *sync.Once
}

const meets = 300 * time.Millisecond

// Acquire asks the lock.
func (m meeting) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	lease, err := m.Locker.Acquire(ctx, name)
	if err != nil {
		return nil, err
	}
	m.once.Do(func() { close(m.own) })
	select {
	case <-m.other:
	case <-time.After(meets):
	}
	return lease, nil
}

// OrderCrosswise has two contenders order the same two items, the one in the one order and the
// other in the other, each within a time.
func OrderCrosswise(b Basket, kind string, need scenario.Need, within time.Duration) scenario.Step {
	return func(x *scenario.Try) {
		granted := []chan struct{}{make(chan struct{}), make(chan struct{})}
		var bought atomic.Int64
		x.Each(len(granted), func(i int) {
			locker := meeting{x.Contend(fmt.Sprintf("basket-%d", i+1), need).Locker(kind), granted[i], granted[1-i], new(sync.Once)}
			if b.order(x, locker, []string{nameOf(x, i), nameOf(x, 1-i)}, within) {
				bought.Add(1)
			}
		})
		x.Figure(BasketsBought, float64(bought.Load()))
	}
}

// OrderMany has contenders order two of four items each, in any order, again and again.
func OrderMany(b Basket, kind string, need scenario.Need, contenders int, lasts, within time.Duration) scenario.Step {
	return func(x *scenario.Try) {
		lockers := Contest{Lock: kind, Needs: []scenario.Need{need}, Contenders: contenders}.lockers(x)
		var bought, late atomic.Int64
		began := time.Now()
		x.Each(len(lockers), func(i int) {
			for time.Since(began) < lasts {
				items := rand.Perm(4)
				if b.order(x, lockers[i], []string{nameOf(x, items[0]), nameOf(x, items[1])}, within) {
					bought.Add(1)
				} else {
					late.Add(1)
				}
			}
		})
		x.Figures(map[string]float64{BasketsPerS: float64(bought.Load()) / time.Since(began).Seconds(), BasketsTimedOut: float64(late.Load())})
	}
}

// OrderWhatIsTaken has a basket fail at its second item, which another contender holds, and then
// a next contender ask for the first item alone.
func OrderWhatIsTaken(b Basket, kind string, need scenario.Need, within time.Duration) scenario.Step {
	return func(x *scenario.Try) {
		holder, basket, next := x.Contend("holder", need).Locker(kind), x.Contend("basket", need).Locker(kind), x.Contend("next", need).Locker(kind)
		held := mustTake(x, holder, nameOf(x, 1))
		defer held.Release(context.WithoutCancel(x)) //nolint:errcheck // that is in the history
		limited, cancel := context.WithTimeout(x, within)
		defer cancel()
		giveBack, err := b.take(limited, basket, []string{nameOf(x, 0), nameOf(x, 1)})
		if giveBack != nil {
			defer giveBack(context.WithoutCancel(x)) //nolint:errcheck // the same
		}
		if !errors.Is(err, lock.ErrNotAcquired) {
			x.Must(fmt.Errorf("the basket was to find its second item taken: %w", errors.Join(err, x.Err())))
		}
		hold(x, next, nameOf(x, 0), 2*within, basketWork)
	}
}
