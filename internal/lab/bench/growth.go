package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stockd/stockd/internal/lab/report"
	"github.com/stockd/stockd/internal/load"
)

// mostGrown is the number of replicas that sales grow to.
const mostGrown = 5

// grownClients and grownItems are what sales grow to on one replica. One client makes no crowd,
// and one item is sold by each of the crowds.
func grownClients() []int { return []int{64, 128, 256, 512, 1024} }

func grownItems() []int { return []int{10, 100, 1000} }

// growing is a strategy whose growth is measured, and its line in the picture.
type growing struct {
	Setting

	class string
}

func grown() []growing {
	return []growing{
		{Setting{Strategy: conditional, Group: true}, "queued"},
		{Setting{Strategy: bucket, Group: true}, "polled"},
		{Setting{Strategy: inRedis}, "woken"},
	}
}

// RunGrowth measures how sales grow with clients and with items on one replica, and with replicas.
func RunGrowth(ctx context.Context, o Options) (*Result, error) {
	return onServers(ctx, o, func(b *bench) error {
		var list []part
		for n := 1; n <= mostGrown; n++ {
			s := &stage{bench: b, replicas: n}
			s.alone = s.growth
			list = append(list, s)
		}
		return b.run(ctx, list)
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

const (
	// MostItems are sold at the same time.
	MostItems = 10_000
	// asFastAsOne is the target of many items.
	asFastAsOne = 0.7
	// zipfExponent says how unequal the items are.
	zipfExponent = 1.1
)

// RunItems measures the sale of many items at the same time against that of one, on one replica.
func RunItems(ctx context.Context, o Options, items int) (*Result, error) {
	return onServers(ctx, o, func(b *bench) error {
		s := &stage{bench: b, replicas: 1}
		s.alone = func() Suite { return s.ofItems(items) }
		return b.run(ctx, []part{s})
	})
}

// severalItems are those whose sale of many items is measured.
func severalItems() []Setting {
	return []Setting{{Strategy: conditional}, {Strategy: conditional, Group: true}, {Strategy: forUpdate, Group: true}, {Strategy: inRedis}}
}

// ofItems compares many items with one for each strategy that writes several in one transaction,
// and with sql-conditional alone, which does not.
func (s *stage) ofItems(items int) (suite Suite) {
	for _, how := range severalItems() {
		if only := s.options.Only; only != nil && !only.MatchString(how.Strategy) {
			continue
		}
		how.Clients, how.Replicas = hundreds, 1
		by := how.String()
		suite.Subjects = append(suite.Subjects, Subject{Name: by, Setting: how, Unit: "/s", Measure: s.sell(how)})
		for _, zipf := range []bool{false, true} {
			many := how
			many.Items, many.Zipf = items, zipf
			suite.Subjects = append(suite.Subjects, Subject{Name: many.String(), Setting: many, Unit: "/s", Measure: s.sellItems(many)})
			if !how.Group && how.Strategy == conditional {
				continue
			}
			suite.Ratios = append(suite.Ratios,
				Ratio{Name: many.String() + " / one item", Of: many.String(), By: by, AtLeast: asFastAsOne},
				Ratio{Name: many.String() + ", p99 / p50", Of: many.String(), Below: 10})
		}
	}
	return suite
}

// sellItems measures sales of many items, which it makes the first time.
func (s *stage) sellItems(how Setting) func(context.Context, time.Duration) (Sample, error) {
	var of *shelf
	return func(ctx context.Context, each time.Duration) (sample Sample, err error) {
		if of == nil {
			if of, err = s.stockUpItems(ctx, how); err != nil {
				return Sample{}, err
			}
		}
		return s.sellFrom(ctx, each, how, of)
	}
}

// stockUpItems makes the items, and sells each of them twice.
func (s *stage) stockUpItems(ctx context.Context, how Setting) (*shelf, error) {
	of := new(shelf)
	for range how.Items {
		goodsID, err := s.create(ctx, plenty(how.Strategy))
		if err != nil {
			return nil, err
		}
		of.goods = append(of.goods, goodsID)
	}
	var mu sync.Mutex
	next := 0
	of.pick = func() int64 {
		mu.Lock()
		defer mu.Unlock()
		next++
		return of.goods[next%len(of.goods)]
	}
	plan := s.plan(how, of)
	plan.Clients, plan.Requests = few, 2*how.Items
	first, err := load.Run(ctx, plan)
	if err != nil {
		return nil, err
	}
	of.add(first)
	of.pick = func() int64 { return of.goods[rand.IntN(len(of.goods))] }
	if how.Zipf {
		draw := rand.NewZipf(rand.New(rand.NewPCG(1, 1)), zipfExponent, 1, uint64(len(of.goods)-1)) //nolint:gosec // there are items
		of.pick = func() int64 {
			mu.Lock()
			defer mu.Unlock()
			return of.goods[draw.Uint64()]
		}
	}
	return of, nil
}
