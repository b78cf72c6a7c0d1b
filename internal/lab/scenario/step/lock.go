package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/sourcelock"
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

func contend(s *scenario.Environment, name, kind string, needs []scenario.Need) (*scenario.Contender, lock.Locker, error) {
	c, err := s.Contend(name, needs...)
	if err != nil {
		return nil, nil, err
	}
	locker, err := c.Locker(kind)
	return c, locker, err
}

func name(s *scenario.Environment) string { return fmt.Sprintf("lab/%d", s.Item) }

// Contest is a number of contenders, each with connections of its own, that
// hold a lock again and again.
type Contest struct {
	Lock       string
	Needs      []scenario.Need
	Contenders int
	// Shared has them be requests to one replica, on its connections.
	Shared bool
	// Holds ends it when each has held so often, For after so long.
	Holds int
	For   time.Duration
	// Each is how long they hold it.
	Each time.Duration
	// Wait is for how long one waits; 10 s where it is 0.
	Wait time.Duration
	// Measure is around it, when all are connected; nil: nothing is measured.
	Measure func(scenario.Step) scenario.Step
}

// Contend has them contend.
func Contend(c Contest) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		lockers, err := c.lockers(ctx, s)
		if err != nil {
			return err
		}
		contest := c.among(lockers)
		if c.Measure != nil {
			contest = c.Measure(contest)
		}
		return contest(ctx, s)
	}
}

func (c Contest) among(lockers []lock.Locker) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
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
		if c.Shared && i > 0 {
			lockers[i] = lockers[0]
			continue
		}
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

// AskForTaken has one contender take a lock for some time, and a second one ask
// for it as soon as the first one has it.
func AskForTaken(kind string, each time.Duration, needs ...scenario.Need) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		var both [2]lock.Locker
		for i, name := range []string{"first", "second"} {
			var err error
			if _, both[i], err = contend(s, name, kind, needs); err != nil {
				return err
			}
		}
		lease, err := both[0].Acquire(ctx, name(s))
		if err != nil {
			return err
		}
		asked := make(chan error, 1)
		go func() { asked <- hold(ctx, both[1], name(s), each+patience, 0) }()
		err = Wait(each)(ctx, s)
		return errors.Join(err, lease.Release(context.WithoutCancel(ctx)), <-asked)
	}
}

// near are the masters of which each contender is first, from 0: two, two and one
// of five, so that none has a majority when all begin together.
func near() [][]int { return [][]int{{0, 1}, {2, 3}, {4}} }

// The delay to the other masters, and the pause between two tries.
const (
	far       = 120 * time.Millisecond
	splitWait = 100 * time.Millisecond
)

// FirstGrant is the figure of SplitVote.
const FirstGrant = "first_grant_ms"

// SplitVote has three contenders begin at the same time, each near to other
// masters, and want one name of Redlock until one of them has it, or for no longer
// than within. It measures FirstGrant where there is one.
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
		var granted time.Duration
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
		if granted == 0 {
			return nil
		}
		return s.Figure(FirstGrant, float64(granted.Milliseconds()))
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

// The figures of Tries: how often Redis was asked for the lock for each time that it was
// held, how often it was held in a second, and the processor time of Redis for that.
const (
	TriesPerHold  = "tries_per_hold"
	HoldsPerS     = "holds_per_s"
	CPUMsPerHold  = "redis_cpu_ms_per_hold"
	setCommand    = "cmdstat_set:calls"
	deleteCommand = "cmdstat_del:calls"
)

// Tries counts what Redis does while contenders take a lock by SET and give it back by DEL.
// Nothing else may do that meanwhile.
func Tries(do scenario.Step) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		client, err := s.Backends.Redis.Client()
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // nothing is lost with it
		before, err := redisWork(ctx, client)
		if err != nil {
			return err
		}
		begun := time.Now()
		if err := do(ctx, s); err != nil {
			return err
		}
		took := time.Since(begun)
		after, err := redisWork(ctx, client)
		if err != nil {
			return err
		}
		done := func(what string) float64 { return after[what] - before[what] }
		holds := done(deleteCommand)
		if holds == 0 {
			return errors.New("the lock was never held, so that there is nothing to count tries for")
		}
		return figures(s, map[string]float64{
			TriesPerHold: done(setCommand) / holds, HoldsPerS: holds / took.Seconds(),
			CPUMsPerHold: 1000 * (done("used_cpu_user") + done("used_cpu_sys")) / holds,
		})
	}
}

// redisWork is what Redis has done: its commands, as cmdstat_set:calls, and its processor time
// in seconds.
func redisWork(ctx context.Context, client *redis.Client) (map[string]float64, error) {
	said, err := client.Info(ctx, "commandstats").Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis what it has done: %w", err)
	}
	times, err := client.Info(ctx, "cpu").Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis what it has done: %w", err)
	}
	work := make(map[string]float64)
	for line := range strings.Lines(said + times) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if !strings.HasPrefix(line, "cmdstat_") {
			name, value, _ = strings.Cut(strings.TrimSpace(line), ":")
		}
		first, _, _ := strings.Cut(value, ",")
		var number float64
		if _, err := fmt.Sscan(first, &number); err == nil { // a heading has none
			work[name] = number
		}
	}
	return work, nil
}
