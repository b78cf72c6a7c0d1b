package lock

import (
	"context"

	"github.com/redis/go-redis/v9"
)

func redisLua() Entry {
	return Entry{
		Name:    "redis-lua",
		Family:  FamilyRedis,
		Summary: "taken and compared-and-deleted in Lua; not renewed: it holds while the work fits the TTL",
		Needs:   []Backend{Redis},
		Claims:  Claims{Exclusive: true, SurvivesCrash: true, ReleasesOnlyItsOwn: true, SignalsLoss: true, Fences: true},
		New: func(d Deps) Locker {
			return luaLock{newRedisLock("redis-lua", d), script("token", "acquire"), script("release")}
		},
	}
}

type luaLock struct {
	redisLock
	acquire, release *redis.Script
}

func (l luaLock) Acquire(ctx context.Context, name string) (Lease, error) {
	owner, keys := newOwner(), []string{l.key(name), l.counter(name)}
	giveUp := func(ctx context.Context) error {
		return giveBack(ctx, l.client, l.release, keys[:1], owner)
	}
	waiter := l.polls.begin(name)
	defer waiter.end()
	for {
		grant, err := l.take(ctx, l.acquire, name, keys, owner)
		if err != nil {
			go takeBack(ctx, giveUp) // the caller need not wait for a server that is mute
			return nil, unreachable(redisName, err)
		}
		if grant.won() {
			lease := newHeld(grant.token, giveUp)
			expire(lease, grant.asked, l.ttl)
			return granted(ctx, lease)
		}
		if !waiter.pause(ctx) {
			return nil, notAcquired(ctx, redisName, nil)
		}
	}
}
