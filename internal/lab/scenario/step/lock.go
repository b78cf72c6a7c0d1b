package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// TakeTwice has one owner take a lock, and take it again while it has it, for no
// longer than within; then it gives back what it got.
func TakeTwice(kind string, within time.Duration, needs ...scenario.Need) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		_, locker, err := contend(s, "owner", kind, needs)
		if err != nil {
			return err
		}
		ctx = lock.WithOwner(ctx, "one and the same")
		for range 2 {
			lease, err := takeWithin(ctx, locker, name(s), within)
			if errors.Is(err, lock.ErrNotAcquired) && ctx.Err() == nil {
				return nil // that is in the history
			}
			if err != nil {
				return err
			}
			defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // that is in the history, too
		}
		return nil
	}
}

// contend makes a contender for one lock.
func contend(s *scenario.Environment, name, kind string, needs []scenario.Need) (*scenario.Contender, lock.Locker, error) {
	c, err := s.Contend(name, needs...)
	if err != nil {
		return nil, nil, err
	}
	locker, err := c.Locker(kind)
	return c, locker, err
}

func name(s *scenario.Environment) string { return fmt.Sprintf("lab/%d", s.Item) }

// Contest is a number of contenders, each with connections of its own, who hold a
// lock again and again.
type Contest struct {
	Lock       string
	Needs      []scenario.Need
	Contenders int
	// Holds ends it when each has held so often, For after so long.
	Holds int
	For   time.Duration
	// Each is how long they hold it.
	Each time.Duration
	// Wait is for how long one waits; 10 s where it is 0.
	Wait time.Duration
}

// Contend has them contend.
func Contend(c Contest) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		lockers, err := c.lockers(ctx, s)
		if err != nil {
			return err
		}
		end := time.Now().Add(cmp.Or(c.For, time.Hour))
		errs := make([]error, len(lockers))
		var crowd sync.WaitGroup
		for i, locker := range lockers {
			crowd.Go(func() {
				for n := 0; (c.Holds == 0 || n < c.Holds) && time.Now().Before(end) && errs[i] == nil; n++ {
					errs[i] = hold(ctx, locker, name(s), cmp.Or(c.Wait, 10*time.Second), c.Each)
				}
			})
		}
		crowd.Wait()
		return errors.Join(errs...)
	}
}

// lockers makes the contenders, and returns when all are connected.
func (c Contest) lockers(ctx context.Context, s *scenario.Environment) ([]lock.Locker, error) {
	lockers := make([]lock.Locker, c.Contenders)
	warm, warmCtx := errgroup.WithContext(ctx)
	for i := range lockers {
		contender, locker, err := contend(s, fmt.Sprintf("contender-%d", i+1), c.Lock, c.Needs)
		if err != nil {
			return nil, errors.Join(err, warm.Wait())
		}
		lockers[i] = locker
		warm.Go(func() error { return contender.Warm(warmCtx, c.Lock) })
	}
	return lockers, warm.Wait()
}

func takeWithin(ctx context.Context, l lock.Locker, name string, within time.Duration) (lock.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return l.Acquire(ctx, name)
}

// hold takes a lock, has it for some time and gives it back. Not to be granted it
// in time is no error: it is in the history.
func hold(ctx context.Context, l lock.Locker, name string, within, each time.Duration) error {
	lease, err := takeWithin(ctx, l, name, within)
	if errors.Is(err, lock.ErrNotAcquired) && ctx.Err() == nil {
		return nil
	}
	if err != nil {
		return err
	}
	defer lease.Release(context.WithoutCancel(ctx)) //nolint:errcheck // that is in the history
	return pause.For(ctx, each)
}
