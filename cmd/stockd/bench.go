package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/load"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/service"
)

func benchCommand() *cobra.Command {
	var (
		plan    load.Plan
		write   string
		restock bool
		admin   yours
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Put load on a stockd that runs, and audit what came of it",
		Long: "Put load on a stockd that runs, or on a balancer before several, and audit what came of it.\n\n" +
			"Without --rate each client sends its next request when the last one is answered: that finds the\n" +
			"ceiling. With --rate every request has a time at which it should be sent, and its latency counts\n" +
			"from then: that is what buyers feel. Goods are sold for good. Where an item has a limit of one buyer,\n" +
			"the units are bought for as many users as that takes.\n\n" +
			"The rate and the latencies are of sales alone. When the stock is gone the run ends, and says so;\n" +
			"with --restock it adds units and goes on. Where the public API tells neither stock nor audit\n" +
			"(http.reveal), --token-file has the admin API asked.",
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&plan.URL, "url", "http://127.0.0.1:8080", "stockd, or a balancer before several")
	flags.Int64Var(&plan.GoodsID, "goods", 1, "goods to sell")
	flags.StringVar(&plan.Strategy, "strategy", "", "strategy to sell through (default: none is named, and the item's own sells)")
	flags.BoolVar(&plan.Group, "group", false, "have each replica make one batch of the purchases that wait")
	flags.IntVar(&plan.Clients, "clients", 50, "clients that buy at the same time")
	flags.IntVar(&plan.Requests, "requests", 0, "end after so many requests")
	flags.DurationVar(&plan.Duration, "duration", 0, "end after so long (default 10s where --requests is not given)")
	flags.Float64Var(&plan.Rate, "rate", 0, "requests a second (default: as fast as they are answered)")
	flags.DurationVar(&plan.Timeout, "timeout", 30*time.Second, "longest time for one request")
	flags.BoolVar(&restock, "restock", false, fmt.Sprintf("add %d units when the stock is gone; needs --token-file", unitsPerRestock))
	admin.addOwner(flags, "http://127.0.0.1:8081")
	flags.StringVar(&write, "json", "", "file to write the figures to")
	suite := addSuiteFlags(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case suite.redo != "":
			return suite.redraw()
		case suite.on, suite.ledger != 0:
			return suite.run(cmd)
		}
		if plan.Requests == 0 && plan.Duration == 0 {
			plan.Duration = 10 * time.Second
		}
		if err := checkLoad(plan); err != nil {
			return usageError{err}
		}
		c, err := benched(plan.URL, admin, restock)
		if err != nil {
			return usageError{err}
		}
		progress := newProgress(cmd.ErrOrStderr())
		run, err := measure(cmd.Context(), c, plan, restock, progress)
		progress.End()
		if err != nil {
			return err
		}
		return show(&report.Report{Runs: []report.Run{run}}, cmd.OutOrStdout(), write)
	}
	return cmd
}

func checkLoad(p load.Plan) error {
	switch {
	case p.Clients < 1 || p.Clients > 10_000:
		return fmt.Errorf("--clients must be 1 to 10000, not %d", p.Clients)
	case p.Requests < 0:
		return fmt.Errorf("--requests must not be negative, but is %d", p.Requests)
	case p.Duration < 0:
		return fmt.Errorf("--duration must not be negative, but is %s", p.Duration)
	case p.Rate < 0:
		return fmt.Errorf("--rate must not be negative, but is %g", p.Rate)
	case p.GoodsID < 1:
		return fmt.Errorf("--goods must be at least 1, not %d", p.GoodsID)
	case p.Timeout <= 0:
		return fmt.Errorf("--timeout must be above 0, not %s", p.Timeout)
	}
	return nil
}

// benched reads through the public API, or through the admin API where there is a token.
func benched(url string, admin yours, restock bool) (client.Client, error) {
	if admin.tokenFile == "" && !restock {
		return client.Client{URL: url}, nil
	}
	c, err := admin.client()
	c.URL = c.AdminURL
	return c, err
}

// measure runs the plan and compares what came of it with the strategy's guarantees.
func measure(ctx context.Context, c client.Client, plan load.Plan, restock bool, progress demo.Progress) (run report.Run, err error) {
	strategies, err := c.Strategies(ctx)
	if err != nil {
		return run, err
	}
	if _, err := picked(strategies, plan.Strategy); err != nil {
		return run, usageError{err}
	}
	before, err := c.Audit(ctx, plan.GoodsID)
	if err != nil {
		return run, err
	}
	item, err := c.Goods(ctx, plan.GoodsID)
	if err != nil {
		return run, err
	}
	supply := &supply{client: c, goodsID: plan.GoodsID, restock: restock}
	plan.User, plan.SoldOut = buyers(item.PerUser), supply.soldOut
	run = report.Run{
		Strategy: cmp.Or(plan.Strategy, item.Strategy, "the default"), Group: plan.Group || isTrue(item.Group),
		Fence: isTrue(item.Choice.Fence), Clients: plan.Clients, Tries: 1, SalesOnly: true,
	}
	progress.Begin(1)
	progress.Run(run.Name(), plan.Requests)
	plan.Progress = progress.Answered
	result, err := load.Run(ctx, plan)
	if err != nil {
		return run, err
	}
	// Interrupted or not: what has been sold is audited.
	ended := time.Now()
	after, err := c.Audit(context.WithoutCancel(ctx), plan.GoodsID)
	if err != nil {
		return run, errors.Join(err, ctx.Err())
	}
	run.Replicas = len(result.Replicas)
	sold, err := picked(strategies, result.Strategies...)
	if err != nil {
		return run, err
	}
	run.ExpectedClean = true
	var notes []string
	for _, s := range sold {
		run.ExpectedClean = run.ExpectedClean && demo.Claims(s, run.Group).Exclusive(run.Replicas)
		notes = append(notes, s.Note)
	}
	run.Strategy = cmp.Or(strings.Join(result.Strategies, " and "), run.Strategy)
	run.Restocked, run.Note = supply.restocked, supply.note(notes, result.Elapsed)
	run.Add(result, after.Since(before))
	run.LedgerAfter = time.Since(ended).Seconds()
	run.Judge()
	progress.Done(run)
	return run, nil
}

// picked finds strategies by their names; an empty name is none.
func picked(known []service.Description, names ...string) (list []service.Description, err error) {
	for _, name := range names {
		if name == "" {
			continue
		}
		s, err := demo.Pick(known, name)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func isTrue(flag *bool) bool { return flag != nil && *flag }
