package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/failpoint"
	"github.com/stockd/stockd/internal/lock"
)

// openLab lets experiments into this replica. Nobody shall be able to say that it
// was not seen.
func openLab(ctx context.Context, c config.Config, log *slog.Logger) (*failpoint.Registry, error) {
	log.WarnContext(ctx, "lab.enabled is set: the owner can hold, pause and kill this replica in the middle of a sale", "history", c.Lab.History)
	return failpoint.Open(failpoint.Options{Replica: c.Replica, History: c.Lab.History, Log: log})
}

// bend makes the locks as an experiment wants them.
func bend(deps lock.Deps, c config.Lab) lock.Deps {
	if !c.Enabled {
		return deps
	}
	deps.Unreaped = !c.Reaper
	if c.ClockOffset != 0 {
		deps.Now = func() time.Time { return time.Now().Add(c.ClockOffset) }
	}
	return deps
}
