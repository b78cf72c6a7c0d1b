package lock

import "context"

func redisSetNXOwner() Entry {
	return Entry{
		Name:    "redis-setnx-owner",
		Family:  FamilyRedis,
		Summary: "SET NX PX with an owner, GET then DEL: between the two the lock may change hands",
		Needs:   []Backend{Redis},
		Claims:  Claims{Exclusive: true, SurvivesCrash: true},
		New:     func(d Deps) Locker { return setNXOwner{newRedisLock("redis-setnx-owner", d)} },
	}
}

// setNXOwner looks before it deletes, which is one step too many.
type setNXOwner struct{ redisLock }

func (l setNXOwner) Acquire(ctx context.Context, name string) (Lease, error) {
	owner := newOwner()
	try := func(ctx context.Context) (bool, error) {
		return l.client.SetNX(ctx, l.key(name), owner, l.ttl).Result()
	}
	return l.poll(ctx, name, try, l.lookAndDelete(name, owner))
}

func (l setNXOwner) lookAndDelete(name, owner string) func(context.Context) error {
	return func(ctx context.Context) error {
		found, err := l.client.Get(ctx, l.key(name)).Result()
		switch {
		case err != nil && !isNil(err):
			return notReleased(redisName, err)
		case found != owner:
			return ErrLost
		}
		// Here the TTL may pass, and the next line then deletes another's lock.
		return l.deleteBlindly(name)(ctx)
	}
}
