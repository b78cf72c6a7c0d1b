package redis

import (
	"context"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// SetNXOwner compares the owner before DEL, in two commands.
func SetNXOwner() lock.Entry {
	return lock.Entry{
		Name:       "redis-setnx-owner",
		Family:     lock.FamilyRedis,
		Summary:    "SET NX PX with an owner, GET then DEL: between the two the lock may change hands",
		Needs:      []backend.Name{backend.Redis},
		Guarantees: lock.Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New:        func(d lock.Deps) lock.Locker { return setNXOwner{newBase("redis-setnx-owner", d)} },
	}
}

// setNXOwner looks before it deletes, which is one step too many.
type setNXOwner struct{ base }

func (l setNXOwner) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	owner := lock.NewOwner()
	try := func(ctx context.Context) (bool, error) {
		return l.deps.Redis.SetNX(ctx, l.key(name), owner, l.deps.TTL).Result()
	}
	return l.poll(ctx, name, try, l.lookAndDelete(name, owner))
}

func (l setNXOwner) lookAndDelete(name, owner string) func(context.Context) error {
	return func(ctx context.Context) error {
		found, err := l.deps.Redis.Get(ctx, l.key(name)).Result()
		if isNil(err) {
			err = nil
		}
		if found != owner {
			return lock.Released(server, false, err)
		}
		// Here the TTL may pass, and the next line then deletes another's lock.
		return l.deleteBlindly(name)(ctx)
	}
}
