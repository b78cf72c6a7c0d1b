package redis

import (
	"context"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// SetNXTTL is SET NX PX and DEL, also of a later holder.
func SetNXTTL() lock.Entry {
	return lock.Entry{
		Name:       "redis-setnx-ttl",
		Family:     lock.FamilyRedis,
		Summary:    "SET NX PX, and DEL without looking: work that outlasts the TTL deletes the next holder's lock",
		Needs:      []backend.Name{backend.Redis},
		Guarantees: lock.Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New:        func(d lock.Deps) lock.Locker { return setNXTTL{newBase("redis-setnx-ttl", d)} },
	}
}

// setNXTTL frees itself, and others with it.
type setNXTTL struct{ base }

func (l setNXTTL) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	try := func(ctx context.Context) (bool, error) {
		return l.client.SetNX(ctx, l.key(name), "1", l.ttl).Result()
	}
	return l.poll(ctx, name, try, l.deleteBlindly(name))
}
