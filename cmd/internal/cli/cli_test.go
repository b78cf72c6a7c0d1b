package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/internal/config"
)

// program is one with a command that does, and fails as do does.
func program(do func(ctx context.Context, c *config.Loaded) error) *cobra.Command {
	root := &cobra.Command{Use: "stockd", Short: "sells"}
	root.AddCommand(Configured(&cobra.Command{Use: "serve", Short: "serves", Args: NoArgs}, do))
	return root
}

func TestTheExitStatusTellsWhatFailed(t *testing.T) {
	fails := func(err error) func(context.Context, *config.Loaded) error {
		return func(context.Context, *config.Loaded) error { return err }
	}
	for name, c := range map[string]struct {
		args   []string
		err    error
		status int
		out    string // a part of it; empty: nothing
		errOut string // a part of it; empty: nothing
	}{
		"done":                      {[]string{"serve"}, nil, OK, "", ""},
		"no command":                {nil, nil, OK, "Available Commands", ""},
		"help":                      {[]string{"serve", "--help"}, nil, OK, "Exit status: 0 done; 1 it failed, or a run was not as expected; 2 the command line", ""},
		"a failure":                 {[]string{"serve"}, errors.New("no luck"), Failure, "", "stockd: no luck\n"},
		"a failure of the client's": {[]string{"serve"}, errors.New("stockd: no luck"), Failure, "", "stockd: no luck\n"},
		"a mistake":                 {[]string{"serve"}, UsageError{Err: errors.New("no")}, Usage, "", "stockd: no\n"},
		"a wrapped mistake":         {[]string{"serve"}, errors.Join(UsageError{Err: errors.New("no")}), Usage, "", "stockd: no\n"},
		"an argument":               {[]string{"serve", "now"}, nil, Usage, "", `stockd: "now" is not understood after stockd serve; see stockd serve --help` + "\n"},
		"an unknown command":        {[]string{"serv"}, nil, Usage, "", `"serv" is not understood after stockd`},
		"an unknown flag":           {[]string{"serve", "--none"}, nil, Usage, "", "stockd: unknown flag: --none\n"},
		"a key as a flag":           {[]string{"serve", "--http.max_body=1"}, nil, Usage, "", "unknown flag: --http.max_body; did you mean --http-max-body?\n"},
		"a wrong value":             {[]string{"serve", "--http-max-body=1"}, nil, Usage, "", "http.max_body"},
		"a file that is not there":  {[]string{"serve", "--config=" + filepath.Join(t.TempDir(), "none.yaml")}, nil, Usage, "", "none.yaml"},
	} {
		var out, errOut bytes.Buffer
		status := Run(program(fails(c.err)), c.args, &out, &errOut)
		if status != c.status || !strings.Contains(out.String(), c.out) || !strings.Contains(errOut.String(), c.errOut) || (c.out == "") != (out.Len() == 0) || (c.errOut == "") != (errOut.Len() == 0) {
			t.Errorf("%s: exit status %d with %q and %q, want %d with %q and %q", name, status, &out, &errOut, c.status, c.out, c.errOut)
		}
	}
}

// A flag wins over the file, which the variable names where no flag does.
func TestACommandReadsItsConfiguration(t *testing.T) {
	file, other := filepath.Join(t.TempDir(), "a.yaml"), filepath.Join(t.TempDir(), "b.yaml")
	for path, text := range map[string]string{file: "replica: file\nlog:\n  level: warn\n", other: "replica: other\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv(config.PathEnv, file)
	for args, want := range map[string]string{"serve": "file warn", "serve --replica=flag": "flag warn", "serve --config=" + other: "other info"} {
		got := ""
		status := Run(program(func(_ context.Context, c *config.Loaded) error {
			got = c.Replica + " " + c.Log.Level
			return nil
		}), strings.Fields(args), io.Discard, io.Discard)
		if status != OK || got != want {
			t.Errorf("%s: exit status %d with %q, want %q", args, status, got, want)
		}
	}
}

// The first signal ends the context of a command, and the second one the process: it is not caught any more.
func TestASignalEndsTheContext(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		status := Run(program(func(ctx context.Context, _ *config.Loaded) error {
			if err := syscall.Kill(os.Getpid(), signal); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(10 * time.Second):
				return errors.New("the context goes on")
			}
		}), []string{"serve"}, io.Discard, os.Stderr)
		if status != OK {
			t.Errorf("%s: exit status %d", signal, status)
		}
	}
}
