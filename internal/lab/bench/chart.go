package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/stockd/stockd/internal/lab/report"
)

// Chart draws the strategies with the usual number of clients, alone and grouped,
// and the limits as lines, as SVG.
func (r *Result) Chart(w io.Writer) error {
	chart := r.ranges()
	if !slices.ContainsFunc(chart.Panels, func(p report.Panel) bool { return len(p.Medians) > 0 }) {
		return fmt.Errorf("draw chart: no strategy with %d clients: %w", usual, errNotMeasured)
	}
	return chart.Draw().File(w)
}

func (r *Result) ranges() report.Ranges {
	chart := report.Ranges{Title: "Sales per second of one item, 64 clients", Rows: r.strategies(), Notes: r.chartNotes()}
	for _, n := range r.sizes() {
		panel := report.Panel{Title: replicasOf(n), Limits: r.chartLimits(n)}
		for i, name := range chart.Rows {
			for _, group := range []bool{false, true} {
				f := r.find(Setting{Strategy: name, Group: group, Clients: usual, Replicas: n})
				if f == nil || f.Median == 0 {
					continue
				}
				panel.Medians = append(panel.Medians, report.Median{
					Row: i, Grouped: group, Value: f.Median, Min: f.Min, Max: f.Max, Words: f.Name + ": " + f.cell() + "/s",
				})
			}
		}
		chart.Panels = append(chart.Panels, panel)
	}
	return chart
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
	commit := r.Machine.Commit
	if len(commit) > 12 && !strings.Contains(commit, " ") {
		commit = commit[:12]
	}
	return []string{
		"Logarithmic scale. Dots are medians, whiskers the least and the most of " + r.Plan + ".",
		fmt.Sprintf("%s, %s processors, %s; stockd %s.", r.Machine.CPU, humanize.Comma(int64(r.Machine.Processors)), r.Machine.Memory, commit),
		strings.Join(on, ", ") + ". One ledger row a sale.",
	}
}
