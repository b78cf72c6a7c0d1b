// Command stockd sells one hot item to a crowd, through any of a number of
// strategies, and shows what each of them does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9/logging"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/lab/servers"
)

func main() {
	servers.SuperviseIfAsked()
	logging.Disable() // what go-redis would print reaches us as an error
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitOK      = 0
	exitFailure = 1 // something failed, or a run was not as claimed
	exitUsage   = 2 // the command line or the configuration is wrong
)

// run is main without the process around it: tests start it, too.
func run(args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second ^C ends the process at once.
	context.AfterFunc(ctx, stop)

	root := root()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	var wrong usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &wrong):
		fmt.Fprintf(errOut, "stockd: %v\n", err) //nolint:errcheck // nobody is left to tell
		return exitUsage
	default:
		fmt.Fprintf(errOut, "stockd: %v\n", err) //nolint:errcheck // nobody is left to tell
		return exitFailure
	}
}

// usageError is a mistake of whoever started us.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:           "stockd",
		Short:         "Sell one hot item to a crowd, and see which strategies never oversell",
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          noArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{respelt(cmd, err)} })
	cmd.AddCommand(serveCommand(), demoCommand(), benchCommand(), migrateCommand(), configCommand(), labCommand(), nothingCommand(),
		stockCommand(), secretsCommand(), healthcheckCommand(), versionCommand())
	return cmd
}

// respelt names the flag that was meant where a key was written as errors and files
// write it.
func respelt(cmd *cobra.Command, err error) error {
	unknown, is := errors.AsType[*pflag.NotExistError](err)
	if !is {
		return err
	}
	flag := cmd.Flags().Lookup(config.FlagOf(unknown.GetSpecifiedName()))
	if flag == nil {
		return err
	}
	return fmt.Errorf("%w; did you mean --%s?", err, flag.Name)
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%q is not understood after %s; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())}
	}
	return nil
}

// configured makes a command that reads the configuration first.
func configured(cmd *cobra.Command, do func(ctx context.Context, c *config.Loaded) error) *cobra.Command {
	path := cmd.Flags().String("config", os.Getenv(config.PathEnv), "file of the configuration ("+config.PathEnv+")")
	config.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := config.Load(*path, cmd.Flags())
		if err != nil {
			return usageError{err}
		}
		return do(cmd.Context(), c)
	}
	return cmd
}

func configCommand() *cobra.Command {
	var example bool
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print the configuration that is in force, and where each value is from",
		Args:  noArgs,
	}
	cmd = configured(cmd, func(_ context.Context, c *config.Loaded) error {
		if example {
			return config.Example(cmd.OutOrStdout())
		}
		return c.Print(cmd.OutOrStdout())
	})
	cmd.Flags().BoolVar(&example, "example", false, "print the file that documents every key instead")
	return cmd
}
