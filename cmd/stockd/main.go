// Command stockd sells hot items: it runs the replicas of a shop, and what belongs to
// their operation.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/cmd/internal/replica"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/telemetry"
)

func main() {
	logging.Disable() // what go-redis would print is returned as an error
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

func run(args []string, out, errOut io.Writer) int { return cli.Run(root(), args, out, errOut) }

func root() *cobra.Command {
	cmd := &cobra.Command{Use: "stockd", Short: "Sell a hot item to a crowd without overselling it"}
	cmd.AddCommand(serveCommand(), migrateCommand(), ledgerCommand(), stockCommand(), ordersCommand(), reservationsCommand(), benchCommand(), checkCommand(), configCommand(), secretsCommand(), buyerTokenCommand(),
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

// greeting tells a person at a terminal what runs and what to try; elsewhere the log is enough.
func greeting(out io.Writer, c config.Config) func(public, admin string) {
	if !cli.IsTerminal(out) {
		return nil
	}
	return func(public, admin string) {
		fmt.Fprint(out, greet(reachable(public), reachable(admin), c)) //nolint:errcheck // the replica sells without it
	}
}

// reachable is an address that a listener on all interfaces has on this machine.
func reachable(address string) string {
	return strings.NewReplacer("[::]", "127.0.0.1", "0.0.0.0", "127.0.0.1").Replace(address)
}

func greet(public, admin string, c config.Config) string {
	sells := fmt.Sprintf("\nstockd sells at %s, through %s where neither an item nor a request names another strategy.\n", public, c.Deduct.Strategy)
	if admin == "" {
		return sells + "It has no admin API, so that no item can be created: set STOCKD_ADMIN_TOKEN, and start it again.\n\n"
	}
	return sells + fmt.Sprintf(`The admin API is at %[2]s. Next, put an item on sale, buy one, and audit:

  curl -H "Authorization: Bearer $STOCKD_ADMIN_TOKEN" -d goods_id=1 -d stock=100 %[2]s/goods
  curl -d goods_id=1 %[1]s/deduct
  curl %[1]s/goods/1/audit

^C stops it, after the requests in flight.

`, public, admin)
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the commit that this program was built from",
		Example: "  stockd version\n" +
			"  stockd version | cut -d, -f1",
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, known := debug.ReadBuildInfo()
			if !known {
				return errors.New("this program was built without the facts of its build")
			}
			return cli.Print(cmd, "%s", version(info))
		},
	}
}

// version tells what Go's toolchain has stamped in: nothing has to be passed to
// the build, and nothing can be passed wrongly.
func version(info *debug.BuildInfo) string {
	return fmt.Sprintf("stockd %s, commit %s, %s %s/%s", info.Main.Version, telemetry.Commit(info), info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
