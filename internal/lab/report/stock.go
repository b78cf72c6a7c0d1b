package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// plotHeight is that of a plot, in pixels.
const plotHeight = 190

// point is a value at a time; it holds until the next one.
type point struct {
	at    time.Time
	value float64
}

// Stock draws how many units were sold and how many the row said were left, over
// time. It is nil where the history has neither.
func Stock(h *history.History) *Picture {
	sold, left := sampled(h)
	from := "According to the stock row and the ledger."
	if len(sold) == 0 {
		sold, from = answered(h.Requests), "According to the answers: nothing was sampled."
	}
	if len(sold) == 0 {
		return nil
	}
	initial, known := initially(h)
	whole := extent(h)
	for _, a := range h.Audits {
		whole.to = later(whole.to, a.At) // the last points are from an audit
	}
	c := newClock(whole.from, whole.from, whole.to)
	p := &Picture{Title: "Stock and sold over time"}
	top := p.marksAbove(h.Marks, c) + 14
	plot := plot{p, c, axis{min(0, least(left)), max(initial, most(sold), most(left), 1)}, top}
	p.behind(func() { p.markLines(h.Marks, c, top, top+plotHeight, nil) })
	plot.sale(sold, left, initial, known)
	p.describeStock(sold, left, initial, known, from)
	return p
}

func (p *Picture) describeStock(sold, left []point, initial float64, known bool, from string) {
	last := Value(sold[len(sold)-1].value)
	p.Legend = []Key{{"curve", "sold: " + last + " at the end"}}
	p.Desc = from + " " + last + " units were sold at the end"
	if known {
		p.Desc += fmt.Sprintf(" of %s that there were", Value(initial))
	}
	if len(left) > 0 {
		rest := Value(left[len(left)-1].value)
		p.Legend = append(p.Legend, Key{"curve left", "left: " + rest + " at the end"})
		p.Desc += ", and the row said " + rest + " left"
	}
	p.Desc += "."
	if known {
		p.Legend = append(p.Legend, Key{"limit", Value(initial) + " were there to sell"})
		if most(sold) > initial {
			p.Legend = append(p.Legend, Key{"excess", "sold beyond it: " + Value(most(sold)-initial)})
		}
	}
}

// sampled are the sales and the stock of the item that was sampled most, with the
// audits after the samples.
func sampled(h *history.History) (sold, left []point) {
	item, found := sampledMost(h)
	if !found {
		return nil, nil
	}
	add := func(at time.Time, s, l int64) {
		sold, left = append(sold, point{at, float64(s)}), append(left, point{at, float64(l)})
	}
	for _, s := range h.Samples {
		if s.GoodsID == item {
			add(s.At, s.Sold, s.Stock)
		}
	}
	end := sold[len(sold)-1].at
	for _, a := range h.Audits {
		if a.GoodsID == item && a.At.After(end) {
			add(a.At, a.Sold, a.Stock)
		}
	}
	return sold, left
}

// sampledMost is the item that was sampled most, if any was.
func sampledMost(h *history.History) (item int64, found bool) {
	if len(h.Samples) == 0 {
		return 0, false
	}
	count := map[int64]int{}
	for _, s := range h.Samples {
		count[s.GoodsID]++
	}
	return slices.MaxFunc(h.Samples, func(a, b history.Sample) int {
		return cmp.Or(count[a.GoodsID]-count[b.GoodsID], cmp.Compare(b.GoodsID, a.GoodsID))
	}).GoodsID, true
}

func answered(requests []history.Request) []point {
	sales := slices.DeleteFunc(slices.Clone(requests), func(r history.Request) bool { return r.Outcome != history.Sold })
	slices.SortStableFunc(sales, func(a, b history.Request) int { return a.End.Compare(b.End) })
	list := make([]point, len(sales))
	var sum int64
	for i, r := range sales {
		sum += r.Quantity
		list[i] = point{r.End, float64(sum)}
	}
	return list
}

// initially is what there was to sell, according to the last audit of the item that is drawn.
func initially(h *history.History) (units float64, known bool) {
	item, found := sampledMost(h)
	for _, a := range h.Audits {
		if !found || a.GoodsID == item {
			units, known = float64(a.Initial), true
		}
	}
	return units, known
}

// most is the largest value above 0, least the smallest below.
func most(list []point) (v float64) {
	for _, one := range list {
		v = max(v, one.value)
	}
	return v
}

func least(list []point) (v float64) {
	for _, one := range list {
		v = min(v, one.value)
	}
	return v
}

// plot draws points as curves below top.
type plot struct {
	*Picture
	clock clock
	scale axis
	top   float64
}

// sale draws the curves of a sale on their axes; the initial stock only where it
// is known.
func (p plot) sale(sold, left []point, initial float64, known bool) {
	p.valueAxis(p.scale, p.top, p.top+plotHeight, Value)
	if known && most(sold) > initial {
		p.path("excess", p.top, plotHeight, p.above(sold, initial))
	}
	p.path("curve left", p.top, plotHeight, p.steps(left))
	p.path("curve", p.top, plotHeight, p.steps(sold))
	if known {
		p.line("limit", 0, p.y(initial)+p.top, 100, 0)
	}
	p.timeAxis(p.clock, p.top, p.top+plotHeight)
	p.height = p.top + plotHeight + footHeight
}

// y is the position of a value, from the top of the plot.
func (p plot) y(v float64) float64 { return float64(int(plotHeight*(1-p.scale.share(v))*10+0.5)) / 10 }

// steps is a line that goes across until a value changes, and on to the end.
func (p plot) steps(list []point) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "M%d %s", p.clock.unit(list[0].at), number(p.y(list[0].value)))
	before := list[0]
	for _, one := range list[1:] {
		if one.value == before.value {
			continue
		}
		fmt.Fprintf(&b, "H%dV%s", p.clock.unit(one.at), number(p.y(one.value)))
		before = one
	}
	b.WriteString("H" + strconv.Itoa(p.clock.unit(list[len(list)-1].at)))
	return b.String()
}

// above is the area between a limit and what is above it.
func (p plot) above(list []point, limit float64) string {
	raised := make([]point, len(list))
	for i, one := range list {
		raised[i] = point{one.at, max(one.value, limit)}
	}
	return p.steps(raised) + "V" + number(p.y(limit)) + "H" + strconv.Itoa(p.clock.unit(list[0].at)) + "z"
}

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
	initial, _ := initially(h)
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
