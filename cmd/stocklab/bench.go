package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/bench"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
)

// suiteFlags are the flags of stocklab bench.
type suiteFlags struct {
	bench.Options

	from, only  string
	chart, hour string
	redo, write string
	markdown    bool
}

// How long a suite takes where nothing else is asked for.
const (
	suiteWithin = 20 * time.Minute
	quickWithin = 5 * time.Minute
)

// minLedger has some rows of every item.
const minLedger = 100_000

func benchCommand() *cobra.Command {
	s := &suiteFlags{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure the strategies side by side with their limits, on servers of its own",
		Long: "Measure the strategies side by side with their limits, on servers of its own. stockd bench puts load\n" +
			"on a stockd that runs already.",
		Example: "  stocklab bench --quick --only sql-conditional\n" +
			"  stocklab bench --servers local --json benchmark.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.redo != "" {
				return s.redraw(cmd)
			}
			return s.run(cmd)
		},
	}
	s.add(cmd.Flags())
	return cmd
}

func (s *suiteFlags) add(flags *pflag.FlagSet) {
	flags.BoolVar(&s.Quick, "quick", false, "64 clients only, and no locks by themselves")
	flags.StringVar(&s.only, "only", "", "measure only the strategies whose name this regular expression matches")
	flags.StringVar(&s.from, "servers", "local", "auto, embedded or local, with exceptions as for stocklab demo")
	flags.IntVar(&s.Rounds, "rounds", 3, "how often to measure what has a target")
	flags.DurationVar(&s.Within, "within", 0, "how long all of it may take (default 20m, with --quick 5m)")
	flags.DurationVar(&s.Each, "each", 0, "how long each measurement takes (default: as --within allows)")
	flags.StringVar(&s.chart, "chart", "", "file to draw the figures into, as SVG")
	flags.StringVar(&s.hour, "hour", "", "file to draw what 10,000 units for a million buyers cost into, as SVG")
	flags.StringVar(&s.redo, "chart-from", "", "draw --chart or --hour, or print --markdown from the --json file of an earlier run instead")
	flags.Int64Var(&s.Ledger, "ledger", 0, "measure a ledger of so many rows against an empty one instead, on a server of its own")
	flags.IntVar(&s.Items, "items", 0, "measure so many items that are sold at the same time against one instead, 2 to 10000")
	flags.BoolVar(&s.Growth, "growth", false, "measure how sales grow with clients, items and replicas instead")
	flags.StringVar(&s.write, "json", "", "file to write the figures to, with those of every round")
	flags.BoolVar(&s.markdown, "markdown", false, "print a page in Markdown instead of the tables")
}

func (s *suiteFlags) options() (o bench.Options, err error) {
	o = s.Options
	if o.Servers, err = servers.ParseChoice(s.from); err != nil {
		return o, cli.UsageError{Err: fmt.Errorf("--servers: %w", err)}
	}
	if s.Rounds < 1 || s.Each != 0 && s.Each < 100*time.Millisecond {
		return o, cli.UsageError{Err: fmt.Errorf("--rounds must be at least 1 and --each at least 100ms, not %d and %s", s.Rounds, s.Each)}
	}
	if s.only != "" {
		if o.Only, err = regexp.Compile(s.only); err != nil {
			return o, cli.UsageError{Err: fmt.Errorf("--only: %w", err)}
		}
	}
	if err := cmp.Or(s.checkAlone(), checkOnly(o)); err != nil {
		return o, cli.UsageError{Err: err}
	}
	switch {
	case s.Within != 0:
	case s.Quick:
		o.Within = quickWithin
	default:
		o.Within = suiteWithin
	}
	if o.Within < time.Minute {
		return o, cli.UsageError{Err: fmt.Errorf("--within must be at least 1m, not %s", s.Within)}
	}
	if s.alone() {
		o.Each = cmp.Or(o.Each, aloneEach)
	}
	return o, nil
}

// alone says that it is none of the suite.
func (s *suiteFlags) alone() bool { return s.Growth || s.Items != 0 || s.Ledger != 0 }

