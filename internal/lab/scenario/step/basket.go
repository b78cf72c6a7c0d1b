package step

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
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
func (b Basket) order(ctx context.Context, l lock.Locker, names []string, within time.Duration) (bought bool, err error) {
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	giveBack, err := b.take(limited, l, names)
	if errors.Is(err, lock.ErrNotAcquired) && ctx.Err() == nil {
		return false, nil // that is in the history
	}
	if err != nil {
		return false, err
	}
	return true, errors.Join(pause.For(ctx, basketWork), giveBack(context.WithoutCancel(ctx)))
}

// The figures of baskets, and for how long an order holds its locks.
const (
	BasketsBought   = "baskets_bought"
	BasketsTimedOut = "baskets_timed_out"
	BasketsPerS     = "baskets_per_s"
	basketWork      = 2 * time.Millisecond
)

// nameOf is the name of one of several items.
func nameOf(s *scenario.Environment, item int) string { return fmt.Sprintf("%s/%d", name(s), item) }

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
	return func(ctx context.Context, s *scenario.Environment) error {
		granted := []chan struct{}{make(chan struct{}), make(chan struct{})}
		bought := make([]bool, 2)
		both, ctx := errgroup.WithContext(ctx)
		for i := range bought {
			_, locker, err := contend(s, fmt.Sprintf("basket-%d", i+1), kind, []scenario.Need{need})
			if err != nil {
				return errors.Join(err, both.Wait())
			}
			locker = meeting{locker, granted[i], granted[1-i], new(sync.Once)}
			both.Go(func() (err error) {
				bought[i], err = b.order(ctx, locker, []string{nameOf(s, i), nameOf(s, 1-i)}, within)
				return err
			})
		}
		err := both.Wait()
		n := len(slices.DeleteFunc(bought, func(ok bool) bool { return !ok }))
		return errors.Join(err, s.Figure(BasketsBought, float64(n)))
	}
}

// OrderMany has contenders order two of four items each, in any order, again and again.
func OrderMany(b Basket, kind string, need scenario.Need, contenders int, lasts, within time.Duration) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		lockers, err := (Contest{Lock: kind, Needs: []scenario.Need{need}, Contenders: contenders}).lockers(ctx, s)
		if err != nil {
			return err
		}
		var mu sync.Mutex
		bought, late := 0.0, 0.0
		began := time.Now()
		all, ctx := errgroup.WithContext(ctx)
		for _, locker := range lockers {
			all.Go(func() error {
				for time.Since(began) < lasts {
					items := rand.Perm(4)
					ok, err := b.order(ctx, locker, []string{nameOf(s, items[0]), nameOf(s, items[1])}, within)
					if err != nil {
						return err
					}
					mu.Lock()
					if ok {
						bought++
					} else {
						late++
					}
					mu.Unlock()
				}
				return nil
			})
		}
		if err := all.Wait(); err != nil {
			return err
		}
		return figures(s, map[string]float64{BasketsPerS: bought / time.Since(began).Seconds(), BasketsTimedOut: late})
	}
}

// OrderWhatIsTaken has a basket fail at its second item, which another contender holds, and then
// a next contender ask for the first item alone.
func OrderWhatIsTaken(b Basket, kind string, need scenario.Need, within time.Duration) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		lockers := make(map[string]lock.Locker)
		for _, who := range []string{"holder", "basket", "next"} {
			var err error
			if _, lockers[who], err = contend(s, who, kind, []scenario.Need{need}); err != nil {
				return err
			}
		}
		held, err := takeWithin(ctx, lockers["holder"], nameOf(s, 1), patience)
		if err != nil {
			return err
		}
		defer held.Release(context.WithoutCancel(ctx)) //nolint:errcheck // that is in the history
		limited, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		giveBack, err := b.take(limited, lockers["basket"], []string{nameOf(s, 0), nameOf(s, 1)})
		if giveBack != nil {
			defer giveBack(context.WithoutCancel(ctx)) //nolint:errcheck // the same
		}
		if !errors.Is(err, lock.ErrNotAcquired) {
			return fmt.Errorf("the basket was to find its second item taken: %w", errors.Join(err, ctx.Err()))
		}
		return hold(ctx, lockers["next"], nameOf(s, 0), 2*within, basketWork)
	}
}
