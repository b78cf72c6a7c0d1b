package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/servers"
)

func demoCommand() *cobra.Command {
	var (
		plan        demo.Plan
		url         string
		admin       cli.Admin
		from, write string
		markdown    bool
	)
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Sell an item out through strategies that oversell and through those that do not",
		Long: "Start what is needed, sell an item out in eight runs on one replica and on three, and compare each\n" +
			"with the guarantees of its strategy. --all, or a flag that chooses the runs, shows every strategy.\n" +
			"The exit status is 0 only where every run came out as expected. Nothing is left behind.\n\n" +
			"With --url nothing is started: the sales go to the replicas that run there, however many they are,\n" +
			"and the items that were sold stay in their database.",
		Args: cli.NoArgs,
	}
	flags := cmd.Flags()
	flags.Bool("all", false, "show every strategy on one replica and on three, which takes minutes; any other flag of a run does the same")
	flags.StringSliceVar(&plan.Strategies, "strategies", nil, "strategies to show, comma separated (default all)")
	flags.Int64Var(&plan.Stock, "stock", 1000, "units to sell in each run")
	flags.IntVar(&plan.Clients, "clients", 50, "clients that buy at the same time")
	flags.IntVar(&plan.Loops, "loops", 100, "purchases that each client tries, one unit each")
	flags.IntVar(&plan.LockShare, "lock-share", 10, "a strategy whose lock is on a server gets 1 in so many of the units and the purchases")
	flags.IntSliceVar(&plan.Replicas, "replicas", []int{1, 3}, "sizes of the cluster, comma separated")
	flags.BoolVar(&plan.Group, "group", false, "have each replica make one batch of the purchases that wait")
	flags.IntVar(&plan.Repeat, "repeat", 1, "how often to make each run")
	flags.StringVar(&from, "servers", "auto", "auto, embedded or local, with exceptions after commas: "+servers.Exceptions)
	flags.StringVar(&url, "url", "", "stockd, or a balancer before several, that runs already")
	admin.AddFlags(flags, "")
	flags.StringVar(&write, "json", "", "file to write the figures to")
	flags.BoolVar(&markdown, "markdown", false, "print a page in Markdown instead of the table")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		choice, err := servers.ParseChoice(from)
		if err != nil {
			return cli.UsageError{Err: fmt.Errorf("--servers: %w", err)}
		}
		plan.Servers, plan.LockRun = choice, demo.LockRun
		if err := checkPlan(plan); err != nil {
			return cli.UsageError{Err: err}
		}
		if err := useExternal(cmd, url, admin, &plan); err != nil {
			return cli.UsageError{Err: err}
		}
		if plan.Binary, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program: %w", err)
		}
		if markdown && tellsStory(cmd) {
			return cli.UsageError{Err: errors.New("--markdown needs --all, or a flag that chooses the runs")}
		}
		plan.Progress = cli.NewProgress(cmd.ErrOrStderr(), 0)
		if tellsStory(cmd) {
			return tell(cmd, plan, write)
		}
		r, err := demo.Run(cmd.Context(), plan)
		if markdown {
			return errors.Join(err, demo.Page(cmd.OutOrStdout(), r), cli.Show(r, io.Discard, write))
		}
		return errors.Join(err, cli.Show(r, cmd.OutOrStdout(), write))
	}
	return cmd
}

// useExternal has the demo sell on replicas that run already, where there is a URL. Flags
// of what the demo would start are rejected beside it.
func useExternal(cmd *cobra.Command, url string, admin cli.Admin, plan *demo.Plan) error {
	flags := cmd.Flags()
	if url == "" {
		if flags.Changed("admin-url") || flags.Changed("token-file") {
			return errors.New("--admin-url and --token-file need --url, the replicas to sell on")
		}
		return nil
	}
	if flags.Changed("servers") || flags.Changed("replicas") {
		return errors.New("--servers and --replicas would start others than those of --url")
	}
	if admin.URL == "" {
		return errors.New("--url needs --admin-url: each sale creates an item")
	}
	c, err := admin.Client()
	plan.External = client.Client{URL: strings.TrimSuffix(url, "/"), AdminURL: c.AdminURL, Token: c.Token, HTTP: c.HTTP}
	return err
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
