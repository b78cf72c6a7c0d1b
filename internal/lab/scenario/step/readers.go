package step

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/pause"
)

// The figures of CompareReads: reads a second under both locks, medians of the rounds, and how many
// times as many one has in a round: the median, the least and the most.
const (
	ReadsShared    = "reads_per_s_shared"
	ReadsExclusive = "reads_per_s_exclusive"
	ReadsRatio     = "reads_ratio"
	readRounds     = 5
	readRound      = 400 * time.Millisecond
	readWork       = 5 * time.Millisecond
)

// CompareReads has readers read under two locks, round after round, one lock after the other in
// each.
func CompareReads(readers int, shared, exclusive string) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		crowds := make(map[string][]lock.Locker)
		for i := range readers {
			c, err := s.Contend(fmt.Sprintf("reader-%d", i+1), scenario.Redis)
			if err != nil {
				return err
			}
			for _, kind := range []string{shared, exclusive} {
				locker, err := c.Locker(kind)
				if err = errors.Join(err, c.Warm(ctx, kind)); err != nil {
					return err
				}
				crowds[kind] = append(crowds[kind], locker)
			}
		}
		var together, apart, ratios []float64
		for range readRounds {
			a, err := readsPerS(ctx, s, crowds[shared])
			if err != nil {
				return err
			}
			b, err := readsPerS(ctx, s, crowds[exclusive])
			if err != nil {
				return err
			}
			together, apart, ratios = append(together, a), append(apart, b), append(ratios, a/b)
		}
		return figures(s, map[string]float64{
			ReadsShared: median(together), ReadsExclusive: median(apart), ReadsRatio: median(ratios),
			ReadsRatio + "_min": slices.Min(ratios), ReadsRatio + "_max": slices.Max(ratios),
		})
	}
}

func median(all []float64) float64 { return slices.Sorted(slices.Values(all))[len(all)/2] }

// readsPerS has each of a crowd read again and again for a round.
func readsPerS(ctx context.Context, s *scenario.Environment, crowd []lock.Locker) (float64, error) {
	var reads atomic.Int64
	errs := make([]error, len(crowd))
	began := time.Now()
	var all sync.WaitGroup
	for i, locker := range crowd {
		all.Go(func() {
			for time.Since(began) < readRound && errs[i] == nil {
				errs[i] = under(ctx, locker, name(s), func(ctx context.Context) error {
					reads.Add(1)
					return pause.For(ctx, readWork)
				})
			}
		})
	}
	all.Wait()
	return float64(reads.Load()) / time.Since(began).Seconds(), errors.Join(errs...)
}

const (
	// ReadsMeanwhile is a figure of TakeTurns: how often the name was read while the writer waited.
	ReadsMeanwhile = "reads_meanwhile"
	// readTurn is for how long a reader of TakeTurns reads, and lastTurn for how long it waits
	// for the next one.
	readTurn = 20 * time.Millisecond
	lastTurn = 500 * time.Millisecond
)

// TakeTurns has two readers hold a name in turns, each until the other has it, too, while a
// writer asks for it for no longer than within. A reader that is kept out does not keep the other
// one in: that goes after lastTurn.
func TakeTurns(read, write string, within time.Duration) scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		var readers [2]lock.Locker
		for i, who := range []string{"reader-1", "reader-2"} {
			var err error
			if _, readers[i], err = contend(s, who, read, []scenario.Need{scenario.Redis}); err != nil {
				return err
			}
		}
		_, writer, err := contend(s, "writer", write, []scenario.Need{scenario.Redis})
		if err != nil {
			return err
		}
		lease, err := takeWithin(ctx, readers[0], name(s), patience)
		if err != nil {
			return err
		}
		written := make(chan error, 1)
		go func() { written <- hold(ctx, writer, name(s), within, readTurn) }()
		for turn := 1; ; turn++ {
			select {
			case err := <-written:
				return errors.Join(err, lease.Release(context.WithoutCancel(ctx)), s.Figure(ReadsMeanwhile, float64(turn)))
			case <-time.After(readTurn):
			}
			if lease, err = handOver(ctx, s, lease, readers[turn%2]); err != nil {
				return err
			}
		}
	}
}

// handOver has the next reader come, and the one before leave.
func handOver(ctx context.Context, s *scenario.Environment, before lock.Lease, next lock.Locker) (lease lock.Lease, err error) {
	came := make(chan struct{})
	go func() {
		defer close(came)
		lease, err = takeWithin(ctx, next, name(s), patience)
	}()
	select {
	case <-came:
	case <-time.After(lastTurn):
	}
	left := before.Release(context.WithoutCancel(ctx))
	<-came
	return lease, errors.Join(err, left)
}

// Forgotten begins the mark of Forget.
const Forgotten = "forgotten"

// Forget deletes all keys of the name in Redis, as a failover to a replica that has not got
// them yet does.
func Forget() scenario.Step {
	return func(ctx context.Context, s *scenario.Environment) error {
		client, err := s.Backends.Redis.Client()
		if err != nil {
			return err
		}
		defer client.Close() //nolint:errcheck // nothing is lost with it
		keys, err := client.Keys(ctx, "*{"+url.PathEscape(name(s))+"}:*").Result()
		if err == nil && len(keys) == 0 {
			err = errors.New("there is none")
		}
		if err != nil {
			return fmt.Errorf("delete the keys of %s: %w", name(s), err)
		}
		if err := client.Del(ctx, keys...).Err(); err != nil {
			return err
		}
		return s.Mark("redis", Forgotten+": the lock")
	}
}
