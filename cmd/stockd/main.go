// Command stockd sells hot items: it runs the replicas of a shop, and what belongs to
// their operation.
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/replica"
	"github.com/stockd/stockd/internal/config"
)

func main() {
	logging.Disable() // what go-redis would print is returned as an error
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process.
func run(args []string, out, errOut io.Writer) int { return cli.Run(root(), args, out, errOut) }

func root() *cobra.Command {
	cmd := &cobra.Command{Use: "stockd", Short: "Sell a hot item to a crowd without overselling it"}
	cmd.AddCommand(serveCommand(), migrateCommand(), ledgerCommand(), stockCommand(), ordersCommand(), reservationsCommand(), benchCommand(), configCommand(), secretsCommand(),
		healthcheckCommand(), versionCommand())
	return cmd
}

func serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run one replica of the service",
		Long: "Run one replica of the service.\n\n" +
			"Every key of the configuration is a flag, a STOCKD_… variable and a line in the file;\n" +
			"a flag wins over a variable, a variable over the file. stockd config shows what is in force.",
		Example: "  stockd serve                                     # SQLite in the working directory, for the first minute\n" +
			"  stockd serve --config configs/production.yaml",
		Args: cli.NoArgs,
	}
	return cli.Configured(cmd, func(ctx context.Context, c *config.Loaded) error {
		if c.Lab.Enabled {
			return cli.UsageError{Err: errors.New("lab.enabled: stockd has no failpoints; stocklab replica has them")}
		}
		return replica.Run(ctx, c.Config, cmd.ErrOrStderr(), replica.Options{Listening: greeting(cmd.OutOrStdout(), c.Config)})
	})
}

func configCommand() *cobra.Command {
	var example bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration that is in force, and where each value is from",
		Example: "  stockd config --config configs/production.yaml\n" +
			"  stockd config --example > stockd.yaml            # every key with its default and what it does",
		Args: cli.NoArgs,
	}
	cmd = cli.Configured(cmd, func(_ context.Context, c *config.Loaded) error {
		if example {
			return config.Example(cmd.OutOrStdout())
		}
		return c.Print(cmd.OutOrStdout())
	})
	cmd.Flags().BoolVar(&example, "example", false, "print the file that documents every key instead")
	return cmd
}
