package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
)

// tellsStory reports whether the flags ask for the short demo: those that choose what is
// run ask for the tables.
func tellsStory(cmd *cobra.Command) bool {
	return !slices.ContainsFunc([]string{"all", "strategies", "replicas", "group", "repeat", "url", "stock", "clients", "loops", "lock-share"}, cmd.Flags().Changed)
}

// story prints each run as soon as it is measured.
type story struct {
	demo.Progress

	out io.Writer
}

const storyRow = "%-24s %8s %6s %6s %8s %6s  %s\n"

func (s story) Begin(runs int) {
	s.Progress.Begin(runs)
	fmt.Fprintf(s.out, storyRow, "strategy", "replicas", "stock", "sold", "oversold", "lost", "verdict") //nolint:errcheck // the report is the result
}

func (s story) Done(r verdict.Run) {
	words := r.Words()
	if r.Verdict != verdict.Expected { // there are no notes below the rows
		words = r.Remark()
	}
	//nolint:errcheck // the report is the result
	fmt.Fprintf(s.out, storyRow, r.Name(), fmt.Sprint(r.Replicas), fmt.Sprint(r.Stock), fmt.Sprint(r.Sold), fmt.Sprint(r.Oversold), fmt.Sprint(r.Lost), words)
}

// tell runs the short demo.
func tell(cmd *cobra.Command, plan demo.Plan, write string) error {
	plan.Story, plan.Replicas = demo.Story(), []int{1, 3}
	plan.Servers.ZooKeeper, plan.Servers.Etcd = cmp.Or(plan.Servers.ZooKeeper, servers.None), cmp.Or(plan.Servers.Etcd, servers.None)
	out := cmd.OutOrStdout()
	plan.Progress = story{plan.Progress, out}
	r, err := demo.Run(cmd.Context(), plan)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(out, summary(r.Runs)); err != nil {
		return err
	}
	if write != "" {
		err = verdict.WriteJSON(write, r)
	}
	if !r.AsExpected() {
		err = errors.Join(err, errors.New("not every run came out as expected"))
	}
	return err
}

// summary says in three sentences what the runs have shown, and what to run next.
func summary(runs []verdict.Run) string {
	var wrong, right []string
	best := verdict.Run{}
	for _, r := range runs {
		name := fmt.Sprintf("%s on %d", r.Name(), r.Replicas)
		switch {
		case r.Verdict == verdict.NotRun:
		case !r.Clean:
			wrong = append(wrong, name)
		case r.Verdict != verdict.Expected: // its row says why: it proves neither
		default:
			if right = append(right, name); r.PerSecond > best.PerSecond {
				best = r
			}
		}
	}
	fastest := ""
	if len(right) > 0 {
		fastest = fmt.Sprintf("The fastest of those here was %s, with %.0f requests a second.\n", best.Name(), best.PerSecond)
	}
	return fmt.Sprintf("\nA read and a write that another purchase can come between lose updates and oversell: %s.\n"+
		"A lock shared by all running replicas, a condition in SQL and stock in Redis sell exactly what there is: %s.\n"+
		"%s\nnext: stocklab demo --all (every strategy), stocklab lab list (how locks fail), stockd serve (sell)\n",
		cmp.Or(strings.Join(wrong, "; "), "none here"), cmp.Or(strings.Join(right, "; "), "none here"), fastest)
}
