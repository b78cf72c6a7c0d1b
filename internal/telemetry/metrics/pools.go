package metrics

import (
	"database/sql"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
)

// Pool is a pool of connections.
type Pool struct {
	// Name is the label of its series.
	Name  string
	Stats func() PoolStats
}

// PoolStats are the statistics of any kind of pool.
type PoolStats struct {
	Max, InUse, Idle int
	// Waits and Waited are for a connection; Timeouts got none.
	Waits    int64
	Waited   time.Duration
	Timeouts int64
}

// SQLPool is a pool of database/sql.
func SQLPool(name string, stats func() sql.DBStats) Pool {
	return Pool{name, func() PoolStats {
		s := stats()
		return PoolStats{Max: s.MaxOpenConnections, InUse: s.InUse, Idle: s.Idle, Waits: s.WaitCount, Waited: s.WaitDuration}
	}}
}

// RedisPool sums the pools of equivalent clients. Each has at most the given number of
// connections, in a cluster per node.
func RedisPool(name string, most int, clients ...redis.UniversalClient) Pool {
	return Pool{name, func() (sum PoolStats) {
		for _, client := range clients {
			s := client.PoolStats()
			sum.Max += most
			sum.InUse += int(s.TotalConns) - int(s.IdleConns)
			sum.Idle += int(s.IdleConns)
			sum.Waits += int64(s.WaitCount)
			sum.Waited += time.Duration(s.WaitDurationNs)
			sum.Timeouts += int64(s.Timeouts)
		}
		return sum
	}}
}

func (p Pool) collect(out samples) {
	s, pool := p.Stats(), prometheus.Labels{"pool": p.Name}
	for state, connections := range map[string]int{"in_use": s.InUse, "idle": s.Idle} {
		out.gauge("stockd_pool_connections", "Connections of a pool, in use or idle.", float64(connections), prometheus.Labels{"pool": p.Name, "state": state})
	}
	out.gauge("stockd_pool_connections_max", "Most connections that a pool may have.", float64(s.Max), pool)
	out.counter("stockd_pool_waits_total", "Waits for a connection of a pool.", float64(s.Waits), pool)
	out.counter("stockd_pool_wait_seconds_total", "Time spent waiting for a connection of a pool.", s.Waited.Seconds(), pool)
	out.counter("stockd_pool_timeouts_total", "Waits for a connection of a pool that timed out; only pools of Redis count them.", float64(s.Timeouts), pool)
}
