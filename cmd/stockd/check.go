package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/replica"
	"github.com/stockd/stockd/internal/backend/check"
	"github.com/stockd/stockd/internal/config"
)

func checkCommand() *cobra.Command {
	var (
		replicas int
		timeout  time.Duration
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Try what a replica will do on every server that is configured, and say what to change",
		Long: "Connect to every server that is configured, with the rights that a replica will have, try what it will do,\n" +
			"and take back what was written: before the first start, and after each change of a server. It sells nothing.\n" +
			"The exit status is 1 where a problem was found, and 0 where there is none, or warnings alone.",
		Example: "  stockd check --config configs/production.yaml --replicas 3\n" +
			"  stockd check --config configs/production.yaml --json",
	}
	cmd = cli.Configured(cmd, func(ctx context.Context, c *config.Loaded) error {
		if replicas < 1 || timeout <= 0 {
			return cli.UsageError{Err: errors.New("--replicas must be at least 1, and --timeout above 0")}
		}
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		found, err := replica.Check(ctx, c.Config, replicas)
		if err != nil {
			return err
		}
		show := showFindings
		if asJSON {
			show = func(out io.Writer, found []check.Finding) error { return json.NewEncoder(out).Encode(found) }
		}
		return errors.Join(show(cmd.OutOrStdout(), found), problems(found))
	})
	cmd.Flags().IntVar(&replicas, "replicas", 3, "replicas that share the servers; room for one more is wanted, as during a rolling restart")
	cmd.Flags().DurationVar(&timeout, "timeout", 20*time.Second, "longest time for all checks")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array instead of a table")
	return cmd
}

// columnWidth is that of the columns of a table that hold sentences.
const columnWidth = 44

func showFindings(out io.Writer, found []check.Finding) error {
	t := table.NewWriter()
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.DrawBorder = false
	t.SetStyle(style)
	t.AppendHeader(table.Row{"what", "", "found", "wanted", "what to do"})
	columns := make([]table.ColumnConfig, 5)
	for i := range columns {
		columns[i] = table.ColumnConfig{Number: i + 1, WidthMax: columnWidth, WidthMaxEnforcer: text.WrapSoft}
	}
	t.SetColumnConfigs(columns)
	for _, f := range found {
		t.AppendRow(table.Row{f.What, f.State, f.Found, f.Wanted, f.Do})
	}
	_, err := fmt.Fprintln(out, t.Render())
	return err
}

func problems(found []check.Finding) error {
	n := 0
	for _, f := range found {
		if f.State == check.Problem {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d checks found a problem", n, len(found))
}
