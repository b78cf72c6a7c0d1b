package metrics_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/stockd/stockd/internal/telemetry/metrics"
)

// pooled is a client with a pool in some state.
type pooled struct {
	redis.UniversalClient

	stats redis.PoolStats
}

func (p pooled) PoolStats() *redis.PoolStats { return &p.stats }

func TestThePoolsOfMastersAreOne(t *testing.T) {
	one := pooled{stats: redis.PoolStats{TotalConns: 5, IdleConns: 2, WaitCount: 7, WaitDurationNs: int64(time.Second), Timeouts: 1}}
	other := pooled{stats: redis.PoolStats{TotalConns: 4, IdleConns: 4, WaitCount: 1, WaitDurationNs: 5, Timeouts: 2}}
	want := metrics.PoolStats{Max: 20, InUse: 3, Idle: 6, Waits: 8, Waited: time.Second + 5, Timeouts: 3}
	if got := metrics.RedisPool("redlock", 10, one, other).Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestThePoolOfADatabase(t *testing.T) {
	stats := sql.DBStats{MaxOpenConnections: 16, InUse: 3, Idle: 2, WaitCount: 9, WaitDuration: time.Second}
	want := metrics.PoolStats{Max: 16, InUse: 3, Idle: 2, Waits: 9, Waited: time.Second}
	if got := metrics.SQLPool("stock", func() sql.DBStats { return stats }).Stats(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
