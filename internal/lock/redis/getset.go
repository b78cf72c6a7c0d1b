package redis

import (
	"context"
	"strconv"
	"time"

	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// GetSet compares expiry times that clients write with SETNX and GETSET.
func GetSet() lock.Entry {
	return lock.Entry{
		Name:       "redis-getset",
		Family:     lock.FamilyRedis,
		Summary:    "SETNX of an expiry time, GETSET to take over: needs equal clocks, and a GET or GETSET that answers nil locks everyone out until the time has passed",
		Needs:      []backend.Name{backend.Redis},
		Guarantees: lock.Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New:        func(d lock.Deps) lock.Locker { return getSet{newBase("redis-getset", d), d.Clock()} },
	}
}

// getSet is the lock of the days when SETNX had no expiry: the value is the
// time, by its holder's clock, at which the lock is free.
type getSet struct {
	base
	now func() time.Time
}

func (l getSet) Acquire(ctx context.Context, name string) (lock.Lease, error) {
	try := func(ctx context.Context) (bool, error) { return l.try(ctx, l.key(name)) }
	return l.poll(ctx, name, try, l.deleteBlindly(name))
}

func (l getSet) try(ctx context.Context, key string) (won bool, err error) {
	expiry := strconv.FormatInt(l.now().Add(l.deps.TTL).UnixMilli(), 10)
	won, err = l.deps.Redis.SetNX(ctx, key, expiry, 0).Result()
	if won || err != nil {
		return won, err
	}
	found, err := l.deps.Redis.Get(ctx, key).Result()
	if err != nil && !isNil(err) {
		return false, err
	}
	if isHeld(found, l.now()) {
		return false, nil
	}
	// It has expired, or the holder has just deleted it. The sources do not tell
	// the two apart: in the second case GETSET answers nil, the comparison fails,
	// and our own time now stands there although the key is free.
	before, err := l.deps.Redis.GetSet(ctx, key, expiry).Result()
	if err != nil && !isNil(err) {
		return false, err
	}
	return err == nil && before == found, nil
}

// isHeld reads what stands there, by our clock: what is no time holds nothing, or it
// would do so for ever.
func isHeld(found string, now time.Time) bool {
	until, err := strconv.ParseInt(found, 10, 64)
	return err == nil && until > now.UnixMilli()
}
