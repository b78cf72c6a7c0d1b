package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/live"
)

// sampled is a recording of what was seen of the stock alone, by the strategy that sold it.
func sampled(h *history.History) live.Recording {
	strategy := ""
	if len(h.Requests) > 0 {
		strategy = h.Requests[0].Strategy
	}
	r := live.OfHistory(strategy, h)
	r.Points = slices.DeleteFunc(r.Points, func(p live.Point) bool { return p.Seen == 0 })
	return r
}

// The measures of sales, in pixels.
const (
	plotHeight = 190.0
	panelTop   = 34.0
	panelGap   = 38.0
)

// sales draws the stock of recordings beside each other on the same scales. Each has a point at least.
func sales(list ...live.Recording) *Picture {
	p := &Picture{Title: "Stock and sold over time", width: fileWidth, height: panelTop + plotHeight + footHeight}
	scale := axis{first: panelTop + plotHeight, length: -plotHeight}
	clock := axis{to: 0.001, length: (p.width+panelGap)/float64(len(list)) - panelGap}
	for _, r := range list {
		for _, one := range r.Points {
			scale.from = min(scale.from, float64(one.Stock))
			scale.to = max(scale.to, float64(one.Sold), float64(r.Sale.Settings.Stock))
			clock.to = max(clock.to, float64(one.At-r.Points[0].At)/1000)
		}
	}
	for _, r := range list {
		p.sale(r, clock, scale)
		clock.first += clock.length + panelGap
	}
	p.Legend = []Key{
		{"curve", "sold, by the ledger"},
		{"curve left", "left, by the stock row"},
		{"limit", "what there was to sell"},
		{"excess", "sold, and did not exist"},
	}
	return p
}

func (p *Picture) sale(r live.Recording, clock, scale axis) {
	units, end := r.Sale.Settings.Stock, r.Points[len(r.Points)-1]
	limit := scale.at(float64(units))
	line := func(of func(live.Point) int64) string { return stairs(r.Points, clock, scale, of) }
	p.text("lane", clock.first, 12, "", r.Title)
	p.valueAxis(scale, clock.first, clock.length, Value)
	if end.Oversold > 0 { // above the limit is the area that what was sold beyond it has
		beyond := line(func(t live.Point) int64 { return max(t.Sold, units) })
		p.path("excess", fmt.Sprintf("%sV%sH%sz", beyond, number(limit), number(clock.first)))
	}
	p.path("curve left", line(func(t live.Point) int64 { return t.Stock }))
	p.path("curve", line(func(t live.Point) int64 { return t.Sold }))
	p.line("limit", clock.first, limit, clock.length, 0)
	p.timeAxis(clock, panelTop, panelTop+plotHeight)
	p.Desc += fmt.Sprintf("%s sold %s of %s units, and the row said %s left. ", r.Title, Count(end.Sold), Count(units), Count(end.Stock))
	p.text("soft", clock.first+clock.length, 12, "end", fmt.Sprintf("%s sold, the row says %s left", Count(end.Sold), Count(end.Stock)))
}

// stairs are a line that goes across until a value changes, and on to the end.
func stairs(list []live.Point, clock, scale axis, of func(live.Point) int64) string {
	var b strings.Builder
	for i, one := range list {
		x, y := number(clock.at(float64(one.At-list[0].At)/1000)), number(scale.at(float64(of(one))))
		switch {
		case i == 0:
			fmt.Fprintf(&b, "M%s %s", x, y)
		case i == len(list)-1 || of(one) != of(list[i-1]):
			fmt.Fprintf(&b, "H%sV%s", x, y)
		}
	}
	return b.String()
}
