package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/report"
)

// Chart draws the strategies with the usual number of clients, alone and grouped, what a sale
// by them costs, and the limits as lines, as SVG.
func (r *Result) Chart(w io.Writer) error {
	chart := r.ranges()
	if !slices.ContainsFunc(chart.Panels, func(p report.Panel) bool { return len(p.Medians) > 0 }) {
		return fmt.Errorf("draw chart: no strategy with %d clients: %w", usual, errNotMeasured)
	}
	return chart.Draw().File(w)
}

func (r *Result) ranges() report.Ranges {
	chart := report.Ranges{Title: "One item, 64 clients: sales per second, and the processor time of a sale", Rows: r.strategies(), Notes: r.chartNotes()}
	for _, n := range r.sizes() {
		chart.Panels = append(chart.Panels, report.Panel{
			Title: replicasOf(n), Unit: "sales/s", Limits: r.chartLimits(n), Medians: r.chartMedians(n, chartRate),
		})
	}
	if costs := r.chartMedians(1, chartCost); len(costs) > 0 {
		panel := report.Panel{Title: replicasOf(1), Unit: "µs of processor time", Medians: costs}
		if f := r.find(Setting{Clients: usual, Replicas: 1}); f != nil && len(f.Costs) > 0 {
			panel.Limits = []report.Limit{{Name: "HTTP baseline " + comma(f.Costs.sum()), Value: f.Costs.sum()}}
		}
		chart.Panels = append(chart.Panels, panel)
	}
	return chart
}

// replicasOf is the title of a panel.
func replicasOf(n int) string {
	if n > 1 {
		return count(n, "replica") + " behind nginx"
	}
	return count(n, "replica")
}

// chartMedians are those of each strategy, alone and grouped, with so many replicas.
func (r *Result) chartMedians(replicas int, of func(*Figure) report.Median) (list []report.Median) {
	for i, name := range r.strategies() {
		for _, group := range []bool{false, true} {
			f := r.find(Setting{Strategy: name, Group: group, Clients: usual, Replicas: replicas})
			if f == nil {
				continue
			}
			if m := of(f); m.Value > 0 {
				m.Row, m.Grouped = i, group
				list = append(list, m)
			}
		}
	}
	return list
}

func chartRate(f *Figure) report.Median {
	return report.Median{Value: f.Median, Min: f.Min, Max: f.Max, Words: f.Name + ": " + f.cell() + "/s"}
}

// chartCost has no spread: a figure keeps the medians of its costs alone.
func chartCost(f *Figure) report.Median {
	all := f.Costs.sum()
	return report.Median{Value: all, Min: all, Max: all, Words: fmt.Sprintf("%s: %.0f µs", f.Name, all)}
}

// chartLimits are the limits of so many replicas, slowest first.
func (r *Result) chartLimits(replicas int) (list []report.Limit) {
	add := func(f *Figure, name string) {
		if f != nil && f.Median > 0 {
			list = append(list, report.Limit{Name: name + " " + comma(f.Median), Value: f.Median})
		}
	}
	for i := range r.Subjects {
		switch f := &r.Subjects[i]; f.Name {
		case bareLoop:
			add(f, "bare SQL loop")
		case script:
			add(f, "redis-benchmark")
		}
	}
	add(r.find(Setting{Clients: usual, Replicas: replicas}), "HTTP baseline")
	slices.SortFunc(list, func(a, b report.Limit) int { return int(a.Value - b.Value) })
	return list
}

// chartNotes say how and where the figures were measured.
func (r *Result) chartNotes() []string {
	var on []string
	for _, backend := range []string{"database", "redis", "zookeeper", "etcd", "balancer"} {
		if info, ok := r.Servers[backend]; ok {
			on = append(on, info.String())
		}
	}
	return []string{
		"Logarithmic scales. Dots are medians, whiskers the least and the most of " + r.Plan + "; processor time has medians alone.",
		fmt.Sprintf("%s, %s processors, %s; stockd %s.", r.Machine.CPU, report.Count(r.Machine.Processors), r.Machine.Memory, report.Commit(r.Machine.Commit)),
		strings.Join(on, ", ") + ". One ledger row a sale.",
	}
}
