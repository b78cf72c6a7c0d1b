package experiments

// Code is the files of the tree in which the code of an experiment's failure is, and that of its remedy.
func Code(experiment string) (failure, remedy []string) {
	const (
		selling = "internal/service/strategy/"
		locks   = "internal/lock/"
		rows    = "internal/repo/"
		sources = "internal/lab/sourcelock/"
		steps   = "internal/lab/experiments/"
		innodb  = "internal/lab/innodb/"
	)
	found := map[string]struct{ failure, remedy []string }{
		"oversell":             {[]string{selling + "naive.go", selling + "read_check_write.go", rows + "tx.go"}, []string{selling + "sql_conditional.go", rows + "tx.go", rows + "mysql.go"}},
		"process-mutex":        {[]string{selling + "naive.go", selling + "read_check_write.go", rows + "tx.go"}, []string{selling + "mutex.go", selling + "guarded.go"}},
		"mutex-per-request":    {[]string{selling + "mutex_per_request.go"}, []string{selling + "mutex.go"}},
		"mutex-in-transaction": {[]string{selling + "mutex_in_tx.go"}, []string{selling + "guarded.go"}},
		"three-replicas":       {[]string{selling + "mutex.go"}, []string{locks + "sql/insert_lock.go"}},
		"holder-crashes":       {[]string{locks + "redis/setnx.go", locks + "redis/weak.go"}, []string{locks + "redis/setnx_ttl.go", locks + "redis/weak.go"}},
		"work-outlasts-ttl":    {[]string{locks + "redis/setnx_ttl.go", locks + "redis/weak.go"}, []string{locks + "redis/lua/acquire.lua", locks + "redis/lua/release.lua"}},
		"owner-check":          {[]string{locks + "redis/setnx_owner.go"}, []string{locks + "redis/lua/acquire.lua", locks + "redis/lua/release.lua"}},
		"reentrancy":           {[]string{locks + "redis/setnx.go", locks + "redis/weak.go"}, []string{locks + "redis/lua/reentrant_acquire.lua"}},
		"watchdog":             {[]string{locks + "redis/setnx_owner.go"}, []string{locks + "redis/lua/reentrant_acquire.lua", locks + "redis/lua/reentrant_renew.lua", locks + "redis/lua/reentrant_release.lua"}},
		"try-lock":             {[]string{selling + "guarded.go"}, nil},
		"getset":               {[]string{locks + "redis/getset.go"}, []string{locks + "redis/lua/acquire.lua", locks + "redis/lua/release.lua"}},
		"failover":             {[]string{locks + "redis/lua/acquire.lua", locks + "redis/lua/release.lua"}, []string{selling + "guarded.go", rows + "fence.go"}},
		"master-restarts":      {[]string{locks + "redis/redlock.go"}, nil},
		"clock-jumps":          {[]string{locks + "redis/redlock.go"}, []string{selling + "guarded.go", rows + "fence.go"}},
		"split-vote":           {[]string{sources + "sourcelock.go"}, []string{locks + "redis/redlock.go"}},
		"herd":                 {[]string{locks + "zk/herd.go"}, []string{locks + "zk/sequential.go"}},
		"late-watch":           {[]string{sources + "sourcelock.go"}, []string{locks + "zk/sequential.go"}},
		"paused-holder":        {[]string{locks + "redis/lua/acquire.lua", locks + "redis/lua/release.lua"}, []string{selling + "guarded.go", rows + "fence.go"}},
		"insert-lock":          {[]string{locks + "sql/insert_lock.go"}, []string{locks + "sql/reaper.go"}},
		"for-update":           {[]string{selling + "sql_for_update.go"}, []string{locks + "sql/row_lock.go"}},
		"innodb-locks":         {[]string{innodb + "innodb.go", innodb + "fixtures/plain.sql"}, nil},
		"optimistic":           {[]string{selling + "sql_optimistic.go"}, []string{selling + "sql_conditional.go", rows + "tx.go", rows + "mysql.go"}},
		"fairness":             {[]string{locks + "redis/redsync.go"}, []string{locks + "redis/lua/fair_acquire.lua", locks + "redis/lua/fair_release.lua"}},
		"lost-reply":           {[]string{selling + "conditional.go"}, nil},
		"no-lock":              {[]string{locks + "redis/lua/reentrant_acquire.lua", locks + "redis/lua/reentrant_renew.lua", locks + "redis/lua/reentrant_release.lua"}, []string{selling + "sql_conditional.go", rows + "tx.go", rows + "mysql.go"}},
		"two-strategies":       {[]string{selling + "read_check_write.go"}, []string{selling + "read_check_write.go", rows + "tx.go"}},
		"get-compare-set":      {[]string{selling + "redis_get_set.go"}, []string{locks + "redis/lua/reentrant_acquire.lua", locks + "redis/lua/reentrant_renew.lua", locks + "redis/lua/reentrant_release.lua"}},
		"timestamp-locks":      {[]string{sources + "redis.go"}, []string{sources + "redis.go"}},
		"end-of-waiting":       {[]string{sources + "sourcelock.go"}, []string{locks + "zk/sequential.go"}},
		"redlock-quorum":       {[]string{sources + "quorum.go"}, []string{locks + "redis/redlock.go"}},
		"spinning":             {[]string{sources + "redis.go"}, nil},
		"read-write-lock":      {[]string{sources + "readwrite.go"}, []string{sources + "readwrite.go"}},
		"multi-lock":           {[]string{steps + "baskets.go"}, []string{locks + "multi.go"}},
		"several-nodes":        {[]string{locks + "sql/row_lock.go"}, []string{selling + "sql_conditional.go", rows + "tx.go", rows + "mysql.go"}},
		"ensemble-size":        {[]string{locks + "zk/sequential.go"}, []string{locks + "etcd/session.go"}},
		"holds":                {[]string{steps + "holds.go"}, []string{rows + "confirm.go"}},
	}[experiment]
	return found.failure, found.remedy
}
