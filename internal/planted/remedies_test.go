package planted

// breach is a change of one file that takes from a remedy what helps.
type breach struct {
	name string
	// old occurs once in the file, and new takes its place.
	file, old, new string
	// experiment has the remedies among its parts: these must not hold any more,
	// and all the others must.
	experiment string
	remedies   []string
}

// breaches lists them all, by the number of the experiment.
func breaches() []breach {
	return []breach{
		{
			name: "the UPDATE does not compare",
			file: "internal/repo/mysql.go", old: "LAST_INSERT_ID(stock - ?), ` + bySale + `\n			WHERE goods_id = ? AND stock >= ? AND",
			new:        "stock - ?, ` + bySale + ` WHERE goods_id = ? AND ? > 0 AND",
			experiment: "oversell", remedies: []string{"conditional"},
		},
		{
			name: "the mutex lets a thousand in",
			file: "internal/lock/process/process.go", old: "make(chan struct{}, 1)", new: "make(chan struct{}, 1000)",
			experiment: "process-mutex", remedies: []string{"mutex"},
		},
		{
			name: "the mutex is made for each request",
			file: "internal/service/strategy/mutex.go", old: "newGuarded(d, process.New())", new: "newGuarded(d, lock.Locker(freshMutex{}))",
			experiment: "mutex-per-request", remedies: []string{"one-mutex"},
		},
		{
			name: "the mutex is given back before the commit",
			file: "internal/service/strategy/mutex.go", old: "newGuarded(d, process.New())", new: "inTx{newGuarded(d, process.New())}",
			experiment: "mutex-in-transaction", remedies: []string{"outside"},
		},
		{
			name: "the expiry is forgotten",
			file: "internal/lock/redis/setnx_ttl.go", old: `l.key(name), "1", l.ttl)`, new: `l.key(name), "1", 0)`,
			experiment: "holder-crashes", remedies: []string{"redis-setnx-ttl"},
		},
		{
			name: "the renewal renews nothing",
			file: "internal/lock/redis/lua/reentrant_renew.lua", old: "return redis.call('PEXPIRE', KEYS[1], ARGV[2])", new: "return 1",
			experiment: "work-outlasts-ttl", remedies: []string{"redis-reentrant"},
		},
		{
			name: "the script deletes without a look at the owner",
			file: "internal/lock/redis/lua/release.lua", old: "~= ARGV[1]", new: "== 'nobody'",
			experiment: "owner-check", remedies: []string{"redis-lua"},
		},
		{
			name: "the owner is not known again",
			file: "internal/lock/redis/lua/reentrant_acquire.lua", old: "if owner == ARGV[1] then", new: "if owner == 'nobody' then",
			experiment: "reentrancy", remedies: []string{"redis-reentrant"},
		},
		{
			name: "the watchdog sleeps",
			file: "internal/lock/watchdog.go", old: "time.Until(asked.Add(ttl/3))", new: "time.Until(asked.Add(ttl*3))",
			experiment: "watchdog", remedies: []string{"redis-reentrant"},
		},
		{
			name: "the limit of the waiting is not looked at",
			file: "internal/service/strategy/guarded.go", old: "context.WithTimeout(ctx, g.wait)", new: "context.WithCancel(ctx)",
			experiment: "try-lock", remedies: []string{"one-second"},
		},
		{
			name: "the clients' clocks count",
			file: "internal/lock/redis/lua.go", old: `return luaLock{newBase("redis-lua", d), script("token", "acquire"), script("release")}`,
			new:        `return getSet{newRedisLock("redis-lua", d), d.now()}`,
			experiment: "getset", remedies: []string{"redis-lua-clocks"},
		},
		{
			name: "of the masters one is asked",
			file: "internal/lock/redis/redlock.go", old: "len(l.deps.Redlock))\n	for i, client := range l.deps.Redlock {", new: "1)\n	for i, client := range l.deps.Redlock[:1] {",
			experiment: "failover", remedies: []string{"five-masters"},
		},
		{
			name: "a master that does not answer has agreed",
			file: "internal/lock/redis/redsync.go", old: "return client.SetNX(ctx, key, owner, ttl).Result()", new: "won, err := client.SetNX(ctx, key, owner, ttl).Result()\n			return won || err != nil, nil",
			experiment: "master-restarts", remedies: []string{"delayed"},
		},
		{
			name: "all pauses are as long",
			file: "internal/pause/pause.go", old: "d/2+rand.N(d+1)", new: "d+rand.N(time.Duration(1))",
			experiment: "split-vote", remedies: []string{"redlock"},
		},
		{
			name: "all waiters watch the folder",
			file: "internal/lock/zk/sequential.go", old: `newQueue("zk-sequential", d, lookAhead)`, new: `newQueue("zk-sequential", d, lookAround)`,
			experiment: "herd", remedies: []string{"zk-sequential"},
		},
		{
			name: "no waiter looks whether the watched node is there",
			file: "internal/lock/zk/sequential.go", old: "		err = nil // it went before we watched it, and the watch has ended", new: "		return false, make(chan struct{}), nil",
			experiment: "late-watch", remedies: []string{"zk-sequential"},
		},
		{
			name: "the fence is not required at the write",
			file: "internal/repo/fence.go", old: "writeStock + ` AND claim = ? AND fence = ? AND fence_by = ?`", new: "writeStock + ` AND ? <> '' AND ? > 0 AND ? <> ''`",
			experiment: "paused-holder", remedies: []string{"redis-lua-fenced", "zk-sequential-fenced", "etcd-fenced"},
		},
		{
			name: "what the dead leave is not deleted",
			file: "internal/lock/sql/reaper.go", old: "DELETE FROM record_lock WHERE lock_name = ? AND", new: "DELETE FROM record_lock WHERE lock_name = ? AND depth = 0 AND",
			experiment: "insert-lock", remedies: []string{"reaper"},
		},
		{
			name: "the owner in the row is not compared",
			file: "internal/lock/sql/insert_lock.go", old: "case seen.owner == r.owner:", new: "case seen.owner == \"\":",
			experiment: "insert-lock", remedies: []string{"owner-and-depth"},
		},
		{
			name: "losers do not pause",
			file: "internal/service/strategy/sql_optimistic.go", old: "return rand.N(p.window + 1)", new: "return rand.N(time.Duration(1))",
			experiment: "optimistic", remedies: []string{"pause"},
		},
		{
			name: "who came last is served first",
			file: "internal/lock/redis/lua/queue.lua", old: "redis.call('ZRANGE', queue, 0, 0)", new: "redis.call('ZRANGE', queue, -1, -1)",
			experiment: "fairness", remedies: []string{"redis-fair"},
		},
		{
			name: "the key is not looked at",
			file: "internal/service/seller.go", old: "	if key != \"\" {\n		return key, nil", new: "	if len(key) > 1000 {\n		return key, nil",
			experiment: "lost-reply", remedies: []string{"with-key"},
		},
		{
			name: "a late request is reported as a failure of the database",
			file: "internal/repo/mysql.go", old: "WHERE goods_id = ? AND stock >= ? AND", new: "WHERE goods_id = ? AND ? > 0 AND",
			experiment: "no-lock", remedies: []string{"no-lock"},
		},
	}
}
