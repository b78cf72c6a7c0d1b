package redis

import (
	"context"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// poll is the waiting of the locks that are here to show how locks fail: try,
// sleep, try again.
func (r base) poll(ctx context.Context, name string, try func(context.Context) (won bool, err error), giveUp func(context.Context) error) (lock.Lease, error) {
	waiter := r.polls.Begin(name)
	defer waiter.End()
	for {
		asked := time.Now()
		asking, answered := backend.Uncut(ctx)
		won, err := try(asking)
		answered()
		switch {
		case err != nil:
			return nil, lock.Unreachable(server, err)
		case won:
			lock.Tell(ctx, lock.Note{At: asked, What: lock.Placed, Key: r.key(name)})
			lease := lock.NewHeld(0, giveUp)
			lease.ExpiresAfter(asked, r.deps.TTL)
			return lock.Granted(ctx, lease)
		}
		if !waiter.Pause(ctx) {
			return nil, lock.NotAcquired(ctx, server, nil)
		}
	}
}

// deleteBlindly gives a name up without a look at whose it is.
func (r base) deleteBlindly(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return lock.Released(server, true, r.deps.Redis.Del(ctx, r.key(name)).Err())
	}
}
