// Package demo sells one item out through many strategies, on one replica and
// on several, and holds each run against what its strategy claims.
package demo

import (
	"context"
	_ "embed" // for the template
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"text/template"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/lab/shop"
	"github.com/stockd/stockd/internal/load"
	"github.com/stockd/stockd/internal/load/verdict"
	"github.com/stockd/stockd/internal/nearest"
	"github.com/stockd/stockd/internal/service"
	"github.com/stockd/stockd/internal/service/strategy"
)

// Plan says what to show.
type Plan struct {
	// Servers is where the backends are to come from.
	Servers servers.Choice
	// External are replicas that run already; then nothing is started, and
	// Servers and Replicas are not looked at.
	External shop.Client
	// Strategies are shown in this order; all of them where it is empty.
	Strategies []string
	// Replicas are the sizes of the cluster.
	Replicas []int
	// Stock is set before each run.
	Stock int64
	// Clients each send Loops requests for one unit.
	Clients, Loops int
	// LockShare is the part of the units and of the requests, 1 in so many, that
	// a strategy gets whose lock is kept on a server: it takes several round
	// trips a sale. At least 1.
	LockShare int
	// Group has the replicas make one batch of the purchases that wait.
	Group bool
	// LockRun bounds a run of such a strategy; 0: it lasts until the last request.
	LockRun time.Duration
	// Repeat makes every run so many times, at least once.
	Repeat int
	// Story is shown instead of Strategies on Replicas, where it is not empty.
	Story []Row
	// Progress is notified of the progress of the demo.
	Progress Progress
}

// Progress is notified of the progress of a demo.
type Progress interface {
	// Say is about something that takes a moment.
	Say(words string)
	// Begin is called once, before the first of so many runs.
	Begin(runs int)
	// Run is called when a run begins, with the requests that it is to have.
	Run(name string, requests int)
	// Answered is called again and again during a run.
	Answered(requests int)
	// Done is called with each run.
	Done(run verdict.Run)
	// End is called once, when nothing more will be said.
	End()
}

// tries bounds how often a run that is known to fail is made until it does: a
// race may come out well by luck.
const tries = 5

// LockRun is a LockRun that keeps a demo short.
const LockRun = 3 * time.Second

// lockEnv makes locks give up sooner than in a shop: redis-getset is known to
// stall until a TTL has passed.
func lockEnv() []string { return []string{"STOCKD_LOCK_TTL=5s", "STOCKD_LOCK_WAIT=3s"} }

// requestTimeout is longer than any limit of a replica.
const requestTimeout = 20 * time.Second

// Run shows the plan. The report has every run that was made, also with an
// error.
func Run(ctx context.Context, p Plan) (r *verdict.Report, err error) {
	r = &verdict.Report{}
	d := &demo{plan: p, report: r, servers: make(map[string]servers.Info)}
	defer func() { r.Servers, r.On = d.servers, servers.Line(d.servers) }()
	defer p.Progress.End()
	if p.External.URL != "" {
		return r, flow.Do(ctx, d.showExternal)
	}
	return r, flow.Do(ctx, d.show)
}

type demo struct {
	plan    Plan
	report  *verdict.Report
	servers map[string]servers.Info
	// missing tells why a backend is not there that we were to start.
	missing map[string]string
	goods   int64 // each run sells goods of its own
	begun   bool
}

func (d *demo) show(x *flow.Flow) {
	s := flow.Get(shop.Open(x, shop.Options{Servers: d.plan.Servers, Progress: d.plan.Progress.Say}))(x)
	defer func() { x.Fail(s.Close(x)) }()
	d.servers, d.report.Processors, d.missing = s.Servers.Infos(), runtime.NumCPU(), s.Servers.Missing
	d.plan.Progress.Say("starting replicas on " + s.Servers.Database.String())
	for _, replicas := range d.plan.Replicas {
		d.showOn(x, s, replicas)
	}
	if len(d.plan.Story) == 0 {
		d.order()
	}
}

