package redis

import (
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// SetNXTTL is SetNX with an expiry: it frees itself, and others with it.
func SetNXTTL() lock.Entry {
	return lock.Entry{
		Name:       "redis-setnx-ttl",
		Family:     lock.FamilyRedis,
		Summary:    "SET NX PX, and DEL without looking: work that outlasts the TTL deletes the next holder's lock",
		Needs:      []backend.Name{backend.Redis},
		Guarantees: lock.Guarantees{ExclusiveInProcess: true, ExclusiveAcrossReplicas: true, SurvivesCrash: true},
		New:        func(d lock.Deps) lock.Locker { return setNX{newBase("redis-setnx-ttl", d)} },
	}
}
