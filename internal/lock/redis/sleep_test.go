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

// A name that is given back after a waiter has looked, and before it can be woken, is not missed: the
// waiter looks once more before it sleeps.
//
//contract:lock.Locker Waiting is by notification
func TestAReleaseBeforeTheSleepIsNotMissed(t *testing.T) {
	server := lab.Redis(t)
	for _, kind := range []string{"redis-reentrant", "redis-fair"} {
		holder, client, next := onRedis(t, kind, clientAt(server, server.Address)), clientAt(server, server.Address), new(afterNext)
		client.AddHook(next)
		waiter := onRedis(t, kind, client)
		handoff(t, holder, waiter, "missed") // from now on it listens, and is not woken because that began
		release := func(lease lock.Lease) {
			if err := lease.Release(t.Context()); err != nil {
				t.Error(err)
			}
		}
		held := holds(t, holder, "missed")
		once := func() { release(held) }
		next.do.Store(&once)
		var noted notes
		ctx, cancel := context.WithTimeout(lock.WithNotes(t.Context(), noted.take), 30*time.Second)
		defer cancel()
		lease, err := waiter.Acquire(ctx, "missed")
		if err != nil {
			t.Fatal(err)
		}
		if n := noted.of(lock.Woken, lock.ByTimeout) + noted.of(lock.Woken, lock.ByPubSub); n > 0 {
			t.Errorf("%s slept %d times beside a free name", kind, n)
		}
		release(lease)
	}
}