// Row is a run of a story.
type Row struct {
	Strategy string
	Group    bool
	Replicas int
}

// Story shows in a few runs what oversells and what does not.
func Story() []Row {
	return []Row{
		{"naive", false, 1},
		{"mutex", false, 1},
		{"mutex", false, 3},
		{"sql-conditional", false, 3},
		{"sql-conditional", true, 3},
		{"redis-lua", false, 3},
		{"redis-lua", true, 3},
		{"redis-stock", false, 3},
	}
}

func (d *demo) showOn(x *flow.Flow, s *shop.Shop, replicas int) {
	c := flow.Get(s.Start(x, shop.Replicas{Count: replicas, Env: lockEnv()}))(x)
	defer func() { x.Fail(c.Close(context.WithoutCancel(x))) }()
	d.servers["balancer"] = c.Balancer
	d.showAll(x, c.Client(), replicas)
}

func (d *demo) showAll(x *flow.Flow, c shop.Client, replicas int) {
	known := flow.Get(c.Strategies(x))(x)
	rows, all := d.rows(known, replicas)
	chosen, errs := make([]service.Description, len(rows)), make([]error, len(rows))
	for i, row := range rows {
		chosen[i], errs[i] = Pick(known, row.Strategy)
	}
	x.Must(errors.Join(errs...))
	if !d.begun {
		d.plan.Progress.Begin(all)
		d.begun = true
	}
	for i, row := range rows {
		d.plan.Group = row.Group
		run := flow.Get(d.sale(x, c, chosen[i], replicas))(x)
		d.plan.Progress.Done(run)
		d.report.Runs = append(d.report.Runs, run)
	}
}

// rows are the runs on so many replicas, and how many there are in all.
func (d *demo) rows(known []service.Description, replicas int) (rows []Row, all int) {
	if len(d.plan.Story) > 0 {
		return slices.DeleteFunc(slices.Clone(d.plan.Story), func(r Row) bool { return r.Replicas != replicas }), len(d.plan.Story)
	}
	names := d.plan.Strategies
	if len(names) == 0 {
		for _, s := range known {
			names = append(names, s.Name)
		}
	}
	for _, name := range names {
		rows = append(rows, slices.Repeat([]Row{{name, d.plan.Group, replicas}}, d.plan.Repeat)...)
	}
	return rows, len(rows) * len(d.plan.Replicas)
}

// Pick finds a strategy by its name.
func Pick(known []service.Description, name string) (service.Description, error) {
	names := make([]string, len(known))
	for i, s := range known {
		if s.Name == name {
			return s, nil
		}
		names[i] = s.Name
	}
	return service.Description{}, nearest.Check("a strategy", names, name)
}

// Guarantees is what a strategy claims, grouped or not.
func Guarantees(s service.Description, group bool) strategy.Guarantees {
	if group {
		return s.Guarantees.Grouped()
	}
	return s.Guarantees
}

// sale makes one run. One that is known to fail and comes out clean is made
// again, a bounded number of times.
func (d *demo) sale(ctx context.Context, c shop.Client, s service.Description, replicas int) (verdict.Run, error) {
	run := verdict.Run{
		Strategy: s.Name, Replicas: replicas, Clients: d.plan.Clients, Stock: d.plan.Stock,
		Requests: d.plan.Clients * d.plan.Loops, Group: d.plan.Group, ExpectedClean: Guarantees(s, d.plan.Group).Exclusive(replicas), Note: s.Note,
	}
	if s.Guarantees.Fenceable {
		run.Shorter = true
		run.Stock = max(1, run.Stock/int64(d.plan.LockShare))
		run.Requests = max(run.Clients, run.Requests/d.plan.LockShare)
	}
	if reason := d.hidden(s, run); reason != "" {
		run.Verdict, run.Reason = verdict.NotRun, reason
		return run, nil
	}
	for planned := run.Requests; run.Tries < tries; {
		run.Tries, run.Requests = run.Tries+1, planned // the last try has put there what it sent
		if err := d.try(ctx, c, &run); err != nil {
			return run, fmt.Errorf("%s (replicas: %d): %w", s.Name, replicas, err)
		}
		if run.ExpectedClean || !run.Clean {
			break
		}
	}
	return run, nil
}

