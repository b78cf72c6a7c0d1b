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
			file: "internal/service/strategy/mutex.go", old: "return newGuarded(d, process.New())", new: "_ = process.New()\n\t\t\treturn newGuarded(d, freshMutex{})",
			experiment: "mutex-per-request", remedies: []string{"one-mutex"},
		},
		{
			name: "the mutex is given back before the commit",
			file: "internal/service/strategy/mutex.go", old: "newGuarded(d, process.New())", new: "mutexTx{newGuarded(d, process.New())}",
			experiment: "mutex-in-transaction", remedies: []string{"outside"},
		},
		{
			name: "the expiry is forgotten",
			file: "internal/lock/redis/setnx_ttl.go", old: `l.key(name), "1", l.ttl)`, new: `l.key(name), "1", 0)`,
			experiment: "holder-crashes", remedies: []string{"redis-setnx-ttl", "set-nx-px"},
		},
		{
			name: "the script sets no expiry",
			file: "internal/lab/sourcelock/redis.go", old: "and redis.call('PEXPIRE', KEYS[1], ARGV[1])", new: "and 1",
			experiment: "holder-crashes", remedies: []string{"script"},
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
			name: "the watchdog sleeps while a clock runs fast",
			file: "internal/lock/watchdog.go", old: "time.Until(asked.Add(ttl/3))", new: "time.Until(asked.Add(ttl*3))",
			experiment: "clock-jumps", remedies: []string{"drift-renewed"},
		},
		{
			name: "what ZooKeeper counts with jumps, too",
			file: "internal/lab/servers/redis.go", old: `		"FAKETIME_DONT_FAKE_MONOTONIC=1",` + "\n", new: "",
			experiment: "clock-jumps", remedies: []string{"zookeeper-jump", "zookeeper-step-back"},
		},
		{
			name: "the limit of the waiting is not looked at",
			file: "internal/service/strategy/guarded.go", old: "context.WithTimeout(ctx, wait)", new: "context.WithCancel(ctx)",
			experiment: "try-lock", remedies: []string{"one-second"},
		},
		{
			name: "the clients' clocks count",
			file: "internal/lock/redis/lua.go", old: `return luaLock{newBase("redis-lua", d), script("token", "acquire"), script("release")}`,
			new:        `return getSet{newBase("redis-lua", d), d.Clock()}`,
			experiment: "getset", remedies: []string{"redis-lua-nil", "redis-lua-clocks"}, // it sends no script
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
			name: "always is once a second",
			file: "internal/lab/servers/redis.go", old: "appendfsync always", new: "appendfsync everysec",
			experiment: "master-restarts", remedies: []string{"always-power-cut"},
		},
		{
			name: "all pauses are as long",
			file: "internal/pause/pause.go", old: "d/2+rand.N(d+1)", new: "d+rand.N(time.Duration(1))",
			experiment: "split-vote", remedies: []string{"redlock"},
		},
		{
			name: "the time that the votes took is not looked at",
			file: "internal/lab/sourcelock/quorum.go", old: "if !l.timed {", new: "if l.timed || !l.timed {",
			experiment: "redlock-quorum", remedies: []string{"in-time"},
		},
		{
			name: "a master that did not answer has nothing to give back",
			file: "internal/lock/redis/redsync.go", old: "c.node.rejected = !won && !c.node.unsure", new: "c.node.rejected = !won",
			experiment: "redlock-quorum", remedies: []string{"lost-reply-redlock"},
		},
		{
			name: "all waiters watch the folder",
			file: "internal/lock/zk/sequential.go", old: `newQueue("zk-sequential", d, lookAhead)`, new: `newQueue("zk-sequential", d, lookAround)`,
			experiment: "herd", remedies: []string{"zk-sequential"},
		},
		{
			name: "all keys watch the first",
			file: "internal/lab/sourcelock/etcd.go", old: "return keys[at-1],", new: "return keys[0],",
			experiment: "herd", remedies: []string{"etcd-pre-key"},
		},
		{
			name: "the pause has no length",
			file: "internal/lab/sourcelock/redis.go", old: "sourcePause = 50 * time.Millisecond", new: "sourcePause = 0 * time.Millisecond",
			experiment: "spinning", remedies: []string{"setnx-pause"},
		},
		{
			name: "no waiter looks whether the watched node is there",
			file: "internal/lock/zk/sequential.go", old: "		err = nil // it went before we watched it, and the watch has ended", new: "		return false, make(chan struct{}), nil",
			experiment: "late-watch", remedies: []string{"zk-sequential"},
		},
		{
			name: "who is woken does not look who is first",
			file: "internal/lock/zk/place.go", old: "		tellWoken(ctx, changed)\n", new: "		tellWoken(ctx, changed)\n		return p.hold(link), nil\n",
			experiment: "end-of-waiting", remedies: []string{"looks-again"},
		},
		{
			name: "the end of the key before is the grant",
			file: "internal/lab/sourcelock/etcd.go", old: "err != nil || l.once {", new: "err != nil || l.kind != \"\" {",
			experiment: "end-of-waiting", remedies: []string{"looks-again-etcd"},
		},
		{
			name: "the fence is not required at the write",
			file: "internal/repo/fence.go", old: "writeStock + ` AND claim = ? AND fence = ? AND fence_by = ?`", new: "writeStock + ` AND ? <> '' AND ? > 0 AND ? <> ''`",
			experiment: "paused-holder", remedies: []string{"redis-lua-fenced", "redlock-fenced", "zk-sequential-fenced", "etcd-fenced"},
		},
		{
			name: "what the dead leave is not deleted",
			file: "internal/lock/sql/reaper.go", old: "DELETE FROM record_lock WHERE lock_name = ? AND", new: "DELETE FROM record_lock WHERE lock_name = ? AND depth = 0 AND",
			experiment: "insert-lock", remedies: []string{"reaper"},
		},
		{
			name: "the owner in the row is not compared",
			file: "internal/lock/sql/insert_lock.go", old: "case seen.owner == r.owner:", new: "case seen.owner == \"\":",
			experiment: "insert-lock", remedies: []string{"owner-and-depth", "one-owner"}, // the second is a failure that needs the comparison
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
		{
			name: "what was got is set again",
			file: "internal/service/strategy/redis_get_set.go", old: "Set(ctx, key, had-took, 0)", new: "Set(ctx, key, had, 0)",
			experiment: "get-compare-set", remedies: []string{"locked", "under-redis-reentrant"},
		},
		{
			name: "who lost the race by GETSET has won it",
			file: "internal/lab/sourcelock/redis.go", old: `(before == "" || before == found)`, new: "(before != found || before == found)",
			experiment: "timestamp-locks", remedies: []string{"getset"},
		},
		{
			name: "nil is no grant",
			file: "internal/lab/sourcelock/redis.go", old: `(before == "" || before == found)`, new: "(before == found)",
			experiment: "timestamp-locks", remedies: []string{"nil-is-a-grant"},
		},
		{
			name: "the tolerance is forgotten",
			file: "internal/lab/sourcelock/redis.go", old: "d.TTL + s.tolerance)\n	value", new: "d.TTL)\n	value",
			experiment: "timestamp-locks", remedies: []string{"tolerance"},
		},
		{
			name: "the time is rounded down to a second",
			file: "internal/lab/sourcelock/redis.go", old: `GETSET where it has come", polled{try: stamp{takeOver: getSet}`,
			new:        `GETSET where it has come", polled{try: stamp{takeOver: getSet, unit: time.Second}`,
			experiment: "timestamp-locks", remedies: []string{"milliseconds"},
		},
		{
			name: "the holder does not look at the clock",
			file: "internal/lab/sourcelock/redis.go", old: "if l.checks && !until", new: "if l.checks && until.IsZero() && !until",
			experiment: "timestamp-locks", remedies: []string{"checked-delete"},
		},
		{
			name: "the script does not compare",
			file: "internal/lab/sourcelock/redis.go", old: "redis.call('GET', KEYS[1]) == ARGV[1] and", new: "redis.call('SET', KEYS[1], ARGV[2], 'GET') == ARGV[1] and",
			experiment: "timestamp-locks", remedies: []string{"compare-and-set"},
		},
		{
			name: "readers do not look for the writer",
			file: "internal/lab/sourcelock/readwrite.go", old: "redis.call('EXISTS', KEYS[1], KEYS[3]) > 0", new: "redis.call('EXISTS', KEYS[3]) > 0",
			experiment: "read-write-lock", remedies: []string{"both-locks", "new-readers-wait"},
		},
		{
			name: "a writer that waits is not announced",
			file: "internal/lab/sourcelock/readwrite.go", old: "  redis.call('SET', KEYS[3], ARGV[1], 'PX', ARGV[2])\n", new: "",
			experiment: "read-write-lock", remedies: []string{"new-readers-wait"},
		},
		{
			name: "readers are not renewed",
			file: "internal/lab/sourcelock/readwrite.go", old: "if not redis.call('ZSCORE', KEYS[2], ARGV[1]) then return 0 end", new: "if true then return 1 end",
			experiment: "read-write-lock", remedies: []string{"lease-is-renewed", "lease-is-lost"},
		},
		{
			name: "the names of a basket are not sorted",
			file: "internal/lock/multi.go", old: "slices.Compact(slices.Sorted(slices.Values(names)))", new: "names",
			experiment: "multi-lock", remedies: []string{"multi-lock", "many-multi-lock"},
		},
		{
			name: "a basket keeps what it has",
			file: "internal/lock/multi.go", old: "			TakeBack(ctx, all.Release)\n", new: "",
			experiment: "multi-lock", remedies: []string{"fails-halfway-multi-lock"},
		},
		{
			name: "what expires is given back twice",
			file: "internal/repo/reservation.go", old: "addUnderLimit, units[id], id, limits[id])", new: "addUnderLimit, 2*units[id], id, limits[id])",
			experiment: "holds", remedies: []string{"database-decides-sql-conditional", "database-decides-redis-stock", "one-decides", "three-replicas", "replica-dies"},
		},
	}
}
