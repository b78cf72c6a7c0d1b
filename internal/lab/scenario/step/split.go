package step

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
	"github.com/stockd/stockd/internal/lock"
)

// near are the masters of which each contender is first, from 0: two, two and one
// of five, so that none has a majority when all begin together.
func near() [][]int { return [][]int{{0, 1}, {2, 3}, {4}} }

// The delay to the other masters, and the pause between two tries.
const (
	far       = 120 * time.Millisecond
	splitWait = 100 * time.Millisecond
)

// SplitVote has three contenders begin at the same time, each near to other
// masters, and want one name of Redlock until one of them has it, or for no longer
// than within. It measures first_grant_ms.
func SplitVote(kind string, within time.Duration) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		lockers := make([]lock.Locker, len(near()))
		for i, masters := range near() {
			var err error
			if lockers[i], err = voter(s, i+1, kind, masters); err != nil {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		start := time.Now()
		errs := make([]error, len(lockers))
		var first sync.Once
		granted := within
		var crowd sync.WaitGroup
		for i, locker := range lockers {
			crowd.Go(func() {
				lease, err := locker.Acquire(ctx, name(s))
				if err != nil {
					errs[i] = err
					return
				}
				first.Do(func() { granted = time.Since(start) })
				cancel() // the others may stop
				errs[i] = lease.Release(context.WithoutCancel(ctx))
			})
		}
		crowd.Wait()
		for _, err := range errs {
			if err != nil && !errors.Is(err, lock.ErrNotAcquired) {
				return err
			}
		}
		return s.Figure("first_grant_ms", float64(granted.Milliseconds()))
	}
}

// voter is a contender that is near to some masters and far from the others.
func voter(s *scenario.Environment, number int, kind string, near []int) (lock.Locker, error) {
	proxies, err := links(s, s.Backends.Redlock)
	if err != nil {
		return nil, err
	}
	for _, p := range proxies {
		p.Slow(far)
	}
	for _, master := range near {
		proxies[master].Slow(0)
	}
	return asContender(s, fmt.Sprintf("contender-%d", number), kind, proxies)
}

func asContender(s *scenario.Environment, name, kind string, masters []*servers.Proxy) (lock.Locker, error) {
	c, err := s.Contend(name)
	if err != nil {
		return nil, err
	}
	clients := c.UseMasters(addresses(masters), s.Backends.Redlock.Nodes[0].Password)
	for _, client := range clients { // or connecting would be part of the race
		if err := client.Ping(context.Background()).Err(); err != nil {
			return nil, err
		}
	}
	if kind == sourcelock.InStep {
		return c.Record(kind, sourcelock.NewInStep(clients, splitWait)), nil
	}
	c.Retry = splitWait
	return c.Locker(kind)
}
