package main

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/replica"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/repo"
)

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Change the schema of the database, or show its state",
		Example: "  stockd migrate status --config configs/production.yaml\n" +
			"  stockd migrate up --config configs/production.yaml",
		RunE: func(*cobra.Command, []string) error {
			return cli.UsageError{Err: errors.New("say what: stockd migrate up, down or status")}
		},
	}
	cmd.AddCommand(
		migration("up", "Apply every pending migration", func(ctx context.Context, s *repo.Store, say say) error {
			applied, err := s.MigrateUp(ctx)
			return tell(say, "applied", applied, err)
		}),
		migration("down", "Take the newest migration back, with the tables it made and what is in them", func(ctx context.Context, s *repo.Store, say say) error {
			undone, err := s.MigrateDown(ctx)
			return tell(say, "took back", undone, err)
		}),
		migration("status", "List the migrations, applied and pending", status),
	)
	return cmd
}

// say prints to the user.
type say func(format string, args ...any)

func migration(use, short string, do func(context.Context, *repo.Store, say) error) *cobra.Command {
	line := "  stockd migrate " + use
	cmd := &cobra.Command{Use: use, Short: short, Example: line + "\n" + line + " --config configs/production.yaml"}
	return cli.Configured(cmd, func(ctx context.Context, c *config.Loaded) (err error) {
		store, err := replica.OpenStore(ctx, c.Config)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, store.Close()) }()
		table := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
		defer func() { err = errors.Join(err, table.Flush()) }()
		return do(ctx, store, func(format string, args ...any) {
			fmt.Fprintf(table, format+"\n", args...) //nolint:errcheck // Flush tells
		})
	})
}

func tell(say say, what string, list []repo.Migration, err error) error {
	for _, m := range list {
		say("%s %s", what, m.File)
	}
	if err == nil && len(list) == 0 {
		say("nothing to do")
	}
	return err
}

func status(ctx context.Context, s *repo.Store, say say) error {
	list, err := s.Migrations(ctx)
	for _, m := range list {
		state := "pending"
		if !m.AppliedAt.IsZero() {
			state = "applied " + m.AppliedAt.Format(time.DateTime)
		}
		say("%s\t%s", m.File, state)
	}
	return err
}
