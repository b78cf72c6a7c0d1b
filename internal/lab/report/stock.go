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

// The measures of curves, in pixels, and how many columns they are thinned to:
// of each the first, the least, the most and the last value are kept.
const (
	plotHeight  = 190
	plotColumns = 150
)

// point is a value at a time; it holds until the next one.
type point struct {
	at    time.Time
	value float64
}

// Stock draws how many units were sold and how many the row said were left, over
// time. It is nil where nothing of it is known.
func Stock(h *history.History) *Picture {
	sold, left := sampled(h)
	from := "As the stock row and the ledger said."
	if len(sold) == 0 {
		sold, from = told(h.Requests), "As the buyers were told: nothing was sampled."
	}
	if len(sold) == 0 {
		return nil
	}
	initial, known := initially(h.Audits)
	whole := extent(h)
	for _, a := range h.Audits {
		whole.to = later(whole.to, a.At) // the last points are from an audit
	}
	c := newClock(whole.from, whole.from, whole.to)
	p := &Picture{Title: "Stock and sold over time"}
	top := p.marksAbove(h.Marks, c) + 14
	bottom := top + plotHeight
	scale := axis{0, max(initial, most(sold), most(left), 1)}
	scale.from = min(0, least(left))
	p.valueAxis(scale, top, bottom)
	p.markLines(h.Marks, c, top, bottom, nil)
	plot := curves{p, c, scale, top}
	if known && most(sold) > initial {
		p.path("excess", top, plotHeight, plot.above(thin(sold, c), initial))
	}
	p.path("curve left", top, plotHeight, plot.steps(thin(left, c)))
	p.path("curve", top, plotHeight, plot.steps(thin(sold, c)))
	if known {
		p.line("limit", 0, plot.y(initial)+top, 100, 0)
	}
	p.timeAxis(c, top, bottom)
	p.height = bottom + footHeight
	p.sayStock(sold, left, initial, known, from)
	return p
}

func (p *Picture) sayStock(sold, left []point, initial float64, known bool, from string) {
	last := sold[len(sold)-1].value
	p.Legend = append(p.Legend, Key{"curve", "sold: " + Value(last) + " at the end"})
	p.Desc = from + " " + Value(last) + " units were sold at the end"
	if known {
		p.Desc += fmt.Sprintf(" of %s that there were", Value(initial))
	}
	if len(left) > 0 {
		rest := left[len(left)-1].value
		p.Legend = append(p.Legend, Key{"curve left", "left: " + Value(rest) + " at the end"})
		p.Desc += ", and the row said " + Value(rest) + " left"
	}
	p.Desc += "."
	if known {
		p.Legend = append(p.Legend, Key{"limit", Value(initial) + " were there to sell"})
	}
	if known && most(sold) > initial {
		p.Legend = append(p.Legend, Key{"excess", "sold beyond it: " + Value(most(sold)-initial)})
	}
	if len(sold) > 4*plotColumns {
		p.notef("%s points are drawn as %d columns, each with its first, least, most and last value.", Count(len(sold)), plotColumns)
	}
}

// sampled are the sales and the stock of the goods that was sampled most, up to
// what the audits after the samples say.
func sampled(h *history.History) (sold, left []point) {
	count := map[int64]int{}
	for _, s := range h.Samples {
		count[s.GoodsID]++
	}
	var goods int64
	for id, n := range count {
		if n > count[goods] || n == count[goods] && id < goods {
			goods = id
		}
	}
	for _, s := range h.Samples {
		if s.GoodsID == goods {
			sold = append(sold, point{s.At, float64(s.Sold)})
			left = append(left, point{s.At, float64(s.Stock)})
		}
	}
	if n := len(sold); n > 0 {
		for _, a := range h.Audits {
			if a.GoodsID == goods && a.At.After(sold[n-1].at) {
				sold, left = append(sold, point{a.At, float64(a.Sold)}), append(left, point{a.At, float64(a.Stock)})
			}
		}
	}
	return sold, left
}

// told are the sales as their buyers were told of them.
func told(requests []history.Request) []point {
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

// initially is what there was to sell, by the last audit.
func initially(audits []history.Audit) (units float64, known bool) {
	if len(audits) == 0 {
		return 0, false
	}
	return float64(audits[len(audits)-1].Initial), true
}

func most(list []point) float64 {
	return bound(list, func(a, b float64) float64 { return max(a, b) })
}

func least(list []point) float64 {
	return bound(list, func(a, b float64) float64 { return min(a, b) })
}

func bound(list []point, of func(a, b float64) float64) float64 {
	if len(list) == 0 {
		return 0
	}
	value := list[0].value
	for _, one := range list {
		value = of(value, one.value)
	}
	return value
}

// thin keeps of each column what shows its extent.
func thin(list []point, c clock) []point {
	if len(list) <= 4*plotColumns {
		return list
	}
	var result []point
	for start := 0; start < len(list); {
		column := c.unit(list[start].at) * plotColumns / (Units + 1)
		end := start
		for end < len(list) && c.unit(list[end].at)*plotColumns/(Units+1) == column {
			end++
		}
		result = append(result, corners(list[start:end])...)
		start = end
	}
	return result
}

// corners are the first, the least, the most and the last point, in order.
func corners(list []point) []point {
	byValue := func(a, b point) int { return cmp.Compare(a.value, b.value) }
	kept := []point{list[0], slices.MinFunc(list, byValue), slices.MaxFunc(list, byValue), list[len(list)-1]}
	slices.SortStableFunc(kept, func(a, b point) int { return a.at.Compare(b.at) })
	return slices.Compact(kept)
}

// curves puts points on paths.
type curves struct {
	*Picture
	clock clock
	scale axis
	top   float64
}

// y is where a value stands, from the top of the plot.
func (c curves) y(v float64) float64 {
	return math.Round(plotHeight*(1-c.scale.share(v))*10) / 10
}

// steps is a line that goes across until a value changes, and on to the end.
func (c curves) steps(list []point) string {
	if len(list) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "M%d %s", c.clock.unit(list[0].at), number(c.y(list[0].value)))
	before := list[0]
	for _, one := range list[1:] {
		if one.value == before.value {
			continue
		}
		fmt.Fprintf(&b, "H%dV%s", c.clock.unit(one.at), number(c.y(one.value)))
		before = one
	}
	b.WriteString("H" + strconv.Itoa(c.clock.unit(list[len(list)-1].at)))
	return b.String()
}

// above is the area between a limit and what is above it.
func (c curves) above(list []point, limit float64) string {
	raised := make([]point, len(list))
	for i, one := range list {
		raised[i] = point{one.at, max(one.value, limit)}
	}
	floor := number(c.y(limit))
	return c.steps(raised) + "V" + floor + "H" + strconv.Itoa(c.clock.unit(list[0].at)) + "z"
}

// valueAxis draws the axis of values, with its labels above its lines.
func (p *Picture) valueAxis(a axis, top, bottom float64) {
	for _, v := range a.ticks(4) {
		y := bottom - (bottom-top)*a.share(v)
		p.line("grid", 0, y, 100, 0)
		p.text("soft", 0, y-3, "", Value(v))
	}
}
