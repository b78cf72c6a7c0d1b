package main

import (
	"context"

	"github.com/gin-gonic/gin"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/handler"
)

// nothingCommand is a replica that has only its HTTP: what the benchmark holds
// replicas against. It is of no use to anybody else, and is not listed.
func nothingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "nothing",
		Short:  "Answer every purchase with the same sale, for the benchmark",
		Hidden: true,
		Args:   noArgs,
	}
	return configured(cmd, func(ctx context.Context, c *config.Loaded) error {
		gin.SetMode(gin.ReleaseMode)
		log := logger(c.Log, cmd.ErrOrStderr())
		answers, err := handler.Baseline(handler.Options{Replica: c.Replica, MaxBody: int64(c.HTTP.MaxBody), Log: log})
		if err != nil {
			return err
		}
		listener, err := openListener(ctx, "nothing", c.HTTP.Listen)
		if err != nil {
			return err
		}
		group, ctx := errgroup.WithContext(ctx)
		serveOn(ctx, group, c.Config, log, "nothing", listener, answers, func(string, string) {})
		return group.Wait()
	})
}
