package lock

import "context"

func redisSetNXTTL() Entry {
	return Entry{
		Name:    "redis-setnx-ttl",
		Family:  FamilyRedis,
		Summary: "SET NX PX, and DEL without looking: work that outlasts the TTL deletes the next holder's lock",
		Needs:   []Backend{Redis},
		Claims:  Claims{Exclusive: true, SurvivesCrash: true},
		New:     func(d Deps) Locker { return setNXTTL{newRedisLock("redis-setnx-ttl", d)} },
	}
}

// setNXTTL frees itself, and others with it.
type setNXTTL struct{ redisLock }

func (l setNXTTL) Acquire(ctx context.Context, name string) (Lease, error) {
	try := func(ctx context.Context) (bool, error) {
		return l.client.SetNX(ctx, l.key(name), "1", l.ttl).Result()
	}
	return l.poll(ctx, name, try, l.deleteBlindly(name))
}
