package redis

import (
	"github.com/stockd/stockd/internal/backend"
	"github.com/stockd/stockd/internal/lock"
)

// Fair queues waiting holders in Redis, in the order of arrival.
func Fair() lock.Entry {
	return lock.Entry{
		Name:       "redis-fair",
		Family:     lock.FamilyRedis,
		Summary:    "the same, first come first served: a queue in Redis, from which dead waiters are dropped",
		Needs:      []backend.Name{backend.Redis},
		Guarantees: lock.Complete(true),
		Watchdog:   true,
		New: func(d lock.Deps) lock.Locker {
			l := newHashLock("redis-fair", d)
			l.queues = true
			l.acquire = script("token", "reentrant", "queue", "fair_acquire")
			l.release = script("token", "reentrant", "queue", "fair_release")
			l.leave = script("token", "reentrant", "queue", "fair_leave")
			return l
		},
	}
}
