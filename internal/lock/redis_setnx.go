package lock

import "context"

func redisSetNX() Entry {
	return Entry{
		Name:    "redis-setnx",
		Family:  FamilyRedis,
		Summary: "SETNX and DEL, no expiry, sleep and try again; a holder that crashes locks everyone out for ever",
		Needs:   []Backend{Redis},
		Claims:  Claims{Exclusive: true},
		New:     func(d Deps) Locker { return setNX{newRedisLock("redis-setnx", d)} },
	}
}

// setNX is the first lock of every tutorial.
type setNX struct{ redisLock }

func (l setNX) Acquire(ctx context.Context, name string) (Lease, error) {
	try := func(ctx context.Context) (bool, error) {
		return l.client.SetNX(ctx, l.key(name), "1", 0).Result()
	}
	return l.poll(ctx, name, try, l.deleteBlindly(name))
}
