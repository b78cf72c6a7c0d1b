package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/telemetry"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and the commit that this program was built from",
		Example: "  stockd version\n" +
			"  stockd version | cut -d, -f1",
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, known := debug.ReadBuildInfo()
			if !known {
				return errors.New("this program was built without the facts of its build")
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version(info))
			return err
		},
	}
}

// version tells what Go's toolchain has stamped in: nothing has to be passed to
// the build, and nothing can be passed wrongly.
func version(info *debug.BuildInfo) string {
	return fmt.Sprintf("stockd %s, commit %s, %s %s/%s", info.Main.Version, telemetry.Commit(info), info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
