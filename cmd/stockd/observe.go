package main

import (
	"context"
	"log/slog"
	"runtime/debug"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/machine"
	"github.com/stockd/stockd/internal/lock"
	"github.com/stockd/stockd/internal/metrics"
	"github.com/stockd/stockd/internal/repo"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/stock"
)

// newMetrics makes the metrics of a replica, with those limits that alerts compare
// with.
func newMetrics(c config.Config) *metrics.Metrics {
	build := metrics.Build{Replica: c.Replica}
	if info, known := debug.ReadBuildInfo(); known {
		build.Version, build.Commit, build.GoVersion = info.Main.Version, machine.Commit(info), info.GoVersion
	}
	m := metrics.New(build)
	m.Limit("stockd_config_lock_wait_seconds", "The configured lock.wait.", c.Lock.Wait.Seconds())
	m.Limit("stockd_config_max_deductions", "The configured http.max_deductions.", float64(c.HTTP.MaxDeductions))
	return m
}

// stateOf is what a scrape asks of a replica.
func stateOf(ctx context.Context, c config.Config, catalogue *service.Catalogue, store *repo.Store, locks *lock.Clients) metrics.State {
	pools := []metrics.Pool{metrics.SQLPool("stock", store.Stats), metrics.SQLPool("locks", locks.DB.Stats)}
	if locks.Redis != nil {
		pools = append(pools, metrics.RedisPool(string(lock.Redis), c.Redis.MaxOpen, locks.Redis))
	}
	if len(locks.Redlock) > 0 {
		pools = append(pools, metrics.RedisPool(string(lock.Redlock), c.Redis.MaxOpen, locks.Redlock...))
	}
	return metrics.State{
		Stopping: func() bool { return ctx.Err() != nil },
		Backends: catalogue.Backends, Waiting: catalogue.Waiting, Lag: catalogue.Lag,
		Pools: pools,
	}
}

// keepAuditing audits all goods, where the owner wants that.
func keepAuditing(ctx context.Context, c config.Audit, inventory *service.Inventory, m *metrics.Metrics, log *slog.Logger) {
	if c.Every == 0 {
		return
	}
	inventory.KeepAuditing(ctx, c.Every, func(sums stock.Audits, err error) {
		m.Audited(sums, err)
		if err != nil {
			log.WarnContext(ctx, "goods were not audited", "error", err)
		}
	})
}
