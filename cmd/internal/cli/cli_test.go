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
	"github.com/stockd/stockd/internal/must"
	"github.com/stockd/stockd/internal/should"
)

// program is one with a command that does, and fails as do does.
func program(do func(ctx context.Context, c *config.Loaded) error) *cobra.Command {
	root := &cobra.Command{Use: "stockd", Short: "sells"}
	root.AddCommand(Configured(&cobra.Command{Use: "serve", Short: "serves", Args: noArgs}, do))
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
		"a blank behind =":          {[]string{"serve", "--admin-token=", "hidden"}, nil, Usage, "", "stockd: what follows --admin-token= and a blank is not understood after stockd serve; see stockd serve --help\n"},
		"an unknown command":        {[]string{"serv"}, nil, Usage, "", `"serv" is not understood after stockd`},
		"an unknown flag":           {[]string{"serve", "--none"}, nil, Usage, "", "stockd: unknown flag: --none\n"},
		"a key as a flag":           {[]string{"serve", "--http.max_deductions=1"}, nil, Usage, "", "unknown flag: --http.max_deductions; did you mean --http-max-deductions?\n"},
		"a wrong value":             {[]string{"serve", "--http-max-deductions=0"}, nil, Usage, "", "http.max_deductions"},
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
		must.Do(t, os.WriteFile(path, []byte(text), 0o600))
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
		should.Be(t, status, OK, "exit status", signal)
	}
}

// Each names its flag, the value and what is allowed, before the command does anything.
func TestAWrongFlagNamesWhatIsAllowed(t *testing.T) {
	folder := t.TempDir()
	for args, want := range map[string]string{
		"--clients x":                    `--clients must be a whole number, not "x"`,
		"--clients 99999999999999999999": `--clients must be a whole number, not "99999999999999999999"`,
		"--rate x":                       `--rate must be a number, not "x"`,
		"--timeout 5":                    `--timeout must be a duration such as 5s or 250ms, not "5"`,
		"--group=perhaps":                `--group must be true or false, not "perhaps"`,
		"--replicas 1,x":                 `--replicas must be whole numbers, separated by commas, not "1,x"`,
		"--url 127.0.0.1:8080":           `--url must be http:// or https:// with a host, such as http://127.0.0.1:8080, not "127.0.0.1:8080"`,
		"--url ftp://127.0.0.1":          `--url must be http:// or https:// with a host, such as http://127.0.0.1:8080, not "ftp://127.0.0.1"`,
		"--admin-url http://":            `--admin-url must be http:// or https:// with a host, such as http://127.0.0.1:8080, not "http://"`,
		"--json " + folder + "/none/a":   "--json: there is no folder " + folder + "/none",
		"--json " + folder:               "--json must be a file, and " + folder + " is a folder",
	} {
		done := false
		cmd := &cobra.Command{Use: "bench", Args: noArgs, RunE: func(*cobra.Command, []string) error { done = true; return nil }}
		cmd.Flags().Int("clients", 1, "")
		cmd.Flags().Float64("rate", 0, "")
		cmd.Flags().Duration("timeout", time.Second, "")
		cmd.Flags().Bool("group", false, "")
		cmd.Flags().IntSlice("replicas", nil, "")
		for _, name := range []string{"url", "admin-url", "json"} {
			cmd.Flags().String(name, "", "")
		}
		root := &cobra.Command{Use: "stockd"}
		root.AddCommand(cmd)
		var errOut bytes.Buffer
		if status := Run(root, append([]string{"bench"}, strings.Fields(args)...), io.Discard, &errOut); status != Usage || done || errOut.String() != "stockd: "+want+"\n" {
			t.Errorf("%s: exit status %d, %q, done: %v; want %d and %q", args, status, &errOut, done, Usage, want)
		}
	}
}
