// Package cli is the command line that stockd and stocklab share: exit statuses,
// mistakes, the configuration, and the flags of the admin API.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/cmd/internal/replica"
	"github.com/stockd/stockd/internal/config"
	"github.com/stockd/stockd/internal/nearest"
)

// Exit statuses.
const (
	OK      = 0
	Failure = 1 // something failed, or a run was not as expected
	Usage   = 2 // the command line or the configuration is wrong
)

// exitStatuses ends every help text.
const exitStatuses = `
Exit status: 0 done; 1 it failed, or a run was not as expected; 2 the command line or the configuration is wrong
`

// UsageError is a mistake in the command line or the configuration.
type UsageError = replica.UsageError

// Run executes a program, and returns its exit status. The first SIGINT or SIGTERM ends
// the context of its commands, a second SIGINT the process.
func Run(root *cobra.Command, args []string, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)

	root.SilenceUsage, root.SilenceErrors = true, true
	rejectArgs(root)
	root.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.PersistentPreRunE = checkFlags
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return UsageError{Err: respelt(cmd, err)} })
	root.SetUsageTemplate(root.UsageTemplate() + exitStatuses)
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return OK
	}
	// pkg/client names stockd in its errors, too.
	fmt.Fprintf(errOut, "%s: %s\n", root.Name(), strings.TrimPrefix(err.Error(), root.Name()+": ")) //nolint:errcheck // there is no other place to report to
	if _, ok := errors.AsType[UsageError](err); ok {
		return Usage
	}
	return Failure
}

// rejectArgs has those commands reject arguments that do not say otherwise.
func rejectArgs(cmd *cobra.Command) {
	if cmd.Args == nil {
		cmd.Args = noArgs
	}
	for _, c := range cmd.Commands() {
		rejectArgs(c)
	}
}

// noArgs rejects arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	what := strconv.Quote(args[0])
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Value.String() == "" { // it may be a password that was typed after a blank
			what = "what follows --" + flag.Name + "= and a blank"
		}
	})
	return UsageError{Err: fmt.Errorf("%s is not understood after %s%s; see %s --help", what, cmd.CommandPath(), meantCommand(cmd, args[0]), cmd.CommandPath())}
}

// meantCommand names the command that was probably meant.
func meantCommand(cmd *cobra.Command, word string) string {
	var known []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			known = append(known, c.Name())
		}
	}
	return nearest.Hint(word, known)
}

// Configured makes a command that reads the configuration first.
func Configured(cmd *cobra.Command, do func(ctx context.Context, c *config.Loaded) error) *cobra.Command {
	return configured(cmd, config.Load, do)
}

// Located is Configured for a command beside a running replica, which needs no secret of it, or reads its secrets by itself.
func Located(cmd *cobra.Command, do func(ctx context.Context, c *config.Loaded) error) *cobra.Command {
	return configured(cmd, config.Read, do)
}

func configured(
	cmd *cobra.Command, read func(string, *pflag.FlagSet) (*config.Loaded, error), do func(ctx context.Context, c *config.Loaded) error,
) *cobra.Command {
	path := cmd.Flags().String("config", os.Getenv(config.PathEnv), "file of the configuration ("+config.PathEnv+")")
	config.AddFlags(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := read(*path, cmd.Flags())
		if err != nil {
			return UsageError{Err: err}
		}
		return do(cmd.Context(), c)
	}
	return cmd
}
