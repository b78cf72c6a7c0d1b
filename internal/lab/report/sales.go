package report

import (
	"fmt"
	"math"
	"time"

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

// SaleOf reads the samples of a history; it has no points where there are none.
func SaleOf(h *history.History) (s Sale) {
	sold, left := sampled(h)
	initial, _ := initially(h.Audits)
	s.Units = int64(initial)
	if len(h.Requests) > 0 {
		s.Strategy = h.Requests[0].Strategy
	}
	for i := range sold {
		s.Points = append(s.Points, Took{sold[i].at.Sub(sold[0].at).Milliseconds(), int64(sold[i].value), int64(left[i].value)})
	}
	return s
}

// The measures of sales beside each other: pixels down, percent across.
const (
	panelTop   = 34
	panelWidth = 47.5
)

// Sales draws sales beside each other on the same scales. Each has a point at least.
func Sales(list []Sale) *Picture {
	p := &Picture{Title: "Stock and sold over time"}
	var scale axis
	var until int64
	for _, s := range list {
		for _, one := range s.Points {
			scale.from = min(scale.from, float64(one.Left))
			scale.to = max(scale.to, float64(one.Sold), float64(s.Units))
			until = max(until, one.Milliseconds)
		}
	}
	var zero time.Time
	c := newClock(zero, zero, zero.Add(time.Duration(until)*time.Millisecond))
	for i, s := range list {
		panel := s.panel(c, scale)
		p.place(panel, float64(i)*(100-panelWidth)/math.Max(1, float64(len(list)-1)), panelWidth)
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

// panel draws one sale over the whole width.
func (s Sale) panel(c clock, scale axis) *Picture {
	p := &Picture{}
	sold, left := make([]point, 0, len(s.Points)), make([]point, 0, len(s.Points))
	for _, one := range s.Points {
		at := c.zero.Add(time.Duration(one.Milliseconds) * time.Millisecond)
		sold, left = append(sold, point{at, float64(one.Sold)}), append(left, point{at, float64(one.Left)})
	}
	p.text("lane", 0, 12, "", s.Strategy)
	plot{p, c, scale, panelTop}.sale(sold, left, float64(s.Units), true)
	end := s.Points[len(s.Points)-1]
	p.Desc = fmt.Sprintf("%s sold %s of %s units, and the row said %s left. ", s.Strategy, Count(end.Sold), Count(s.Units), Count(end.Left))
	p.text("soft", 100, 12, "end", fmt.Sprintf("%s sold, the row says %s left", Count(end.Sold), Count(end.Left)))
	return p
}

// place draws another picture from x on, so wide, in percent.
func (p *Picture) place(other *Picture, x, width float64) {
	for _, s := range other.shapes {
		s.X = x + s.X*width/100
		s.W *= width / 100
		p.shapes = append(p.shapes, s)
	}
}
