package bench

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/report"
)

// mostGrown is the number of replicas that sales grow to.
const mostGrown = 5

// grownClients and grownItems are what sales grow to on one replica. One client makes no crowd,
// and one item is sold by each of the crowds.
func grownClients() []int { return []int{64, 128, 256, 512, 1024} }

func grownItems() []int { return []int{10, 100, 1000} }

// grown are the strategies whose growth is measured, with their lines in the picture.
func grown() []struct {
	Setting

	class string
} {
	return []struct {
		Setting

		class string
	}{
		{Setting{Strategy: conditional, Group: true}, "queued"},
		{Setting{Strategy: bucket, Group: true}, "polled"},
		{Setting{Strategy: inRedis}, "woken"},
	}
}

// RunGrowth measures how sales grow with clients and with items on one replica, and with replicas.
func RunGrowth(ctx context.Context, o Options) (*Result, error) {
	return measureAlone(ctx, o, func(b *bench) (list []*stage) {
		for n := 1; n <= mostGrown; n++ {
			s := &stage{bench: b, replicas: n}
			s.alone = s.growth
			list = append(list, s)
		}
		return list
	})
}

// growth is what is measured on a number of replicas.
func (s *stage) growth() (suite Suite) {
	for _, g := range grown() {
		if only := s.options.Only; only != nil && !only.MatchString(g.Strategy) {
			continue
		}
		how := g.Setting
		how.Replicas, how.Clients = s.replicas, hundreds
		if s.replicas > 1 {
			suite.Subjects = append(suite.Subjects, s.grows(how))
			continue
		}
		for _, how.Clients = range grownClients() {
			suite.Subjects = append(suite.Subjects, s.grows(how))
		}
		how.Clients, how.Zipf = hundreds, true
		for _, how.Items = range grownItems() {
			suite.Subjects = append(suite.Subjects, s.grows(how))
		}
	}
	return suite
}

func (s *stage) grows(how Setting) Subject {
	subject := Subject{Name: how.String(), Setting: how, Unit: "/s", Measure: s.sell(how)}
	if how.Items > 0 {
		subject.Measure = s.sellItems(how)
	}
	return subject
}

// Growth draws what RunGrowth has measured, as SVG.
func (r *Result) Growth(w io.Writer) error {
	chart := report.Lines{Title: "Sales per second, and what they grow with"}
	panels := []struct {
		title, of string
		at        []int
		set       func(how *Setting, n int)
	}{
		{"of one item, one replica", "client", grownClients(), func(how *Setting, n int) { how.Clients = n }},
		{"of many items, one replica, 256 clients", "item", slices.Concat([]int{1}, grownItems()), func(how *Setting, n int) {
			if n > 1 {
				how.Items, how.Zipf = n, true
			}
		}},
		{"of one item, 256 clients, several behind nginx", "replica", []int{1, 2, 3, 4, 5}, func(how *Setting, n int) { how.Replicas = n }},
	}
	for _, g := range grown() {
		chart.Keys = append(chart.Keys, report.Key{Class: g.class, Words: g.strategy()})
	}
	for _, p := range panels {
		panel := report.LinesPanel{Title: p.title, Of: p.of, At: p.at}
		for _, g := range grown() {
			line := make([]report.Range, len(p.at))
			for i, n := range p.at {
				how := g.Setting
				how.Clients, how.Replicas = hundreds, 1
				p.set(&how, n)
				f := r.find(how)
				if f == nil {
					return fmt.Errorf("draw growth: %s: %w", how, errNotMeasured)
				}
				line[i] = report.Range{Value: f.Median, Min: f.Min, Max: f.Max}
			}
			panel.Lines = append(panel.Lines, line)
		}
		chart.Panels = append(chart.Panels, panel)
	}
	chart.Notes = []string{"Medians; whiskers are the least and the most. " + strings.ToUpper(r.Plan[:1]) + r.Plan[1:] + ".", r.chartNotes()[1]}
	return chart.Draw().File(w)
}
