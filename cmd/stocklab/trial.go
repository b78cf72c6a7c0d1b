package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/lab/trial"
	"github.com/stockd/stockd/internal/load/verdict"
)

func trialCommand() *cobra.Command {
	var (
		only, questions []string
		write           string
		markdown        bool
	)
	cmd := &cobra.Command{
		Use:   "trial",
		Short: "Ask lock libraries what they do when the holder pauses, a reply is lost, or a server fails",
		Long: "Ask lock libraries what they do when the holder dies or pauses, a reply is lost, or a server fails:\n" +
			"the same steps for each, on real servers, judged by what was recorded. A library is judged by what\n" +
			"its documents promise: ✓ it held, ✗ it is promised and did not hold; what is not promised is no fault.\n" +
			"All of it takes fifteen minutes. Where a question has no answer, the command fails.",
		Example: "  stocklab trial\n" +
			"  stocklab trial --only redsync --question learns,late-release\n" +
			"  stocklab trial --json trial.json --markdown > trial.md",
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&only, "only", nil, "libraries by a part of their names, separated by commas; empty: all")
	flags.StringSliceVar(&questions, "question", nil, "questions by a part of their names, separated by commas; empty: all")
	flags.StringVar(&write, "json", "", "file to write the answers to, with what was recorded")
	flags.BoolVar(&markdown, "markdown", false, "print a page in Markdown instead of the table")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := trialPlan(only, questions)
		if err != nil {
			return cli.UsageError{Err: err}
		}
		p.Progress = func(done, all int, c trial.Cell) {
			cmd.PrintErrf("%3d of %d  %-26s %-14s %s %s\n", done, all, c.Library, c.Question, c.Mark, c.Says)
		}
		r, err := trial.Run(cmd.Context(), p)
		if err != nil {
			return err
		}
		show := r.Table
		if markdown {
			show = r.Markdown
		}
		return errors.Join(verdict.WriteJSON(write, r), show(cmd.OutOrStdout()), r.Unanswered())
	}
	cmd.AddCommand(trialHoldCommand(), trialJudgeCommand())
	return cmd
}

func trialPlan(only, questions []string) (p trial.Plan, err error) {
	if p.Libraries, err = trial.Choose(trial.Libraries(), func(l trial.Library) string { return l.Name }, only); err != nil {
		return p, fmt.Errorf("--only: %w", err)
	}
	if p.Questions, err = trial.Choose(trial.Questions(), func(q trial.Question) string { return q.Name }, questions); err != nil {
		return p, fmt.Errorf("--question: %w", err)
	}
	return p, nil
}

// trialHoldCommand is a holder in a process of its own.
func trialHoldCommand() *cobra.Command {
	return &cobra.Command{
		Use: "hold HOLDER", Short: "Hold a lock until killed", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return trial.Hold(cmd.Context(), args[0]) },
	}
}

func trialJudgeCommand() *cobra.Command {
	var replay, sources string
	cmd := &cobra.Command{
		Use:   "judge FILE",
		Short: "Judge again what --json has recorded, and print it as Markdown",
		Example: "  stocklab trial judge trial.json > trial.md\n" +
			"  stocklab trial judge trial.json | grep ✗\n" +
			"  stocklab trial judge trial.json --replay trial.html",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var r trial.Report
			content, err := os.ReadFile(args[0])
			if err == nil {
				err = json.Unmarshal(content, &r) //nolint:musttag // histories are as they are
			}
			if err != nil {
				return fmt.Errorf("read a trial: %w", err)
			}
			r.Judge()
			switch {
			case replay != "":
				err = report.WriteTrial(replay, &r)
			case sources != "":
				err = r.Publish(sources)
			default:
				err = r.Markdown(cmd.OutOrStdout())
			}
			return errors.Join(err, r.Unanswered())
		},
	}
	cmd.Flags().StringVar(&replay, "replay", "", "file to write instead: a page that plays what was recorded")
	cmd.Flags().StringVar(&sources, "publish", "", "the sources of stockd, whose documents and page are to show it")
	cmd.MarkFlagsMutuallyExclusive("replay", "publish")
	return cmd
}
