package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/lab/hostile"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load/verdict"
)

// errNotHeld makes the exit status tell what the table says.
var errNotHeld = errors.New("not every bound held against the attacker")

func labHostileCommand() *cobra.Command {
	var (
		plan   hostile.Plan
		from   string
		write  string
		choose bool
	)
	cmd := &cobra.Command{
		Use:   "hostile",
		Short: "Attack three replicas while honest buyers sell an item out, and judge what came of it",
		Long: "Attack three replicas behind a balancer, under a configuration for a shop, while honest buyers sell\n" +
			"an item out. The buyers are alone for a while first: that is the baseline. Then the ledger, the memory\n" +
			"of the replicas, what the servers keep, the log and the latency of the buyers are held against bounds.\n" +
			"The exit status is 0 only where every bound held.",
		Example: "  stocklab lab hostile\n" +
			"  stocklab lab hostile --choose --json hostile.json",
	}
	flags := cmd.Flags()
	addPlanFlags(flags, &plan)
	flags.StringVar(&from, "servers", "local", "auto, embedded or local, with exceptions after commas: "+servers.Exceptions)
	flags.BoolVar(&choose, "choose", false, "let every request name a strategy, which a shop does not")
	flags.StringVar(&write, "json", "", "file to write the report to")
	cmd.RunE = func(cmd *cobra.Command, _ []string) (err error) {
		plan.Timed, plan.Progress = true, func(words string) { cmd.PrintErrln(words) }
		if plan.Servers, err = servers.ParseChoice(from); err != nil {
			return cli.UsageError{Err: fmt.Errorf("--servers: %w", err)}
		}
		if plan.Config, err = existing(plan.Config); err != nil {
			return cli.UsageError{Err: fmt.Errorf("--config: %w", err)}
		}
		if err := plan.Check(); err != nil {
			return cli.UsageError{Err: err}
		}
		if choose {
			plan.Env = append(plan.Env, "STOCKD_DEDUCT_CHOOSE=true")
		}
		r, err := hostile.Run(cmd.Context(), plan)
		if err != nil {
			return err
		}
		return showJudged(cmd.OutOrStdout(), r, write)
	}
	return cmd
}

// addPlanFlags adds the flags of what is run.
func addPlanFlags(flags *pflag.FlagSet, plan *hostile.Plan) {
	flags.StringVar(&plan.Config, "config", "configs/production.yaml", "file of the configuration that the replicas run under")
	flags.Uint64Var(&plan.Seed, "seed", rand.Uint64N(1_000_000), "makes the same requests again")
	flags.DurationVar(&plan.Baseline, "baseline", 10*time.Second, "how long honest buyers are alone")
	flags.DurationVar(&plan.Duration, "duration", time.Minute, "how long the attack lasts")
	flags.IntVar(&plan.Connections, "connections", 200, "connections of the attacker")
	flags.IntVar(&plan.Addresses, "addresses", 20, "addresses that the attacker has")
	flags.Float64Var(&plan.Rate, "rate", 400, "requests a second of the attacker")
	flags.Float64Var(&plan.HonestRate, "honest-rate", 50, "purchases a second of honest buyers")
	flags.Int64Var(&plan.Memory, "memory", 256<<20, "most bytes that a replica may have in memory")
	flags.BoolVar(&plan.Room, "room", false, "have honest buyers wait in the room of the item until they are admitted; needs Redis")
	flags.BoolVar(&plan.Tokens, "tokens", true, "have buyers prove who they are by signed tokens; false: each says it")
}

// showJudged shows a report, and fails where a bound does not hold.
func showJudged(out io.Writer, r *hostile.Report, write string) error {
	if err := r.Table(out); err != nil {
		return err
	}
	if err := verdict.WriteJSON(write, r); err != nil {
		return err
	}
	if len(r.Failed()) > 0 {
		return errNotHeld
	}
	return nil
}

// existing is the absolute path of a file that is there.
func existing(path string) (string, error) {
	if _, err := os.Stat(path); err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
