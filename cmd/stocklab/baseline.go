package main

import (
	"context"
	"log/slog"

	"github.com/gin-gonic/gin"
	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/replica"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
)

// baselineCommand is a replica without strategies and backends: the benchmark compares
// replicas with its HTTP.
func baselineCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "baseline",
		Short:  "Answer every purchase with the same sale, for the benchmark",
		Hidden: true,
		Args:   cli.NoArgs,
	}
	return cli.Configured(cmd, func(ctx context.Context, c *config.Loaded) error {
		gin.SetMode(gin.ReleaseMode)
		answers, err := handler.Baseline(handler.Options{Replica: c.Replica, MaxBody: config.MaxBody, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		return replica.ServeHTTP(ctx, c.Config, cmd.ErrOrStderr(), answers)
	})
}
