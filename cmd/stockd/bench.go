package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/internal/lab/client"
	"github.com/stockd/stockd/internal/lab/demo"
	"github.com/stockd/stockd/internal/lab/load"
	"github.com/stockd/stockd/internal/lab/report"
)

func benchCommand() *cobra.Command {
	var (
		plan  load.Plan
		write string
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Put load on a stockd that runs, and audit what came of it",
		Long: "Put load on a stockd that runs, or on a balancer before several, and audit what came of it.\n\n" +
			"Without --rate each client sends its next request when the last one is answered: that finds the\n" +
			"ceiling. With --rate every request has a time at which it should be sent, and its latency counts\n" +
			"from then: that is what buyers feel. Goods are sold for good.",
		Args: noArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&plan.URL, "url", "http://127.0.0.1:8080", "stockd, or a balancer before several")
	flags.Int64Var(&plan.GoodsID, "goods", 1, "goods to sell")
	flags.StringVar(&plan.Strategy, "strategy", "sql-conditional", "strategy to sell through")
	flags.BoolVar(&plan.Group, "group", false, "have each replica make one batch of the purchases that wait")
	flags.IntVar(&plan.Clients, "clients", 50, "clients that buy at the same time")
	flags.IntVar(&plan.Requests, "requests", 0, "end after so many requests")
	flags.DurationVar(&plan.Duration, "duration", 0, "end after so long (default 10s where --requests is not given)")
	flags.Float64Var(&plan.Rate, "rate", 0, "requests a second (default: as fast as they are answered)")
	flags.DurationVar(&plan.Timeout, "timeout", 30*time.Second, "longest time for one request")
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
		progress := newProgress(cmd.ErrOrStderr())
		run, err := measure(cmd.Context(), plan, progress)
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

// measure runs the plan and holds what came of it against the strategy's claim.
func measure(ctx context.Context, plan load.Plan, progress demo.Progress) (run report.Run, err error) {
	c := client.Client{URL: plan.URL}
	strategies, err := c.Strategies(ctx)
	if err != nil {
		return run, err
	}
	strategy, err := demo.Pick(strategies, plan.Strategy)
	if err != nil {
		return run, usageError{err}
	}
	before, err := c.Audit(ctx, plan.GoodsID)
	if err != nil {
		return run, err
	}
	run = report.Run{Strategy: plan.Strategy, Group: plan.Group, Clients: plan.Clients, Tries: 1, Note: strategy.Note}
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
	run.ExpectedClean = demo.Claims(strategy, plan.Group).Exclusive(run.Replicas)
	run.Add(result, after.Since(before))
	run.LedgerAfter = time.Since(ended).Seconds()
	run.Judge()
	progress.Done(run)
	return run, nil
}
