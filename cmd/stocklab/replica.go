package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/replica"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lock"
)

// replicaCommand is stockd serve, with failpoints where lab.enabled is set: stocklab runs
// its replicas by executing itself.
func replicaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "replica",
		Short:  "Run one replica of an experiment",
		Hidden: true,
		Args:   cli.NoArgs,
	}
	return cli.Configured(cmd, func(ctx context.Context, c *config.Loaded) error {
		var o replica.Options
		if c.Lab.Enabled {
			steps := failpoint.NewSteps()
			o = replica.Options{Open: openFailpoints(steps), Spans: steps, Locks: changeLocks}
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

// changeLocks gives the locks of an experiment another clock, no reaper, and servers that do not share them.
func changeLocks(c config.Config, deps lock.Deps) lock.Deps {
	deps.Unreaped, deps.NodeLocks = !c.Lab.Reaper, c.Lab.NodeLocks
	if c.Lab.ClockOffset != 0 {
		deps.Now = func() time.Time { return time.Now().Add(c.Lab.ClockOffset) }
	}
	return deps
}
