package report

import (
	"fmt"
	"strings"

	"github.com/stockd/stockd/internal/lab/history"
)

// Sale is the stock of one item while a strategy sold it, as a document keeps it.
type Sale struct {
	Strategy string `json:"strategy"`
	// Units is how many there were to sell.
	Units  int64  `json:"units"`
	Points []Took `json:"points"`
}

// Took is what the ledger and the stock row said so long after the first sample.
type Took struct {
	Milliseconds int64 `json:"ms"`
	Sold         int64 `json:"sold"`
	Left         int64 `json:"left"`
}

// SaleOf reads the samples of the first item of a history, and its audits after them; it has no points where nothing was
// sampled.
func SaleOf(h *history.History) (s Sale) {
	if len(h.Requests) > 0 {
		s.Strategy = h.Requests[0].Strategy
	}
	if len(h.Samples) == 0 {
		return s
	}
	first, last := h.Samples[0], h.Samples[0]
	for _, one := range h.Samples {
		if one.GoodsID == first.GoodsID {
			s.Points, last = append(s.Points, Took{one.At.Sub(first.At).Milliseconds(), one.Sold, one.Stock}), one
		}
	}
	for _, a := range h.Audits {
		if a.GoodsID != first.GoodsID {
			continue
		}
		s.Units = a.Initial
		if a.At.After(last.At) {
			s.Points = append(s.Points, Took{a.At.Sub(first.At).Milliseconds(), a.Sold, a.Stock})
		}
	}
	return s
}

// The measures of sales: pixels down, percent across.
const (
	plotHeight = 190.0
	panelTop   = 34.0
	panelGap   = 5.0
)

// Sales draws sales beside each other on the same scales. Each has a point at least.
func Sales(list []Sale) *Picture {
	p := &Picture{Title: "Stock and sold over time"}
	scale, clock := axis{}, axis{to: 0.001}
	for _, s := range list {
		for _, one := range s.Points {
			scale.from = min(scale.from, float64(one.Left))
			scale.to = max(scale.to, float64(one.Sold), float64(s.Units))
			clock.to = max(clock.to, float64(one.Milliseconds)/1000)
		}
	}
	width := (100+panelGap)/float64(len(list)) - panelGap
	for i, s := range list {
		panel := plot{&Picture{}, clock, scale}
		panel.sale(s)
		p.place(panel.Picture, float64(i)*(width+panelGap), width)
		p.height = panel.height
		p.Desc += panel.Desc
	}
	p.Legend = []Key{
		{"curve", "sold, by the ledger"},
		{"curve left", "left, by the stock row"},
		{"limit", "what there was to sell"},
		{"excess", "sold, and did not exist"},
	}
	return p
}

// plot draws what a sale took, over the whole width.
type plot struct {
	*Picture
	clock, scale axis
}

func (p plot) sale(s Sale) {
	sold, left := func(t Took) int64 { return t.Sold }, func(t Took) int64 { return t.Left }
	end := s.Points[len(s.Points)-1]
	p.text("lane", 0, 12, "", s.Strategy)
	p.valueAxis(p.scale, panelTop, panelTop+plotHeight, Value)
	// Above the limit is the area that what was sold beyond it has.
	beyond := p.steps(s.Points, func(t Took) int64 { return max(t.Sold, s.Units) })
	if y := p.y(s.Units); end.Sold > s.Units {
		p.path("excess", panelTop, plotHeight, fmt.Sprintf("%sV%sH%dz", beyond, number(y), p.clock.unit(0)))
	}
	p.path("curve left", panelTop, plotHeight, p.steps(s.Points, left))
	p.path("curve", panelTop, plotHeight, p.steps(s.Points, sold))
	p.line("limit", 0, p.y(s.Units)+panelTop, 100, 0)
	p.timeAxis(p.clock, panelTop, panelTop+plotHeight)
	p.height = panelTop + plotHeight + footHeight
	p.Desc = fmt.Sprintf("%s sold %s of %s units, and the row said %s left. ", s.Strategy, Count(end.Sold), Count(s.Units), Count(end.Left))
	p.text("soft", 100, 12, "end", fmt.Sprintf("%s sold, the row says %s left", Count(end.Sold), Count(end.Left)))
}

// y is the position of a number of units, from the top of the plot.
func (p plot) y(units int64) float64 {
	return float64(int(plotHeight*(1-p.scale.share(float64(units)))*10+0.5)) / 10
}

// steps is a line that goes across until a value changes, and on to the end.
func (p plot) steps(list []Took, of func(Took) int64) string {
	var b strings.Builder
	for i, one := range list {
		switch at := p.clock.unit(float64(one.Milliseconds) / 1000); {
		case i == 0:
			fmt.Fprintf(&b, "M%d %s", at, number(p.y(of(one))))
		case of(one) != of(list[i-1]):
			fmt.Fprintf(&b, "H%dV%s", at, number(p.y(of(one))))
		}
		if i == len(list)-1 {
			fmt.Fprintf(&b, "H%d", p.clock.unit(float64(one.Milliseconds)/1000))
		}
	}
	return b.String()
}

// place draws another picture from x on, so wide, in percent.
func (p *Picture) place(other *Picture, x, width float64) {
	for _, s := range other.shapes {
		s.X = x + s.X*width/100
		s.W *= width / 100
		p.shapes = append(p.shapes, s)
	}
}
