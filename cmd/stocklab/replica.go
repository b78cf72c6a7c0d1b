package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/replica"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/bench/baseline"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/service/strategy"
)

// replicaCommand is stockd serve, with failpoints where lab.enabled is set: stocklab runs
// its replicas by executing itself.
func replicaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "replica",
		Short:  "Run one replica of an experiment",
		Hidden: true,
	}
	return cli.Configured(cmd, func(ctx context.Context, c *config.Loaded) error {
		var o replica.Options
		if c.Lab.Enabled {
			steps := failpoint.NewSteps()
			o = replica.Options{Open: openFailpoints(steps), Spans: steps, Strategies: without}
		}
		return replica.Run(ctx, c.Config, cmd.ErrOrStderr(), o)
	})
}

// openFailpoints logs a warning: a replica with failpoints must not be mistaken for one that sells.
func openFailpoints(steps *failpoint.Steps) func(context.Context, config.Config, *slog.Logger) (replica.Failpoints, error) {
	return func(ctx context.Context, c config.Config, log *slog.Logger) (replica.Failpoints, error) {
		log.WarnContext(ctx, "lab.enabled is set: the admin API can hold, pause and kill this replica in the middle of a sale", "history", c.Lab.History)
		return failpoint.Open(failpoint.Options{Replica: c.Replica, History: c.Lab.History, Steps: steps, Log: log})
	}
}

// The values of lab.without.
const (
	withoutReaper    = "reaper"
	withoutOneServer = "one-server"
	withoutPause     = "pause"
	withoutPool      = "pool"
)

// without gives the locks of an experiment another clock, and takes the safeguards of lab.without away.
func without(c config.Config, deps strategy.Deps) strategy.Deps {
	gone := func(name string) bool { return slices.Contains(c.Lab.Without, name) }
	deps.Lock.Unreaped, deps.Lock.NodeLocks = gone(withoutReaper), gone(withoutOneServer)
	if gone(withoutPause) {
		deps.Retry.Step, deps.Retry.Tries = 0, 10_000
	}
	if gone(withoutPool) {
		deps.UnitRows = 8
	}
	if c.Lab.ClockOffset != 0 {
		deps.Lock.Now = func() time.Time { return time.Now().Add(c.Lab.ClockOffset) }
	}
	return deps
}

// baselineCommands are the programs that the benchmark measures beside replicas.
func baselineCommands() (list []*cobra.Command) {
	for _, program := range baseline.Programs() {
		cmd := &cobra.Command{Use: baseline.Command(program), Short: "Run a program that is measured beside stockd", Hidden: true}
		list = append(list, cli.Configured(cmd, func(ctx context.Context, c *config.Loaded) error {
			o := baseline.Options{Listen: c.HTTP.Listen, DSN: c.Database.DSN, Password: c.Database.Password.Reveal(), Connections: c.Database.MaxOpen}
			if program == baseline.Script {
				o.Redis = &redis.Options{Addr: c.Redis.Addresses[0], Username: c.Redis.Username, Password: c.Redis.Password.Reveal(), PoolSize: c.Redis.MaxOpen}
			}
			return baseline.Run(ctx, program, o)
		}))
	}
	return list
}
