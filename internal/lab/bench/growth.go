package bench

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/stockd/stockd/internal/lab/report"
)

// maxGrown is the number of replicas that sales grow to.
const maxGrown = 5

// grownClients and grownItems are what sales grow to on one replica. One client makes no crowd,
// and one item is sold by each of the crowds.
func grownClients() []int { return []int{64, 128, 256, 512, 1024} }

func grownItems() []int { return []int{10, 100, 1000} }

// grown are the settings whose growth is measured, each a line of the picture.
func grown() []Setting {
	return []Setting{{Strategy: conditional, Group: true}, {Strategy: bucket, Group: true}, {Strategy: inRedis}}
}

// growth is what is measured on a number of replicas.
func (s *stage) growth() (suite Suite) {
	for _, how := range s.options.settings() {
		if !s.options.measures(how.Strategy) {
			continue
		}
		how.Replicas, how.Clients = s.replicas, hundreds
		if s.replicas > 1 {
			suite.Subjects = append(suite.Subjects, s.sold(how))
			continue
		}
		for _, how.Clients = range grownClients() {
			suite.Subjects = append(suite.Subjects, s.sold(how))
		}
		how.Clients, how.Zipf = hundreds, true
		for _, how.Items = range grownItems() {
			suite.Subjects = append(suite.Subjects, s.sold(how))
		}
	}
	return suite
}

// Growth draws how sales grow, as SVG.
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
	for i, class := range []string{"queued", "polled", "woken"} {
		chart.Keys = append(chart.Keys, report.Key{Class: class, Words: grown()[i].strategy()})
	}
	for _, p := range panels {
		panel := report.LinesPanel{Title: p.title, Of: p.of, At: p.at}
		for _, how := range grown() {
			line := make([]report.Range, len(p.at))
			for i, n := range p.at {
				how.Items, how.Zipf, how.Clients, how.Replicas = 0, false, hundreds, 1
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
	chart.Notes = []string{"Medians; whiskers are the least and the most. " + report.Sentence(r.Plan), r.chartNotes()[1]}
	return chart.Draw().File(w)
}

const (
	// MaxItems are sold at the same time.
	MaxItems = 10_000
	// asFastAsOne is the target of many items.
	asFastAsOne = 0.8
	// zipfExponent says how unequal the items are.
	zipfExponent = 1.1
)

// ofItems compares many items with one for each strategy that writes several in one transaction,
// and with sql-conditional alone, which does not.
func (s *stage) ofItems() (suite Suite) {
	for _, how := range s.options.settings() {
		if !s.options.measures(how.Strategy) {
			continue
		}
		how.Clients, how.Replicas = hundreds, 1
		by := how.String()
		suite.Subjects = append(suite.Subjects, s.sold(how))
		for _, how.Zipf = range []bool{false, true} {
			how.Items = s.options.Items
			suite.Subjects = append(suite.Subjects, s.sold(how))
			if !how.Group && how.Strategy == conditional {
				continue
			}
			suite.Ratios = append(suite.Ratios,
				Ratio{Name: how.String() + " / one item", Of: how.String(), By: by, AtLeast: asFastAsOne},
				Ratio{Name: how.String() + ", p99 / p50", Of: how.String(), Below: 10})
		}
	}
	return suite
}

// picking draws the item of each next purchase.
func picking(goods []int64, zipf bool) func() int64 {
	if !zipf {
		return func() int64 { return goods[rand.IntN(len(goods))] }
	}
	draw := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), zipfExponent, 1, uint64(len(goods)-1)) //nolint:gosec // there are items
	var mu sync.Mutex
	return func() int64 {
		mu.Lock()
		defer mu.Unlock()
		return goods[draw.Uint64()]
	}
}
