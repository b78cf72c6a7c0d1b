package bench

import (
	_ "embed" // for the template
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
)

// The chart is a template of our own: libraries of charts bring canvases and
// fonts, and draw in colours that are fixed, while a picture in a README is seen
// on white and on black.
//
//go:embed chart.svg.tmpl
var chartTemplate string

// The measures of the chart, in pixels.
const (
	rowHeight  = 24
	labelWidth = 150 // of the strategies' names
	panelWidth = 370
	panelGap   = 48
	topHeight  = 168 // title, legend, and the limits' names
	footHeight = 96
	limitStep  = 15 // between the names of two limits
)

// chart is what the template draws.
type chart struct {
	Width, Height int
	Title         string
	Rows          []chartRow
	Panels        []panel
	Foot          []string
}

// chartRow is a strategy.
type chartRow struct {
	Name   string
	Y      float64
	Shaded bool
}

// panel is a number of replicas.
type panel struct {
	X, Width, Top, Bottom float64
	Title                 string
	Ticks                 []tick
	Limits                []chartLimit
	Dots                  []dot
}

type tick struct {
	X     float64
	Label string
}

// chartLimit is a line that nothing gets beyond.
type chartLimit struct {
	X, LabelX, LabelY float64
	Label             string
}

// dot is a median with its whiskers.
type dot struct {
	X, Y, Min, Max float64
	Grouped        bool
	Title          string
}

// Chart draws the strategies by the usual crowd, alone and grouped, with the
// limits as lines, as SVG.
func (r *Result) Chart(w io.Writer) error {
	t, err := template.New("chart").Parse(chartTemplate)
	if err != nil {
		return fmt.Errorf("read template of chart: %w", err)
	}
	if len(r.strategies()) == 0 {
		return fmt.Errorf("draw chart: no strategy was measured: %w", errNotMeasured)
	}
	if err := t.Execute(w, r.chart()); err != nil {
		return fmt.Errorf("draw chart: %w", err)
	}
	return nil
}

func (r *Result) chart() chart {
	names, sizes := r.strategies(), r.sizes()
	bottom := float64(topHeight + rowHeight*len(names))
	c := chart{
		Width:  labelWidth + len(sizes)*(panelWidth+panelGap),
		Height: int(bottom) + footHeight,
		Title:  "Sales per second of one goods, 64 clients",
		Foot:   r.foot(),
	}
	for i, name := range names {
		c.Rows = append(c.Rows, chartRow{Name: name, Y: rowY(i), Shaded: i%2 == 0})
	}
	scale := r.scale()
	for i, n := range sizes {
		p := panel{
			X: float64(labelWidth + i*(panelWidth+panelGap)), Width: panelWidth, Top: topHeight - rowHeight/2, Bottom: bottom - rowHeight/2,
			Title: count(n, "replica"),
		}
		if n > 1 {
			p.Title += " behind nginx"
		}
		r.fill(&p, names, n, scale)
		c.Panels = append(c.Panels, p)
	}
	return c
}

func rowY(i int) float64 { return float64(topHeight + i*rowHeight) }

func (r *Result) fill(p *panel, names []string, replicas int, s scale) {
	at := func(v float64) float64 { return p.X + s.of(v)*p.Width }
	for v := s.least; v <= s.most*1.001; v *= 10 {
		p.Ticks = append(p.Ticks, tick{X: at(v), Label: humanize.Commaf(v)}) // a decade may be below 1
	}
	for i, name := range names {
		for _, group := range []bool{false, true} {
			f := r.find(Setting{Strategy: name, Group: group, Clients: usual, Replicas: replicas})
			if f == nil || f.Median == 0 {
				continue
			}
			y := rowY(i) - 4
			if group {
				y += 8
			}
			p.Dots = append(p.Dots, dot{X: at(f.Median), Y: y, Min: at(f.Min), Max: at(f.Max), Grouped: group, Title: f.Name + ": " + f.cell() + "/s"})
		}
	}
	p.Limits = r.chartLimits(replicas)
	for i := range p.Limits {
		l := &p.Limits[i]
		l.X = at(l.X)
		// Names stand to the left of their lines, the fastest at the top: so no line
		// goes through another's name.
		l.LabelX, l.LabelY = l.X-5, p.Top-float64(limitStep*(i+1))+8
	}
}

// chartLimits are the limits of so many replicas, slowest first; X is the rate.
func (r *Result) chartLimits(replicas int) (list []chartLimit) {
	add := func(f *Figure, name string) {
		if f != nil && f.Median > 0 {
			list = append(list, chartLimit{X: f.Median, Label: name + " " + comma(f.Median)})
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
	add(r.find(Setting{Clients: usual, Replicas: replicas}), "HTTP, nothing behind it")
	slices.SortFunc(list, func(a, b chartLimit) int { return int(a.X - b.X) })
	return list
}

// scale is logarithmic: between the slowest lock and the fastest limit there are
// three powers of ten.
type scale struct{ least, most float64 }

func (r *Result) scale() scale {
	least, most := math.Inf(1), 0.0
	for _, f := range r.Subjects {
		if f.Clients == usual && f.Min > 0 {
			least, most = min(least, f.Min), max(most, f.Max)
		}
	}
	return scale{math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, math.Ceil(math.Log10(most)))}
}

// of is where a value stands, 0 to 1.
func (s scale) of(v float64) float64 {
	share := math.Log(v/s.least) / math.Log(s.most/s.least)
	return min(max(share, 0), 1)
}

// foot says what the figures are from.
func (r *Result) foot() []string {
	var on []string
	for _, backend := range []string{"database", "redis", "zookeeper", "etcd", "balancer"} {
		if info, is := r.Servers[backend]; is {
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
