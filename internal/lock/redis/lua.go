package redis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// Lua acquires, renews and releases by scripts that compare the token.
func Lua() lock.Entry {
	return lock.Entry{
		Name:       "redis-lua",
		Family:     lock.FamilyRedis,
		Summary:    "taken and compared-and-deleted in Lua; not renewed: it holds while the work fits the TTL",
		Needs:      []backend.Name{backend.Redis},
		Guarantees: lock.Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true, ReleasesOnlyItsOwn: true, SignalsLoss: true, Fences: true},
		New: func(d lock.Deps) lock.Locker {
			return luaLock{newBase("redis-lua", d), script("token", "acquire"), script("release")}
		},
	}
}

type luaLock struct {
	base
	acquire, release *redis.Script
}

func (l luaLock) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	owner, keys := lock.NewOwner(), []string{l.key(name), l.counter(name)}
	giveUp := l.deps.Repeated(func(ctx context.Context) error {
		return giveBack(ctx, l.deps.Redis, l.release, keys[:1], owner)
	})
	waiter := l.polls.Begin(name)
	defer waiter.End()
	for {
		grant, err := l.take(ctx, l.acquire, name, keys, owner)
		if err != nil {
			abandon(ctx, err, giveUp)
			return nil, lock.Unreachable(server, err)
		}
		if grant.won() {
			lock.Tell(ctx, lock.Note{At: grant.asked, What: lock.Placed, Key: keys[0]})
			lease := lock.NewHeld(grant.token, giveUp)
			lock.Expire(lease, grant.asked, l.deps.TTL)
			return lock.Granted(ctx, lease)
		}
		if !waiter.Pause(ctx) {
			return nil, lock.NotAcquired(ctx, server, nil)
		}
	}
}
