package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/lab/servers"
)

// suiteFlags are the flags of stockd bench --suite.
type suiteFlags struct {
	on     bool
	from   string
	rounds int
	each   time.Duration
}

func addSuiteFlags(flags *pflag.FlagSet) *suiteFlags {
	s := &suiteFlags{}
	flags.BoolVar(&s.on, "suite", false, "measure how far stockd is from its limits instead, on servers of its own")
	flags.StringVar(&s.from, "servers", "local", "with --suite: auto, embedded or local, with exceptions as for stockd demo")
	flags.IntVar(&s.rounds, "rounds", 5, "with --suite: how often everything is measured")
	flags.DurationVar(&s.each, "each", 4*time.Second, "with --suite: how long each measurement takes")
	return s
}

func (s *suiteFlags) run(cmd *cobra.Command) error {
	choice, err := servers.ParseChoice(s.from)
	if err != nil {
		return usageError{fmt.Errorf("--servers: %w", err)}
	}
	if s.rounds < 1 || s.each < 100*time.Millisecond {
		return usageError{fmt.Errorf("--rounds must be at least 1 and --each at least 100ms, not %d and %s", s.rounds, s.each)}
	}
	binary, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	result, on, err := bench.Run(cmd.Context(), bench.Options{
		Binary: binary, Servers: choice, Rounds: s.rounds, Each: s.each,
		Say: func(words string) { fmt.Fprintln(cmd.ErrOrStderr(), words) }, //nolint:errcheck // as below
		Progress: func(round int, subject string, value float64, unit string) {
			//nolint:errcheck // progress that nobody reads is no failure
			fmt.Fprintf(cmd.ErrOrStderr(), "round %d/%d  %s: %.0f%s\n", round, s.rounds, subject, value, unit)
		},
	})
	if err != nil {
		return err
	}
	if err := result.Table(cmd.OutOrStdout()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s; %d processors; %d rounds of %s\n",
		report.Servers(on), runtime.NumCPU(), s.rounds, s.each)
	if err != nil {
		return err
	}
	return s.write(cmd, result, on)
}

// write keeps the figures where --json says so.
func (s *suiteFlags) write(cmd *cobra.Command, result *bench.Result, on map[string]servers.Info) error {
	path := cmd.Flag("json").Value.String()
	if path == "" {
		return nil
	}
	content, err := json.MarshalIndent(struct {
		Servers    map[string]servers.Info `json:"servers"`
		Processors int                     `json:"processors"`
		*bench.Result
	}{on, runtime.NumCPU(), result}, "", "  ")
	if err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	if err := os.WriteFile(path, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("write figures: %w", err)
	}
	return nil
}
