package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/stockd/stockd/cmd/internal/cli"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/nearest"
	"github.com/stockd/stockd/internal/reload"
	"github.com/stockd/stockd/internal/stock"
	"github.com/stockd/stockd/pkg/client"
)

func benchCommand() *cobra.Command {
	var (
		plan    load.Plan
		write   string
		restock bool
		buyer   string
		admin   cli.Admin
	)
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Put load on a running stockd, and audit the result",
		Long: "Put load on a running stockd, or on a balancer before several, and audit the result.\n\n" +
			"Without --rate each client sends its next request when the last one is answered: that finds the\n" +
			"ceiling. With --rate every request has a time at which it should be sent, and its latency counts\n" +
			"from then: that is what buyers notice. What is sold stays sold. Where an item has a limit of one\n" +
			"buyer, the units are bought for as many users as that takes.\n\n" +
			"The rate and the latencies are of sales alone. When the stock is gone the run ends, and says so;\n" +
			"with --restock it adds units and goes on. Where the public API reveals neither stock nor audit\n" +
			"(http.reveal), --token-file reads them from the admin API.",
		Example: "  stockd bench --strategy sql-conditional --group --clients 64 --duration 30s\n" +
			"  stockd bench --url http://127.0.0.1:8080 --rate 2000 --restock --token-file admin.token --json run.json",
	}
	flags := cmd.Flags()
	flags.StringVar(&plan.URL, "url", configured("STOCKD_HTTP_LISTEN", "127.0.0.1:8080"), "stockd, or a balancer before several")
	flags.Int64Var(&plan.GoodsID, "goods", 1, "item to sell")
	flags.StringVar(&plan.Strategy, "strategy", "", "strategy to sell through (default: that of the item)")
	flags.BoolVar(&plan.Group, "group", false, "commit all waiting purchases in one transaction")
	flags.IntVar(&plan.Clients, "clients", 50, "clients that buy at the same time")
	flags.IntVar(&plan.Requests, "requests", 0, "end after so many requests")
	flags.DurationVar(&plan.Duration, "duration", 0, "end after so long (default 10s where --requests is not given)")
	flags.Float64Var(&plan.Rate, "rate", 0, "requests a second (default: as fast as they are answered)")
	flags.DurationVar(&plan.Timeout, "timeout", 30*time.Second, "longest time for one request")
	flags.BoolVar(&restock, "restock", false, fmt.Sprintf("add %d units when the stock is gone; needs --token-file", unitsPerRestock))
	admin.AddFlags(flags, configured("STOCKD_ADMIN_LISTEN", "127.0.0.1:8081"))
	flags.StringVar(&buyer, "buyer-token-file", "", "file with a token of the buyer, where buyers have signed ones (buyer.from=token)")
	flags.StringVar(&write, "json", "", "file to write the figures to")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if plan.Requests == 0 && plan.Duration == 0 {
			plan.Duration = 10 * time.Second
		}
		if err := checkLoad(plan); err != nil {
			return cli.UsageError{Err: err}
		}
		c := client.Client{URL: strings.TrimSuffix(plan.URL, "/"), HTTP: &http.Client{Timeout: cli.LongestCall}}
		var err error
		if plan.BuyerToken, err = readBuyerToken(buyer); err == nil && (admin.TokenFile != "" || restock) {
			c, err = admin.Client()
		}
		if err != nil {
			return cli.UsageError{Err: err}
		}
		progress := cli.NewProgress(cmd.ErrOrStderr(), 0)
		run, err := measure(cmd.Context(), c, plan, restock, progress)
		progress.End()
		if err != nil {
			return err
		}
		return cli.Show(&verdict.Report{Runs: []verdict.Run{run}}, cmd.OutOrStdout(), write)
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
	case p.Rate < 0 || math.IsNaN(p.Rate) || math.IsInf(p.Rate, 0):
		return fmt.Errorf("--rate must be a number of at least 0, not %g", p.Rate)
	case p.GoodsID < 1:
		return fmt.Errorf("--goods must be at least 1, not %d", p.GoodsID)
	case p.Timeout <= 0:
		return fmt.Errorf("--timeout must be above 0, not %s", p.Timeout)
	}
	return nil
}

// readBuyerToken reads the file of --buyer-token-file, if there is one, for every request.
func readBuyerToken(file string) (func() string, error) {
	if file == "" {
		return nil, nil
	}
	content, err := reload.ReadText(file)
	if err != nil {
		return nil, fmt.Errorf("--buyer-token-file: %w", err)
	}
	token := strings.TrimSpace(string(content))
	return func() string { return token }, nil
}

// runLoad runs the plan. It is an error where every request failed, with what most of them got.
func runLoad(ctx context.Context, plan load.Plan) (*load.Result, error) {
	r, err := load.Run(ctx, plan)
	if err != nil || r.Sent == 0 || r.Sold+r.Rejected+r.Unknown > 0 {
		return r, err
	}
	most := ""
	for problem, n := range r.Errors {
		if n > r.Errors[most] || n == r.Errors[most] && problem < most {
			most = problem
		}
	}
	return nil, fmt.Errorf("none of %d requests was sold: %d × %s", r.Sent, r.Errors[most], most)
}

