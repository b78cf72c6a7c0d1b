package catalogue

import (
	"time"

	"github.com/stockd/stockd/internal/lab/scenario"
)

// ttl is how long the locks of these stages last when their holder is silent.
const ttl = time.Second

// slack is what a busy machine may take for what should be done at once.
const slack = time.Second

// onRedis is three replicas whose locks are on one Redis and last for ttl.
func onRedis(env ...string) scenario.Stage {
	return scenario.Stage{
		Needs: []scenario.Need{scenario.Redis}, Replicas: 3, Lab: true,
		Env: append([]string{"STOCKD_LOCK_TTL=" + ttl.String(), "STOCKD_LOCK_RETRY=10ms", "STOCKD_REDIS_TIMEOUT=900ms"}, env...),
	}
}

// remedy makes a part one that shows what helps.
func remedy(p scenario.Part) scenario.Part {
	p.Remedy = true
	return p
}

// onDatabase is replicas that have nothing but a database with row locks.
func onDatabase(replicas int, env ...string) scenario.Stage {
	return scenario.Stage{
		Needs: []scenario.Need{scenario.MySQL}, Replicas: replicas, Lab: true,
		Env: append([]string{"STOCKD_LOCK_TTL=" + ttl.String(), "STOCKD_LOCK_RETRY=10ms"}, env...),
	}
}