// hidden is why a run cannot show what a strategy does, or empty.
func (d *demo) hidden(s service.Description, run verdict.Run) string {
	for _, need := range s.Needs {
		if reason, missing := d.missing[need]; missing {
			return reason
		}
	}
	switch {
	case !s.Available:
		return s.Note
	case run.ExpectedClean:
		return ""
	case s.Hidden:
		return s.Note
	case s.Damage == strategy.BelowZero && int64(run.Requests) <= run.Stock:
		return fmt.Sprintf("%d purchases cannot take %d units below zero; a smaller --stock shows it", run.Requests, run.Stock)
	default:
		return ""
	}
}

func (d *demo) try(ctx context.Context, c shop.Client, run *verdict.Run) error {
	d.goods++
	units, requests := run.Stock, run.Requests
	if err := c.CreateGoods(ctx, d.goods, units); err != nil {
		return err
	}
	plan := load.Plan{
		URL: c.URL, Strategy: run.Strategy, Group: run.Group, GoodsID: d.goods, Clients: run.Clients, Requests: requests,
		Timeout: requestTimeout, Progress: d.plan.Progress.Answered,
	}
	if run.Shorter {
		plan.Duration = d.plan.LockRun
	}
	d.plan.Progress.Run(fmt.Sprintf("%s ×%d", run.Name(), run.Replicas), requests)
	result, err := load.Run(ctx, plan)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	audit, err := c.Audit(ctx, d.goods)
	if err != nil {
		return err
	}
	run.Add(result, audit)
	run.Judge()
	return nil
}

// order puts the runs of one strategy together; they were made by cluster.
func (d *demo) order() {
	first := make(map[string]int)
	for i, run := range d.report.Runs {
		if _, seen := first[run.Strategy]; !seen {
			first[run.Strategy] = i
		}
	}
	slices.SortStableFunc(d.report.Runs, func(a, b verdict.Run) int { return first[a.Strategy] - first[b.Strategy] })
}

// showExternal shows every strategy on servers that run already, on as many
// replicas as there are.
func (d *demo) showExternal(x *flow.Flow) {
	c := d.plan.External
	d.plan.Progress.Say("asking " + c.URL + " for its replicas")
	replicas := flow.Get(c.Replicas(x))(x)
	d.servers["replicas and servers"] = servers.Info{Name: c.URL, Started: servers.External}
	d.plan.Replicas = []int{len(replicas)}
	// Goods of your own have small numbers, and those of an earlier demo earlier
	// ones.
	d.goods = time.Now().UnixMilli()
	d.showAll(x, c, len(replicas))
}

//go:embed page.md.tmpl
var page string

// Page writes a report as docs/demo.md, with how to read it.
func Page(w io.Writer, r *verdict.Report) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"n": humanize.Comma, "count": func(n int) string { return humanize.Comma(int64(n)) },
		"rate":   func(run verdict.Run) string { return humanize.Comma(int64(run.SalesPerSecond)) },
		"errors": func(run verdict.Run) int { return run.Errors + run.Unknown },
		"ran":    func(run verdict.Run) bool { return run.Verdict != verdict.NotRun },
	}).Parse(page)
	if err != nil {
		return fmt.Errorf("read template of the demo: %w", err)
	}
	if err := t.Execute(w, map[string]any{"Runs": r.Runs, "Reasons": reasons(r), "On": r.On, "Processors": r.Processors}); err != nil {
		return fmt.Errorf("write page of the demo: %w", err)
	}
	return nil
}

// reasons are those of runs that were not made or not expected, and the caveats of
// databases, each once.
func reasons(r *verdict.Report) (lines []string) {
	for _, run := range r.Runs {
		words := run.Reason
		if run.Verdict == verdict.Expected {
			words = run.Note
		}
		line := "`" + run.Strategy + "`: " + words
		if words != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}
