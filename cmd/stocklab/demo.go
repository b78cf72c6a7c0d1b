package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/service/strategy"
)

// demoOptions are the flags of the demo.
type demoOptions struct {
	plan        demo.Plan
	url         string
	admin       cli.Admin
	from, write string
	markdown    bool
}

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Sell an item out through strategies that oversell and through those that do not",
		Long: "Start what is needed, sell an item out in eight runs on one replica and on three, and compare each\n" +
			"with the guarantees of its strategy. --all, or a flag that chooses the runs, shows every strategy.\n" +
			"The exit status is 0 only where every run came out as expected. Nothing is left behind.\n\n" +
			"With --url nothing is started: the sales go to the replicas that run there, however many they are,\n" +
			"and the items that were sold stay in their database.",
		Example: "  stocklab demo                                    # eight runs, in half a minute\n" +
			"  stocklab demo --strategies naive,mutex,sql-conditional --replicas 1,3",
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.addFlags(cmd.Flags())
	return cmd
}

func (o *demoOptions) addFlags(flags *pflag.FlagSet) {
	flags.Bool("all", false, "show every strategy on one replica and on three, which takes minutes; any other flag of a run does the same")
	flags.StringSliceVar(&o.plan.Strategies, "strategies", nil, "strategies to show, comma separated (default all)")
	flags.Int64Var(&o.plan.Stock, "stock", 1000, "units to sell in each run")
	flags.IntVar(&o.plan.Clients, "clients", 50, "clients that buy at the same time")
	flags.IntVar(&o.plan.Loops, "loops", 100, "purchases that each client tries, one unit each")
	flags.IntVar(&o.plan.LockShare, "lock-share", 10, "a strategy whose lock is on a server gets 1 in so many of the units and the purchases")
	flags.IntSliceVar(&o.plan.Replicas, "replicas", []int{1, 3}, "sizes of the cluster, comma separated")
	flags.BoolVar(&o.plan.Group, "group", false, "have each replica make one batch of the purchases that wait")
	flags.IntVar(&o.plan.Repeat, "repeat", 1, "how often to make each run")
	flags.StringVar(&o.from, "servers", "auto", "auto, embedded or local, with exceptions after commas: "+servers.Exceptions)
	flags.StringVar(&o.url, "url", "", "stockd, or a balancer before several, that runs already")
	o.admin.AddFlags(flags, "")
	flags.StringVar(&o.write, "json", "", "file to write the figures to")
	flags.BoolVar(&o.markdown, "markdown", false, "print a page in Markdown instead of the table")
}

func (o *demoOptions) run(cmd *cobra.Command) error {
	choice, err := servers.ParseChoice(o.from)
	if err != nil {
		return cli.UsageError{Err: fmt.Errorf("--servers: %w", err)}
	}
	o.plan.Servers, o.plan.LockRun = choice, demo.LockRun
	if err := checkPlan(o.plan); err != nil {
		return cli.UsageError{Err: err}
	}
	if err := strategy.CheckNames(o.plan.Strategies...); err != nil && o.url == "" { // others may have more
		return cli.UsageError{Err: fmt.Errorf("--strategies: %w", err)}
	}
	if o.plan.External, err = externalOf(cmd, o.url, o.admin, "servers", "replicas"); err != nil {
		return cli.UsageError{Err: err}
	}
	short := tellsStory(cmd)
	if short && o.markdown {
		return cli.UsageError{Err: errors.New("--markdown needs --all, or a flag that chooses the runs")}
	}
	o.plan.Progress = cli.NewProgress(cmd.ErrOrStderr(), 0)
	if short {
		return tell(cmd, o.plan, o.write)
	}
	r, err := demo.Run(cmd.Context(), o.plan)
	if o.markdown {
		return errors.Join(err, demo.Page(cmd.OutOrStdout(), r), cli.Show(r, io.Discard, o.write))
	}
	return errors.Join(err, cli.Show(r, cmd.OutOrStdout(), o.write))
}

// externalOf is the replicas that run already, where there is a URL. Flags of what would be
// started are rejected beside it.
func externalOf(cmd *cobra.Command, url string, admin cli.Admin, starting ...string) (external shop.Client, err error) {
	flags := cmd.Flags()
	if url == "" {
		if slices.ContainsFunc([]string{"admin-url", "token-file", "ca-file"}, flags.Changed) {
			err = errors.New("--admin-url, --token-file and --ca-file need --url, the replicas to sell on")
		}
		return external, err
	}
	if slices.ContainsFunc(starting, flags.Changed) {
		return external, fmt.Errorf("--%s would start others than those of --url", strings.Join(starting, " and --"))
	}
	if admin.URL == "" {
		return external, errors.New("--url needs --admin-url: each sale creates an item")
	}
	c, err := admin.Client()
	return shop.Client{URL: strings.TrimSuffix(url, "/"), AdminURL: c.AdminURL, Token: c.Token, HTTP: c.HTTP}, err
}