// measure runs the plan and compares the result with the guarantees of what sold.
func measure(ctx context.Context, c client.Client, plan load.Plan, restock bool, progress cli.Progress) (run verdict.Run, err error) {
	strategies, err := c.Strategies(ctx)
	if err != nil {
		return run, err
	}
	if err := sells(strategies, plan.Strategy); err != nil {
		return run, err
	}
	before, err := settledAudit(ctx, c, plan.GoodsID)
	if err != nil {
		return run, err
	}
	item, err := c.Goods(ctx, plan.GoodsID)
	if err != nil {
		return run, err
	}
	supply := &supply{client: c, goodsID: plan.GoodsID, restock: restock}
	plan.User, plan.SoldOut = buyers(plan, item.PerUser), supply.soldOut
	run = verdict.Run{
		Strategy: cmp.Or(plan.Strategy, item.Strategy, "the default"), Group: plan.Group || isTrue(item.Group),
		Fence: isTrue(item.Fenced), Clients: plan.Clients, Tries: 1, SalesOnly: true,
	}
	progress.Begin(1)
	progress.Run(run.Name(), plan.Requests)
	plan.Progress = progress.Answered
	result, err := runLoad(ctx, plan)
	if err != nil {
		return run, err
	}
	// Interrupted or not: what has been sold is audited.
	ended := time.Now()
	after, err := settledAudit(context.WithoutCancel(ctx), c, plan.GoodsID)
	if err != nil {
		return run, errors.Join(err, ctx.Err())
	}
	run.Replicas = len(result.Replicas)
	sold, err := pick(strategies, result.Strategies...)
	if err != nil {
		return run, err
	}
	run.ExpectedClean = true
	var notes []string
	for _, s := range sold {
		run.ExpectedClean = run.ExpectedClean && exclusive(s, run)
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

// exclusive reports whether a strategy guarantees that the run does not oversell: within
// a replica, all batches of an item are committed one after the other.
func exclusive(s client.Strategy, run verdict.Run) bool {
	if run.Replicas > 1 {
		return s.Claims.ExclusiveAcrossReplicas
	}
	return s.Claims.ExclusiveInProcess || run.Group
}

// sells requires a strategy that can sell; an empty name is the default one.
func sells(known []client.Strategy, name string) error {
	chosen, err := pick(known, name)
	if err != nil {
		return cli.UsageError{Err: err}
	}
	for _, s := range chosen {
		if !s.Available {
			return fmt.Errorf("%s cannot sell here: %s", s.Name, s.Note)
		}
	}
	return nil
}

// pick finds strategies by their names; an empty name is none.
func pick(known []client.Strategy, names ...string) (list []client.Strategy, err error) {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
	all := make([]string, len(known))
	for i, s := range known {
		all[i] = s.Name
	}
	for _, name := range names {
		if i := slices.Index(all, name); i >= 0 {
			list = append(list, known[i])
		}
	}
	return list, nearest.Check("a strategy", all, names...)
}

// A ledger that is written after its orders are answered is waited for.
const (
	pendingWithin = 30 * time.Second
	pendingEvery  = 20 * time.Millisecond
)

// settledAudit audits an item once no unit is pending in its ledger. After half a minute
// it takes the audit as it is.
func settledAudit(ctx context.Context, c client.Client, goodsID int64) (stock.Audit, error) {
	end := time.Now().Add(pendingWithin)
	for {
		a, err := c.Audit(ctx, goodsID)
		if err != nil || a.Pending != nil && *a.Pending == 0 || time.Now().After(end) {
			return stock.AuditOf(a.GoodsID, a.Stock, stock.Sums{Restocked: a.Initial, Corrected: a.Corrected, Sold: a.Sold, Orders: a.Orders, Held: a.Held, Returned: a.Returned}), err
		}
		time.Sleep(pendingEvery)
	}
}

func isTrue(flag *bool) bool { return flag != nil && *flag }

// unitsPerRestock last for seconds, so that a bench sells and does not restock.
const unitsPerRestock = 100_000

// supply looks after the stock of a bench, so that it measures sales and not rejections.
type supply struct {
	client  client.Client
	goodsID int64
	restock bool

	left      int64 // units at the last look that found some
	restocked int64
	gone      bool
}

// soldOut ends the run, or restocks. Units that a failed purchase has returned after the
// rejection are sold first; those that are still there at the next look are not for sale.
func (s *supply) soldOut(ctx context.Context) (more bool, err error) {
	item, err := s.client.Goods(ctx, s.goodsID)
	switch {
	case err != nil:
		return false, err
	case item.Stock > 0 && item.Stock != s.left:
		s.left = item.Stock
		return true, nil
	case !s.restock:
		s.gone = true
		return false, nil
	}
	if _, err := s.client.Restock(ctx, s.goodsID, unitsPerRestock, ""); err != nil {
		return false, err
	}
	s.restocked += unitsPerRestock
	return true, nil
}

// note adds to the notes of strategies what the table does not say: when the stock was gone, or
// how much was added.
func (s *supply) note(strategies []string, after time.Duration) string {
	list := slices.DeleteFunc(strategies, func(note string) bool { return note == "" })
	if s.gone {
		list = append(list, fmt.Sprintf("the stock was gone after %s, and the run ended; --restock adds units",
			after.Round(time.Millisecond)))
	}
	if s.restocked > 0 {
		list = append(list, fmt.Sprintf("restocked with %d units", s.restocked))
	}
	return strings.Join(list, "; ")
}

// buyers names a new user for each perUser requests, and never one of an earlier run;
// it is nil where the item has no limit, or the plan has the token of its buyer.
func buyers(plan load.Plan, perUser int64) func() string {
	if perUser == 0 || plan.BuyerToken != nil {
		return nil
	}
	prefix := "bench-" + rand.Text() + "-"
	var sent atomic.Int64
	return func() string { return prefix + strconv.FormatInt((sent.Add(1)-1)/perUser, 36) }
}