// checkAlone checks the flags of measurements that are none of the suite.
func (s *suiteFlags) checkAlone() error {
	switch {
	case s.Ledger != 0 && s.Ledger < minLedger:
		return fmt.Errorf("--ledger must be at least %d, not %d", minLedger, s.Ledger)
	case s.Items != 0 && (s.Items < 2 || s.Items > bench.MaxItems):
		return fmt.Errorf("--items must be 2 to %d, not %d", bench.MaxItems, s.Items)
	case s.Items != 0 && s.Ledger != 0, s.Growth && (s.Items != 0 || s.Ledger != 0):
		return errors.New("--items, --ledger and --growth are measurements of their own")
	case s.hour != "" && s.alone():
		return errors.New("--hour draws what the suite has measured, not --growth, --items or --ledger")
	case s.chart != "" && (s.Items != 0 || s.Ledger != 0):
		return errors.New("--chart draws what the suite or --growth has measured, not --items or --ledger")
	}
	return s.checkMeaning()
}

// checkMeaning rejects flags that would be ignored.
func (s *suiteFlags) checkMeaning() error {
	switch {
	case s.Quick && s.alone():
		return errors.New("--quick is for the suite, not for --items, --ledger or --growth")
	case s.Within != 0 && (s.alone() || s.Each != 0):
		return errors.New("--within is for the suite where --each is not given")
	case s.only != "" && (s.Ledger != 0 || s.Growth && s.chart != ""):
		return errors.New("--only has no meaning with --ledger, nor with --growth and --chart, which draws all of it")
	}
	return nil
}

// checkOnly rejects a name that leaves nothing to measure but the limits.
func checkOnly(o bench.Options) error {
	known := o.Strategies()
	if o.Only == nil || slices.ContainsFunc(known, o.Only.MatchString) {
		return nil
	}
	return fmt.Errorf("--only: %q matches none of the strategies that are measured: %s", o.Only, strings.Join(known, ", "))
}

func (s *suiteFlags) run(cmd *cobra.Command) error {
	o, err := s.options()
	if err != nil {
		return err
	}
	o.Progress = cli.NewProgress(cmd.ErrOrStderr(), 72)
	result, err := bench.Run(cmd.Context(), o)
	o.Progress.End()
	return s.show(cmd, result, err)
}

// show shows what has been measured, interrupted or not.
func (s *suiteFlags) show(cmd *cobra.Command, result *bench.Result, err error) error {
	switch {
	case result == nil:
		return err
	case len(result.Subjects) == 0:
		return cmp.Or(err, fmt.Errorf("nothing was measured: %s", cmp.Or(strings.Join(result.Notes, "; "), "--only names no strategy that could be")))
	}
	return errors.Join(err, s.print(cmd, result), verdict.WriteJSON(s.write, result), s.draw(result))
}

func (s *suiteFlags) print(cmd *cobra.Command, result *bench.Result) error {
	if s.markdown {
		return result.Markdown(cmd.OutOrStdout(), measuredBy(cmd))
	}
	return result.Table(cmd.OutOrStdout())
}

// measuredBy is the command that measures the same again.
func measuredBy(cmd *cobra.Command) string {
	words := cmd.CommandPath()
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case slices.Contains([]string{"json", "chart", "hour", "chart-from", "markdown"}, f.Name):
		case f.Value.Type() == "bool":
			words += " --" + f.Name
		default:
			words += " --" + f.Name + " " + f.Value.String()
		}
	})
	return words
}

// aloneEach is how long a measurement takes that is none of the suite, where it is not said.
const aloneEach = 4 * time.Second

// redraw draws and prints the figures of an earlier run.
func (s *suiteFlags) redraw(cmd *cobra.Command) error {
	if s.chart == "" && s.hour == "" && !s.markdown {
		return cli.UsageError{Err: errors.New("--chart-from needs --chart or --hour, the file to draw into, or --markdown")}
	}
	content, err := os.ReadFile(s.redo)
	if err != nil {
		return cli.UsageError{Err: fmt.Errorf("--chart-from: %w", err)}
	}
	var result bench.Result
	if err := json.Unmarshal(content, &result); err != nil {
		return cli.UsageError{Err: fmt.Errorf("--chart-from: %s: %w", s.redo, err)}
	}
	if s.markdown {
		err = s.print(cmd, &result)
	}
	return errors.Join(err, s.draw(&result))
}

// draw draws the figures where --chart and --hour say so.
func (s *suiteFlags) draw(result *bench.Result) error {
	chart := result.Chart
	if s.Growth {
		chart = result.Growth
	}
	return errors.Join(drawInto(s.chart, chart), drawInto(s.hour, result.Hour))
}

// drawInto leaves the file as it was where nothing can be drawn; without a name there is no file.
func drawInto(file string, draw func(io.Writer) error) error {
	if file == "" {
		return nil
	}
	var picture bytes.Buffer
	if err := draw(&picture); err != nil {
		return err
	}
	if err := os.WriteFile(file, picture.Bytes(), 0o644); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return nil
}
