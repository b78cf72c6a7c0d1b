package bench

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/stockd/stockd/internal/lab/bench/baseline"
	"github.com/stockd/stockd/internal/lab/flow"
	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/lab/servers"
	"github.com/stockd/stockd/internal/load"
)

// Cost is the processor time of a sale in one program, in microseconds.
type Cost struct {
	User   float64 `json:"user"`
	System float64 `json:"system"`
}

// sum is both.
func (c Cost) sum() float64 { return c.User + c.System }

// Costs are those of a sale in every program that takes part in it, but for the clients.
type Costs map[string]Cost

// sum is the processor time of a sale in all programs.
func (c Costs) sum() (all float64) {
	for _, cost := range c {
		all += cost.sum()
	}
	return all
}

// negligible is what a program that takes no part in a sale may use meanwhile, as a share.
const negligible = 0.005

// costs are what was used between two looks, by so many sales; nil where nothing was sold, or one
// of the looks failed.
func costs(before, after map[string]servers.Processor, sold int) Costs {
	if sold == 0 || before == nil || after == nil {
		return nil
	}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(sold) }
	c := make(Costs)
	for program, used := range after {
		was := before[program]
		c[program] = Cost{each(used.User - was.User), each(used.System - was.System)}
	}
	all := c.sum()
	maps.DeleteFunc(c, func(_ string, cost Cost) bool { return cost.sum() <= negligible*all })
	return c
}

// used is the processor time of the replicas and the servers so far. Where it cannot be
// known, sales have no costs.
func (b *bench) used() map[string]servers.Processor {
	all, err := b.shop.Supervisor.Used()
	if err != nil {
		return nil
	}
	named := make(map[string]servers.Processor)
	for program, used := range all {
		named[b.role(program)] = used
	}
	return named
}

// role is what a program is in a sale.
func (b *bench) role(program string) string {
	if program == b.replica() {
		return "stockd"
	}
	return cmp.Or(map[string]string{"java": "zookeeper", "redis-server": "redis", "mysqld": "database", "mariadbd": "database"}[program], program)
}

// medians are the medians of each program, of the samples that have costs; nil where none has.
func medians(samples []*Sample) Costs {
	samples = slices.DeleteFunc(slices.Clone(samples), func(s *Sample) bool { return s.Costs == nil })
	all := make(Costs)
	for _, sample := range samples {
		maps.Copy(all, sample.Costs)
	}
	if len(all) == 0 {
		return nil
	}
	for program := range all {
		user, system := make([]float64, len(samples)), make([]float64, len(samples))
		for i, sample := range samples {
			user[i], system[i] = sample.Costs[program].User, sample.Costs[program].System
		}
		all[program] = Cost{Median(user), Median(system)}
	}
	return all
}

// programs are those of any figure, the replicas first.
func (r *Result) programs() []string {
	all := make(Costs)
	for _, f := range r.Subjects {
		maps.Copy(all, f.Costs)
	}
	order := []string{"stockd", "database", "redis", "zookeeper", "etcd", "nginx"}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(slices.Index(order, a)-slices.Index(order, b), cmp.Compare(a, b))
	})
}

// What an hour of a sale costs is measured at a scale of 1:100: its processor time for a million buyers, in seconds, is that
// of one request in microseconds.
const (
	hourUnits  = 100
	hourBuyers = 10_000
)

// hours are what a million buyers of 10,000 units cost, each of whom asks once.
func (s *stage) hours() (list []Subject) {
	for _, d := range s.strategies {
		if d.Name == conditional || d.Name == inRedis {
			how := Setting{Strategy: d.Name, Group: d.Name == conditional, Clients: usual, Replicas: s.replicas}
			list = append(list, s.hour(how.strategy(), func(x *flow.Flow) load.Plan {
				return s.plan(how, &shelf{goods: []int64{s.create(x, hourUnits)}})
			}))
		}
	}
	if s.programs[baseline.Update] != nil {
		list = append(list, s.hour(baseline.Update, func(x *flow.Flow) load.Plan {
			goodsID := s.items.Add(1)
			flow.Get(s.bare.ExecContext(x, baseline.AddGoods, goodsID, hourUnits))(x)
			return load.Plan{URL: s.url(s.programs[baseline.Update]), GoodsID: goodsID, Timeout: requestLimit}
		}))
	}
	return list
}

func (s *stage) hour(name string, stockUp func(*flow.Flow) load.Plan) Subject {
	return Subject{Name: hourOf(name), Unit: " s", Measure: measuring(func(x *flow.Flow, _ time.Duration) Sample {
		plan := stockUp(x)
		plan.Clients, plan.Requests = usual, hourBuyers
		sample := s.run(x, plan, func(result *load.Result) (answered int, err error) {
			if result.Sold != hourUnits || result.Failed() > 0 {
				err = fmt.Errorf("%d of %d units were sold to %d buyers: %v", result.Sold, hourUnits, result.Sent, result.Errors)
			}
			return result.Sent, err
		})
		return Sample{Value: sample.Costs.sum()}
	})}
}

func hourOf(name string) string { return "10,000 units for a million buyers, " + name }

// Hour draws what an hour costs, as SVG.
func (r *Result) Hour(w io.Writer) error {
	panel := report.Panel{Title: "all programs but the clients", Unit: "seconds of processor time"}
	chart := report.Ranges{Title: "10,000 units for a million buyers, simulated at 1:100", Notes: r.chartNotes()}
	for _, how := range []Setting{{Kind: baseline.Update}, {Strategy: conditional, Group: true}, {Strategy: inRedis}} {
		for _, f := range r.Subjects {
			if f.Name == hourOf(how.strategy()) {
				panel.Medians = append(panel.Medians, report.Median{
					Row: len(chart.Rows), Grouped: how.Group, Value: f.Median, Min: f.Min, Max: f.Max, Words: fmt.Sprintf("%s: %.0f s", how.strategy(), f.Median),
				})
				chart.Rows = append(chart.Rows, cmp.Or(how.Strategy, how.Kind))
			}
		}
	}
	if len(panel.Medians) == 0 {
		return fmt.Errorf("draw an hour: %w", errNotMeasured)
	}
	chart.Panels = []report.Panel{panel}
	return chart.Draw().File(w)
}
