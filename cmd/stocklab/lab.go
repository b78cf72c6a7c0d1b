package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/experiments"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
)

func labCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lab",
		Short: "Reproduce the known failures of locks, and what helps, and judge them by evidence",
		Example: "  stocklab lab list\n" +
			"  stocklab lab run watchdog --servers=local",
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(labListCommand(), labRunCommand(), labReportCommand(), labDocsCommand(), labHostileCommand())
	return cmd
}

func labListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the experiments",
		Example: "  stocklab lab list\n" +
			"  stocklab lab list | grep -i redlock",
		RunE: func(cmd *cobra.Command, _ []string) error {
			t := verdict.NewTable("", 0, "#", "name", "what it shows")
			for _, e := range experiments.All() {
				t.AppendRow(table.Row{e.Number, e.Name, e.Title})
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Render())
			return err
		},
	}
}

func labRunCommand() *cobra.Command {
	var from, write, folder string
	cmd := &cobra.Command{
		Use:   "run NAME…",
		Short: "Make experiments, by name or number, or all of them",
		Long: "Make experiments, by name or number, or all of them: start what they need, break what they\n" +
			"break, and conclude from what was written down. The exit status is 0 only where every one was\n" +
			"reproduced, or could not be made because a server is not on this machine. Nothing is left\n" +
			"behind but what --dir and --json ask for.",
		Example: "  stocklab lab run work-outlasts-ttl watchdog     # by name, on the servers that are found\n" +
			"  stocklab lab run all --servers=local --dir run  # with a report to open in a browser",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cli.UsageError{Err: errors.New("lab run needs names of experiments, or all; stocklab lab list has them")}
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&from, "servers", "auto", "auto, embedded or local, with exceptions after commas: "+servers.Exceptions)
	flags.StringVar(&write, "json", "", "file to write the results to")
	flags.StringVar(&folder, "dir", "", "folder to keep the histories in, with a report.html to open in a browser")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		plan, err := labPlan(args, from)
		if err != nil {
			return cli.UsageError{Err: err}
		}
		plan.Progress = newLabProgress(cmd.ErrOrStderr())
		r, err := runLab(cmd.Context(), plan, folder)
		if len(r.Experiments) == 0 {
			return err
		}
		return errors.Join(err, showLab(r, cmd.OutOrStdout(), write, folder))
	}
	return cmd
}

func labPlan(names []string, from string) (p experiments.Plan, err error) {
	if p.Servers, err = servers.ParseChoice(from); err != nil {
		return p, fmt.Errorf("--servers: %w", err)
	}
	p.Experiments, err = experiments.Pick(names)
	return p, err
}

// runLab makes the experiments, and keeps a report in the folder where there is
// one, also of a run that was interrupted.
func runLab(ctx context.Context, p experiments.Plan, folder string) (*experiments.Report, error) {
	if folder != "" {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return &experiments.Report{}, fmt.Errorf("make the folder of the run: %w", err)
		}
	}
	p.Folder = folder
	r, err := experiments.Run(ctx, p)
	if folder != "" && len(r.Experiments) > 0 {
		err = errors.Join(err, report.Write(folder, r))
	}
	return r, err
}

// errNotReproduced makes the exit status tell what the table says.
var errNotReproduced = errors.New("not every experiment was reproduced")

func showLab(r *experiments.Report, out io.Writer, write, folder string) error {
	if err := report.Table(out, r, cli.IsTerminal(out)); err != nil {
		return err
	}
	if err := verdict.WriteJSON(write, r); err != nil {
		return err
	}
	if err := hints(r, out, folder); err != nil {
		return err
	}
	for _, e := range r.Experiments {
		if e.Verdict == experiments.NotReproduced {
			return errNotReproduced
		}
	}
	return nil
}

// hints say what to do next: the one command that shows what to do instead, where
// one experiment was asked for, and where the report is.
func hints(r *experiments.Report, out io.Writer, folder string) error {
	var lines []string
	if len(r.Experiments) == 1 && r.Experiments[0].Fix != "" {
		lines = append(lines, "what to do instead: "+r.Experiments[0].Fix)
	}
	if folder == "" {
		lines = append(lines, "with --dir FOLDER the histories are kept, and a report to open in a browser")
	} else {
		lines = append(lines, "report: "+filepath.Join(folder, report.File))
	}
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}

func labReportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report DIR",
		Short: "Make the report of a run again, from what it left in its folder",
		Example: "  stocklab lab report run\n" +
			"  stocklab lab run 36 --dir run && stocklab lab report run",
		Args: oneArg("a folder that stocklab lab run --dir has filled"),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := report.Read(args[0])
			if err != nil {
				return cli.UsageError{Err: err}
			}
			if err := experiments.Reread(args[0], experiments.All(), r); err != nil {
				return err
			}
			return errors.Join(report.Write(args[0], r), showLab(r, cmd.OutOrStdout(), "", args[0]))
		},
	}
}

// labDocsCommand makes the pages under docs/lab; it is for contributors.
func labDocsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "docs DIR",
		Short:  "Write docs/lab, with the README's picture, from the catalogue and from the folder of a run",
		Hidden: true,
		Args:   oneArg("a folder that stocklab lab run all --dir has filled"),
		RunE: func(_ *cobra.Command, args []string) error {
			return report.Docs(filepath.Join("docs", "lab"), args[0], experiments.All())
		},
	}
}

func oneArg(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return cli.UsageError{Err: fmt.Errorf("%s needs one argument: %s", cmd.CommandPath(), what)}
		}
		return nil
	}
}

// newLabProgress reports experiments on w.
func newLabProgress(w io.Writer) experiments.Progress {
	return labProgress{cli.NewProgress(w, 48), cli.IsTerminal(w)}
}

// labProgress reports experiments.
type labProgress struct {
	cli.Progress

	terminal bool
}

// Try reports what is tried; as a line only what is tried again.
func (p labProgress) Try(e experiments.Experiment, part experiments.Part, try int) {
	words := e.Name + ", " + part.Name
	switch {
	case p.terminal && try > 1:
		p.Update(fmt.Sprintf("%s (%d)", words, try))
	case p.terminal:
		p.Update(words)
	case try > 1:
		p.Say(fmt.Sprintf("%s: try %d", words, try))
	}
}

// Attempt and Part are for those who draw what happens.
func (labProgress) Attempt(experiments.Attempt) (over func()) { return func() {} }

func (labProgress) Part(string, experiments.PartResult) {}

// Done reports the verdict over an experiment.
func (p labProgress) Done(r experiments.Result) {
	p.Finish(fmt.Sprintf("%2d %s: %s", r.Number, r.Name, r.Verdict))
}
