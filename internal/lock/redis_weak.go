package lock

import "context"

// poll is the waiting of the locks that are here to show how locks fail: try,
// sleep, try again.
func (r redisLock) poll(ctx context.Context, name string, try func(context.Context) (won bool, err error), giveUp func(context.Context) error) (Lease, error) {
	waiter := r.polls.begin(name)
	defer waiter.end()
	for {
		asking, answered := Uncut(ctx)
		won, err := try(asking)
		answered()
		switch {
		case err != nil:
			return nil, unreachable(redisName, err)
		case won:
			return granted(ctx, newHeld(0, giveUp))
		}
		if !waiter.pause(ctx) {
			return nil, notAcquired(ctx, redisName, nil)
		}
	}
}

// deleteBlindly gives a name up without a look at whose it is.
func (r redisLock) deleteBlindly(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := r.client.Del(ctx, r.key(name)).Err(); err != nil {
			return notReleased(redisName, err)
		}
		return nil
	}
}
