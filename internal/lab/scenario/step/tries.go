package step

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/scenario"
)

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
