package redis_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lock"
)

// afterNext is a hook of a client: it does something once, after the next script that is run and before
// its answer is seen.
type afterNext struct{ do atomic.Pointer[func()] }

func (*afterNext) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *afterNext) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if name := cmd.Name(); err == nil && (name == "eval" || name == "evalsha") {
			if do := a.do.Swap(nil); do != nil {
				(*do)()
			}
		}
		return err
	}
}

func (*afterNext) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// A release in the moment between the first try and the sleep wakes nobody: who goes to sleep looks once
// more, and does not wait beside a free name.
//
//contract:lock.Locker Waiting is by notification
func TestAReleaseBeforeTheSleepIsNotMissed(t *testing.T) {
	for _, kind := range []string{"redis-reentrant", "redis-fair"} {
		server := lab.Redis(t)
		holder, client, next := onRedis(t, kind, clientAt(server, server.Address)), clientAt(server, server.Address), new(afterNext)
		client.AddHook(next)
		waiter, slept := onRedis(t, kind, client), new(atomic.Int32)
		ctx := lock.WithNotes(t.Context(), func(n lock.Note) {
			if n.What == lock.Woken {
				slept.Add(1)
			}
		})
		handoff(t, holder, waiter, t.Name()) // from now on it listens, and is not woken because that began
		lease, err := holder.Acquire(t.Context(), t.Name())
		if err != nil {
			t.Fatal(err)
		}
		release := func() { releases(t, lease) }
		next.do.Store(&release)
		start := time.Now()
		lease, err = waiter.Acquire(ctx, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		if slept.Load() > 0 {
			t.Errorf("%s slept beside a free name, and has it after %s", kind, time.Since(start))
		}
		releases(t, lease)
	}
}

func releases(t *testing.T, lease lock.Lease) {
	t.Helper()
	if err := lease.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
