package redis

import (
	"context"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// SetNX is SETNX and DEL, without an expiry.
func SetNX() lock.Entry {
	return lock.Entry{
		Name:       "redis-setnx",
		Family:     lock.FamilyRedis,
		Summary:    "SETNX and DEL, no expiry, sleep and try again; a holder that crashes locks everyone out for ever",
		Needs:      []backend.Name{backend.Redis},
		Guarantees: lock.Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true},
		New: func(d lock.Deps) lock.Locker {
			d.TTL = 0 // it never expires
			return setNX{newBase("redis-setnx", d)}
		},
	}
}

// setNX is the first lock of every tutorial, and with a TTL the second.
type setNX struct{ base }

func (l setNX) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	try := func(ctx context.Context) (bool, error) {
		return l.deps.Redis.SetNX(ctx, l.key(name), "1", l.deps.TTL).Result()
	}
	return l.poll(ctx, name, try, l.deleteBlindly(name))
}
