package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/stockd/stockd/internal/lab/history"
	"github.com/stockd/stockd/internal/lab/live"
)

// The measures of lanes, in pixels, and how much is drawn at most.
const (
	laneName   = 17
	barHeight  = 12
	waitHeight = 4
	laneHeight = laneName + barHeight + waitHeight + 8
	markHeight = 11
	markRows   = 3 // of numbers, so that those of moments close to each other can be read
	maxLanes   = 16
	maxListed  = 30
)

// laneKeys are the bars of lanes, those at the back first, by the classes of their colours.
func laneKeys() []Key {
	return []Key{
		{"hold", "held"},
		{"open", "held, no end is known: its holder died, or had it at the end"},
		{"over", "held by two or more at once"},
		{"wait", "waited for"},
		{"lost", "notified of its loss"},
	}
}

// lane is what is drawn of a holder: spans of time in seconds, by the classes of the keys.
type lane struct {
	name string
	bars map[string][]span
}

type span struct{ from, to float64 }

// holders draws who waited for the lock when, and who held it.
func holders(r live.Recording) *Picture {
	p := &Picture{Title: "Who held the lock", width: fileWidth}
	zero := r.Leases[0].Asked
	for _, l := range r.Leases {
		zero = min(zero, l.Asked)
	}
	for _, m := range r.Marks {
		zero = min(zero, m.At)
	}
	clock := axis{to: max(seconds(r.Lanes.Until-zero), 0.001), length: p.width}
	lanes := shown(p, lanesOf(r, zero))
	top := float64(min(1, len(r.Marks)) * markRows * markHeight)
	bottom := top + laneHeight*float64(len(lanes))
	p.height = bottom + footHeight
	p.timeAxis(clock, top, bottom)
	p.marks(r.Marks, zero, clock, bottom)
	for i, l := range lanes {
		p.lane(l, clock, top+laneHeight*float64(i))
	}
	for _, key := range laneKeys() {
		if slices.ContainsFunc(lanes, func(l *lane) bool { return len(l.bars[key.Class]) > 0 }) {
			p.Legend = append(p.Legend, key)
		}
	}
	granted, beside := 0, 0
	for _, l := range r.Leases {
		if l.Granted > 0 {
			granted++
			beside += min(1, len(l.Beside))
		}
	}
	p.Desc = fmt.Sprintf("%s, %s granted in %s; %d of them while another holder had the same lock.",
		Plural(len(r.Machines), "holder", "holders"), Plural(granted, "lease", "leases"), Seconds(clock.to), beside)
	return p
}

func seconds(t live.Millis) float64 { return float64(t) / 1000 }

// lanesOf are those of all holders, with time from zero on.
func lanesOf(r live.Recording, zero live.Millis) map[string]*lane {
	lanes, until := make(map[string]*lane), r.Lanes.Until
	for _, m := range r.Machines {
		lanes[m.Name] = &lane{name: m.Name, bars: make(map[string][]span)}
	}
	for _, l := range r.Leases {
		add := func(holder, class string, from, to live.Millis) {
			bars := lanes[holder].bars
			bars[class] = append(bars[class], span{seconds(from - zero), seconds(to - zero)})
		}
		if waited := cmp.Or(l.Granted, l.GaveUp, until); waited > l.Asked {
			add(l.Holder, "wait", l.Asked, waited)
		}
		switch {
		case l.Granted == 0:
		case l.Lost+l.Released == 0:
			add(l.Holder, "open", l.Granted, cmp.Or(l.End(), until))
		default:
			add(l.Holder, "hold", l.Granted, l.End())
		}
		if l.Lost > 0 {
			add(l.Holder, "lost", l.Lost, l.Lost)
		}
		for _, other := range l.Beside {
			for _, holder := range []string{l.Holder, other.Holder} {
				add(holder, "over", other.From, cmp.Or(other.To, until))
			}
		}
	}
	return lanes
}

// shown are the lanes that are drawn: those that held the lock with another, and then those that held it most.
func shown(p *Picture, lanes map[string]*lane) []*lane {
	bars := func(l *lane, class string) int { return len(l.bars[class]) }
	all := slices.SortedFunc(maps.Values(lanes), func(a, b *lane) int {
		return cmp.Or(cmp.Compare(bars(b, "over"), bars(a, "over")), cmp.Compare(bars(b, "hold"), bars(a, "hold")), natural(a.name, b.name))
	})
	if over := len(all) - maxLanes; over > 0 {
		p.notef("%s more are not drawn: those that held the lock with another come first, then those that held it most.", Plural(over, "lane", "lanes"))
		all = all[:maxLanes]
	}
	slices.SortFunc(all, func(a, b *lane) int { return natural(a.name, b.name) })
	return all
}

// natural sorts replica-2 before replica-10.
func natural(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

func (p *Picture) lane(l *lane, clock axis, y float64) {
	p.text("lane", 0, y+laneName-5, "", l.name)
	y += laneName
	for _, key := range laneKeys() {
		switch list := l.bars[key.Class]; key.Class {
		case "lost":
			for _, s := range list {
				p.line("lost", clock.at(s.from), y-3, 0, barHeight+3)
			}
		case "wait":
			p.path("wait", boxes(clock, list, y+barHeight+2, waitHeight))
		default:
			p.path(key.Class, boxes(clock, list, y, barHeight))
		}
	}
}

// marks lists what was done to replicas and servers, and numbers it above the lanes.
func (p *Picture) marks(all []live.Mark, zero live.Millis, clock axis, bottom float64) {
	if over := len(all) - maxListed; over > 0 {
		p.notef("%s more are not listed.", Plural(over, "mark", "marks"))
		all = all[:maxListed]
	}
	for i, m := range all {
		at := seconds(m.At - zero)
		p.Marks = append(p.Marks, Seconds(at)+": "+strings.TrimSpace(m.Who+" "+m.What))
		p.line("mark-line", clock.at(at), 0, 0, bottom)
		p.text("soft", clock.at(at), markHeight*float64(1+i%markRows), clock.anchor(at), strconv.Itoa(i+1))
	}
}

// minBar is the least width of a bar, in pixels: narrower ones would be invisible. Those that are closer
// together than minGap could not be told apart.
const (
	minBar = 1.0
	minGap = 2.5
)

// boxes are spans as a path; those that are too close are merged.
func boxes(clock axis, list []span, top, height float64) string {
	var merged []span // in pixels
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range list {
		from := clock.at(s.from)
		to := max(clock.at(s.to), from+minBar)
		if n := len(merged); n > 0 && from-merged[n-1].to < minGap {
			merged[n-1].to = max(merged[n-1].to, to)
			continue
		}
		merged = append(merged, span{from, to})
	}
	var b strings.Builder
	for _, bar := range merged {
		w := number(bar.to - bar.from)
		fmt.Fprintf(&b, "M%s %sh%sv%sh-%sz", number(bar.from), number(top), w, number(height), w)
	}
	return b.String()
}

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