func checkPlan(p demo.Plan) error {
	for _, c := range []struct {
		flag        string
		value, most int64
	}{
		{"stock", p.Stock, 1_000_000_000},
		{"clients", int64(p.Clients), 2000},
		{"loops", int64(p.Loops), 1_000_000},
		{"repeat", int64(p.Repeat), 1000},
		{"lock-share", int64(p.LockShare), 1000},
		{"replicas", int64(slices.Min(append([]int{1}, p.Replicas...))), 16},
		{"replicas", int64(slices.Max(append([]int{1}, p.Replicas...))), 16},
	} {
		if c.value < 1 || c.value > c.most {
			return fmt.Errorf("--%s must be 1 to %d, not %d", c.flag, c.most, c.value)
		}
	}
	if len(p.Replicas) == 0 {
		return errors.New("--replicas must name at least one size")
	}
	return nil
}

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

const storyRow = "%-24s %8s %6s %6s %6s %6s %8s  %s\n"

func (s story) Begin(runs int) {
	s.Progress.Begin(runs)
	fmt.Fprintf(s.out, storyRow, "strategy", "replicas", "stock", "sold", "left", "busy", "sales/s", "verdict") //nolint:errcheck // the report is the result
}

func (s story) Done(r verdict.Run) {
	words := r.Words()
	if r.Verdict != verdict.Expected { // there are no notes below the rows
		words = r.Remark()
	}
	//nolint:errcheck // the report is the result
	fmt.Fprintf(s.out, storyRow, r.Name(), fmt.Sprint(r.Replicas), fmt.Sprint(r.Stock), fmt.Sprint(r.Sold), fmt.Sprint(r.Left),
		fmt.Sprint(r.ErrorTypes["busy"]), fmt.Sprintf("%.0f", r.SalesPerSecond), words)
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
	err = verdict.WriteJSON(write, r)
	if !r.AsExpected() {
		err = errors.Join(err, errors.New("not every run came out as expected"))
	}
	return err
}

// conclusion is what the rows of a story show. A run that was not made, or came out well without a guarantee, or is
// contradicted by its ledger, shows nothing: its row says why.
type conclusion struct {
	oversold, exact, unsold []verdict.Run
	fastest                 verdict.Run // of those that are exact
}

func conclude(runs []verdict.Run) (c conclusion) {
	for _, r := range runs {
		switch {
		case r.Verdict == verdict.NotRun:
		case !r.Clean:
			c.oversold = append(c.oversold, r)
		case r.Verdict != verdict.Expected:
		case r.Sold != r.Stock:
			c.unsold = append(c.unsold, r)
		default:
			c.exact = append(c.exact, r)
			if r.SalesPerSecond > c.fastest.SalesPerSecond {
				c.fastest = r
			}
		}
	}
	return c
}

// summary says what the runs have shown, and what to run next.
func summary(runs []verdict.Run) string {
	c := conclude(runs)
	on := func(r verdict.Run) string { return fmt.Sprintf("%s on %d", r.Name(), r.Replicas) }
	var lines strings.Builder
	say := func(words string, list []verdict.Run, of func(verdict.Run) string) {
		names := make([]string, len(list))
		for i, r := range list {
			names[i] = of(r)
		}
		if len(names) > 0 {
			fmt.Fprintf(&lines, "%s: %s.\n", words, strings.Join(names, "; "))
		}
	}
	say("If another purchase slips between the read and the write, both sell the same unit, and one update is lost", c.oversold, on)
	say("These sold exactly what there was", c.exact, on)
	say("These sold no unit twice, but had not sold all of them when their time was over", c.unsold, func(r verdict.Run) string {
		return fmt.Sprintf("%s (%d of %d, %d busy)", on(r), r.Sold, r.Stock, r.ErrorTypes["busy"])
	})
	if len(c.exact) > 0 {
		fmt.Fprintf(&lines, "The fastest of those that sold all was %s, with %.0f sales a second.\n", on(c.fastest), c.fastest.SalesPerSecond)
	}
	return "\n" + lines.String() + "\nnext: stocklab demo --all (every strategy), stocklab lab list (how locks fail), stockd serve (sell)\n"
}
