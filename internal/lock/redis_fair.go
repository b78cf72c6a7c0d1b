package lock

func redisFair() Entry {
	return Entry{
		Name:    "redis-fair",
		Family:  FamilyRedis,
		Summary: "the same, first come first served: a queue in Redis, from which those drop out who died waiting",
		Needs:   []Backend{Redis},
		Claims: Claims{
			Exclusive: true, SurvivesCrash: true, Renews: true, Reentrant: true, Fair: true,
			Fences: true, ReleasesOnlyItsOwn: true, SignalsLoss: true,
		},
		New: func(d Deps) Locker {
			l := newHashLock("redis-fair", d)
			l.queues = true
			l.acquire = script("token", "reentrant", "queue", "fair_acquire")
			l.release = script("token", "reentrant", "queue", "fair_release")
			l.leave = script("token", "reentrant", "queue", "fair_leave")
			return l
		},
	}
}
