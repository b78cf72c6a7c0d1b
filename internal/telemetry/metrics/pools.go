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

// poolDescs are the series of a pool.
type poolDescs struct{ connections, most, waits, waited, timeouts *prometheus.Desc }

func newPoolDescs() poolDescs {
	return poolDescs{
		connections: prometheus.NewDesc("stockd_pool_connections", "Connections of a pool, in use or idle.", []string{"pool", "state"}, nil),
		most:        prometheus.NewDesc("stockd_pool_connections_max", "Most connections that a pool may have.", []string{"pool"}, nil),
		waits:       prometheus.NewDesc("stockd_pool_waits_total", "Waits for a connection of a pool.", []string{"pool"}, nil),
		waited:      prometheus.NewDesc("stockd_pool_wait_seconds_total", "Time spent waiting for a connection of a pool.", []string{"pool"}, nil),
		timeouts:    prometheus.NewDesc("stockd_pool_timeouts_total", "Waits for a connection of a pool that timed out; only pools of Redis count them.", []string{"pool"}, nil),
	}
}

func (d poolDescs) list() []*prometheus.Desc {
	return []*prometheus.Desc{d.connections, d.most, d.waits, d.waited, d.timeouts}
}

func (d poolDescs) collect(p Pool, ch chan<- prometheus.Metric) {
	s := p.Stats()
	ch <- prometheus.MustNewConstMetric(d.connections, prometheus.GaugeValue, float64(s.InUse), p.Name, "in_use")
	ch <- prometheus.MustNewConstMetric(d.connections, prometheus.GaugeValue, float64(s.Idle), p.Name, "idle")
	ch <- prometheus.MustNewConstMetric(d.most, prometheus.GaugeValue, float64(s.Max), p.Name)
	ch <- prometheus.MustNewConstMetric(d.waits, prometheus.CounterValue, float64(s.Waits), p.Name)
	ch <- prometheus.MustNewConstMetric(d.waited, prometheus.CounterValue, s.Waited.Seconds(), p.Name)
	ch <- prometheus.MustNewConstMetric(d.timeouts, prometheus.CounterValue, float64(s.Timeouts), p.Name)
}
