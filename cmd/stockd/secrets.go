package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
)

const (
	ownerReads    fs.FileMode = 0o400
	everyoneReads fs.FileMode = 0o444
)

func secretsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "secrets FILE[=PREFIX]...",
		Short: "Write a random secret into each file that does not exist yet",
		Long: "Write a random secret, after its prefix, into each file that does not exist yet. A file that exists keeps\n" +
			"its content, so that this may be run at every start.",
		Example: "  stockd secrets admin.token\n" +
			"  stockd secrets zookeeper.auth=stockd: --world-readable  # a random password after stockd:",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError{Err: errors.New("name the files: stockd secrets FILE[=PREFIX]")}
			}
			return nil
		},
	}
	worldReadable := cmd.Flags().Bool("world-readable", false, "let every user read the files (mode 0444), where the folder keeps others out; only their owner may otherwise (0400)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		mode := ownerReads
		if *worldReadable {
			mode = everyoneReads
		}
		for _, arg := range args {
			path, prefix, _ := strings.Cut(arg, "=")
			done := "written"
			err := writeSecret(path, prefix, mode)
			if errors.Is(err, fs.ErrExist) {
				done, err = "kept", nil
			}
			if err != nil {
				return fmt.Errorf("write the secret %s: %w", path, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", path, done) //nolint:errcheck // the files are what counts
		}
		return nil
	}
	return cmd
}

// writeSecret returns fs.ErrExist where there is such a file. The file appears with its
// whole content: a process that dies in between leaves none that is empty.
func writeSecret(path, prefix string, mode fs.FileMode) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	draft, err := os.CreateTemp(filepath.Dir(path), ".secret-") // mode 0600
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(draft.Name())) }()
	_, err = draft.WriteString(prefix + rand.Text()) // no newline: an operator of Kubernetes sends a Secret as it is
	if err := errors.Join(err, draft.Chmod(mode), draft.Sync(), draft.Close()); err != nil {
		return err
	}
	return os.Link(draft.Name(), path) // unlike a rename, it replaces no file
}
