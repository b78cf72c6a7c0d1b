// Command stocklab shows and measures what strategies do under load and under failures: it
// runs its own replicas and servers, and removes them when it ends.
package main

import (
	"io"
	"os"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/servers"
)

func main() {
	servers.SuperviseIfAsked()
	logging.Disable() // what go-redis would print is returned as an error
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run is main without the process.
func run(args []string, out, errOut io.Writer) int { return cli.Run(root(), args, out, errOut) }

func root() *cobra.Command {
	cmd := &cobra.Command{Use: "stocklab", Short: "See and measure which strategies oversell a hot item, and why"}
	cmd.AddCommand(demoCommand(), liveCommand(), labCommand(), benchCommand(), replicaCommand(), trialCommand())
	cmd.AddCommand(baselineCommands()...)
	return cmd
}
