package redis_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/lab/labtest"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/locktest"
)

// afterNext is a hook of a client: it does something once, after the next script that is run, or transaction
// or SETNX, and before its answer is seen.
type afterNext struct{ do atomic.Pointer[func()] }

func (a *afterNext) answered(err error, asked string) {
	if err != nil || asked != "eval" && asked != "evalsha" && asked != "set" && asked != "setnx" {
		return
	}
	if do := a.do.Swap(nil); do != nil {
		(*do)()
	}
}

func (*afterNext) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *afterNext) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		a.answered(err, cmd.Name())
		return err
	}
}

func (a *afterNext) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		err := next(ctx, commands)
		a.answered(err, commands[min(1, len(commands)-1)].Name()) // the first one begins a transaction
		return err
	}
}

// A name that is given back after a waiter has looked, and before it can be woken, is not missed: the
// waiter looks once more before it sleeps.
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
		held := locktest.Hold(t, holder, "missed")
		once := func() { release(held) }
		next.do.Store(&once)
		var noted locktest.Notes
		ctx, cancel := context.WithTimeout(lock.WithNotes(t.Context(), noted.Take), 30*time.Second)
		defer cancel()
		lease, err := waiter.Acquire(ctx, "missed")
		if err != nil {
			t.Fatal(err)
		}
		if n := noted.Count(lock.Woken, lock.ByTimeout) + noted.Count(lock.Woken, lock.ByPubSub); n > 0 {
			t.Errorf("%s slept %d times beside a free name", kind, n)
		}
		release(lease)
	}
}

// The request ends while the answer that grants the name is on its way: it is granted nothing, and the
// next one does not wait for its lease.
func TestAGrantAfterTheEndOfTheRequestIsGivenBack(t *testing.T) {
	server := lab.Redis(t)
	for _, e := range onOne() {
		t.Run(e.Name, func(t *testing.T) {
			client, next := clientAt(server, server.Address), new(afterNext)
			deps, name := redisDeps(client), "too-late-"+e.Name
			deps.TTL = time.Hour
			l := madeOf(t, e.Name, deps)
			labtest.HoldAndRelease(t, l, name) // what is made once for a name is there
			client.AddHook(next)
			ctx, cancel := context.WithCancel(t.Context())
			leave := func() { cancel() }
			next.do.Store(&leave)
			if lease, err := l.Acquire(ctx, name); lease != nil || !errors.Is(err, lock.ErrNotAcquired) || !errors.Is(err, context.Canceled) {
				t.Errorf("a request that has ended is answered with %v, %v", lease, err)
			}
			if ctx.Err() == nil {
				t.Fatal("the request was not granted the name, and did not end")
			}
			if err := locktest.Hold(t, l, name).Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
