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
	laneHead   = 17
	rowHeight  = 12
	waitHeight = 4
	signHeight = 13
	signGap    = 6
	laneGap    = 6
	markHeight = 11
	maxLanes   = 16
	maxListed  = 30
	maxSteps   = 40 // of the request that others are drawn beside
	// minStep is the part of the time at which the shortest step is drawn: some matter for when they were, however short.
	minStep = 250
)

// lockKeys are the bars of leases, those at the back first, by the classes of their colours; requestKeys those of requests.
func lockKeys() []Key {
	return []Key{
		{"hold", "held"},
		{"open", "held, no end is known: its holder died, or had it at the end"},
		{"over", "held by two or more at once"},
		{"wait", "waited for"},
		{"lost", "notified of its loss"},
	}
}

func requestKeys() []Key {
	return []Key{
		{"purchase", "none of the steps below: it waits for its turn or for a connection"},
		{"acquire", "acquire: it waits for the lock"},
		{"connect", "connects"},
		{"begin", "begins"},
		{"work", "works"},
		{"read", "reads"},
		{"write", "writes"},
		{"commit", "commits"},
		{"rollback", "rolls back"},
		{"release", "releases the lock"},
		{string(history.Sold), "sold"},
		{string(history.Rejected), "rejected: sold out"},
		{string(history.Failed), "failed: nothing happened"},
		{string(history.Unknown), "unknown: no answer says"},
	}
}

// signKeys are what happened to a lease at a moment, as signs and not as colours alone.
func signKeys() []Key {
	return []Key{{"renewed", "renewed"}, {"not-renewed", "not renewed"}, {"expired", "its TTL was over"}, {"woken", "a waiter was woken"}}
}

type span struct{ from, to float64 } // in seconds, or in pixels

func (s span) meets(a axis) bool { return s.to >= a.from && s.from <= a.to }

// lane is what is drawn of a holder, by the classes of the keys.
type lane struct {
	name          string
	held, refused int
	bars          map[string][]span
	signs         map[string][]float64
}

// still is a recording that is drawn as it is at its end.
type still struct {
	*Picture
	of    live.Recording
	zero  live.Millis
	until float64
	lanes map[string]*lane
}

func draws(r live.Recording, title string) still {
	d := still{&Picture{Title: title, width: fileWidth}, r, r.Lanes.Until, 0, make(map[string]*lane)}
	for _, l := range r.Leases {
		d.zero = min(d.zero, l.Asked)
	}
	for _, m := range r.Marks {
		d.zero = min(d.zero, m.At)
	}
	d.until = d.at(r.Lanes.Until)
	for _, m := range r.Machines {
		d.lanes[m.Name] = &lane{name: m.Name, bars: make(map[string][]span), signs: make(map[string][]float64)}
	}
	return d
}

// at is a time in seconds.
func (d still) at(t live.Millis) float64 { return float64(t-d.zero) / 1000 }

// whole is the time of all that is drawn.
func (d still) whole() axis { return axis{to: max(d.until, 0.001), length: d.width} }

// holders draws who held the lock when, as the page shows it at the end of its replay.
func holders(r live.Recording) *Picture {
	d, beside, granted := draws(r, "Who held the lock"), 0, 0
	for _, l := range r.Leases {
		d.lease(d.lanes[l.Holder], l)
		for _, o := range l.Beside {
			both := span{d.at(o.From), d.at(cmp.Or(o.To, r.Lanes.Until))}
			for _, name := range []string{l.Holder, o.Holder} {
				d.lanes[name].bars["over"] = append(d.lanes[name].bars["over"], both)
			}
		}
		if l.Granted > 0 {
			granted++
			beside += min(1, len(l.Beside))
		}
	}
	d.Desc = fmt.Sprintf("%s, %s granted in %s; %d of them while another holder had the same lock.",
		Plural(len(d.lanes), "holder", "holders"), Plural(granted, "lease", "leases"), Seconds(d.until), beside)
	d.draw(d.whole(), lockKeys())
	return d.Picture
}

func (d still) lease(on *lane, l live.Lease) {
	add := func(class string, from, to float64) { on.bars[class] = append(on.bars[class], span{from, to}) }
	sign := func(class string, at live.Millis) { on.signs[class] = append(on.signs[class], d.at(at)) }
	if wait := d.at(cmp.Or(l.Granted, l.GaveUp, d.of.Lanes.Until)); wait > d.at(l.Asked) {
		add("wait", d.at(l.Asked), wait)
	}
	if l.Lost > 0 {
		add("lost", d.at(l.Lost), d.at(l.Lost))
	}
	switch end := l.End(); {
	case l.Granted == 0:
		on.refused++
	case l.Lost+l.Released == 0:
		on.held++
		add("open", d.at(l.Granted), d.at(cmp.Or(end, d.of.Lanes.Until)))
	default:
		on.held++
		add("hold", d.at(l.Granted), d.at(end))
	}
	for _, n := range l.Notes {
		if n.What == history.Renewed || n.What == history.NotRenewed || n.What == history.Woken {
			sign(string(n.What), n.At)
		}
	}
	if l.Outlived > 0 {
		sign("expired", l.Outlived)
	}
}

// requests draws what requests did that were under way together with the one that had most steps, or of which nothing is
// known but their answers, all of them.
func requests(r live.Recording) *Picture {
	d := draws(r, "What each request did")
	window, of := d.whole(), typical(r.Leases)
	if len(of.Steps) > 0 {
		window = d.beside(of)
	}
	drawn, least := 0, (window.to-window.from)/minStep
	for _, l := range r.Leases {
		on, whole := d.lanes[l.Holder], span{d.at(l.Granted), d.at(l.Released)}
		if !whole.meets(window) {
			continue
		}
		drawn++
		if len(l.Steps) == 0 {
			class := cmp.Or(l.Error, string(history.Sold))
			on.bars[class] = append(on.bars[class], whole)
		}
		for _, s := range l.Steps {
			at := d.at(s.At)
			on.bars[string(s.What)] = append(on.bars[string(s.What)], span{at, at + max(s.Took/1000, least)})
		}
	}
	d.Desc = fmt.Sprintf("%s of %s, within %s.", Plural(drawn, "request", "requests"), Count(len(r.Leases)), Seconds(window.to-window.from))
	d.draw(window, requestKeys())
	return d.Picture
}

// typical is the request that had most steps; of several, one in their middle.
func typical(all []live.Lease) live.Lease {
	most := slices.MaxFunc(all, func(a, b live.Lease) int { return cmp.Compare(len(a.Steps), len(b.Steps)) })
	same := slices.DeleteFunc(slices.Clone(all), func(l live.Lease) bool { return len(l.Steps) < len(most.Steps) })
	return same[len(same)/2]
}

// beside is the time of a request that is drawn: of very many steps that of the last ones, and not its wait for a lock.
func (d still) beside(of live.Lease) axis {
	from := of.Steps[max(0, len(of.Steps)-maxSteps)].At
	for _, s := range of.Steps {
		if end := s.At + live.Millis(s.Took); s.What == history.StepAcquire {
			from = max(from, end-(of.Released-end)/4)
		}
	}
	return axis{d.at(from), max(d.at(of.Released), d.at(from)+0.001), 0, d.width}
}

// draw draws the lanes and marks of a window, and lists the keys that occur.
func (d still) draw(window axis, keys []Key) {
	all := slices.Collect(maps.Values(d.lanes))
	all = slices.DeleteFunc(all, func(l *lane) bool { return !l.shows(window) })
	slices.SortFunc(all, func(a, b *lane) int {
		return cmp.Or(cmp.Compare(len(b.bars["over"]), len(a.bars["over"])), cmp.Compare(b.held, a.held), natural(a.name, b.name))
	})
	if over := len(all) - maxLanes; over > 0 {
		d.notef("%s more are not drawn: those that held the lock with another come first, then those that held it most.", Plural(over, "lane", "lanes"))
		all = all[:maxLanes]
	}
	slices.SortFunc(all, func(a, b *lane) int { return natural(a.name, b.name) })
	top, marked := d.marks(window)
	y := top
	for _, l := range all {
		y = d.lane(window, l, keys, y)
	}
	d.behind(func() {
		d.timeAxis(window, top, y)
		for _, x := range marked {
			d.line("mark-line", x, 0, 0, y)
		}
	})
	d.height = y + footHeight
	for _, key := range slices.Concat(keys, signKeys()) {
		if slices.ContainsFunc(all, func(l *lane) bool { return len(l.bars[key.Class])+len(l.signs[key.Class]) > 0 }) {
			d.Legend = append(d.Legend, key)
		}
	}
}

func (l *lane) shows(window axis) bool {
	for _, list := range l.bars {
		if slices.ContainsFunc(list, func(s span) bool { return s.meets(window) }) {
			return true
		}
	}
	return false
}

func (p *Picture) lane(window axis, l *lane, keys []Key, y float64) float64 {
	held := ""
	if l.held+l.refused > 0 {
		held = fmt.Sprintf("%s held", Count(l.held))
	}
	if l.refused > 0 {
		held += fmt.Sprintf(", %s not granted", Count(l.refused))
	}
	p.addf(`<text class="lane" x="0" y="%v">%v <tspan class="soft">%v</tspan></text>`, y+12, l.name, held)
	y += laneHead
	for _, key := range keys {
		switch list := l.bars[key.Class]; key.Class {
		case "lost":
			for _, s := range list {
				p.line("lost", window.at(s.from), y-3, 0, rowHeight+3)
			}
		case "wait":
			p.path("wait", boxes(window, list, y+rowHeight+2, waitHeight))
		default:
			p.path(key.Class, boxes(window, list, y, rowHeight))
		}
	}
	y += rowHeight + waitHeight + 2
	for _, key := range signKeys() {
		next := window.first
		for _, at := range slices.Sorted(slices.Values(l.signs[key.Class])) {
			if x := window.at(at); x >= next { // those that are closer could not be told apart
				p.text(key.Class, x, y+signHeight-3, "middle", key.glyph())
				next = x + signGap
			}
		}
	}
	if len(l.signs) > 0 {
		y += signHeight
	}
	return y + laneGap
}

// marks lists what was done to replicas and servers, and numbers it above the lanes.
func (d still) marks(window axis) (top float64, marked []float64) {
	row, before := 0, -d.width
	for i, m := range d.of.Marks {
		at := d.at(m.At)
		if i < maxListed {
			d.Marks = append(d.Marks, Seconds(at)+": "+strings.TrimSpace(m.Who+" "+m.What))
		}
		if at < window.from || at > window.to {
			continue
		}
		x := window.at(at)
		row = map[bool]int{true: (row + 1) % 3}[x-before < 23] // numbers that are close stand below each other
		before, top = x, max(top, float64(markHeight*(row+1)+2))
		beside, anchor := x+2, "start"
		if x > d.width-23 {
			beside, anchor = x-2, "end"
		}
		d.text("soft", beside, float64(markHeight*(row+1)), anchor, strconv.Itoa(i+1))
		marked = append(marked, x)
	}
	if over := len(d.of.Marks) - maxListed; over > 0 {
		d.notef("%s more are not listed.", Plural(over, "mark", "marks"))
	}
	return top, marked
}

// natural sorts replica-2 before replica-10.
func natural(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// minBar is the least width of a bar, in pixels: narrower ones would be invisible. Those that are closer
// together than minGap could not be told apart.
const (
	minBar = 1.0
	minGap = 2.5
)

// boxes are spans as a path; those that are too close are merged.
func boxes(window axis, list []span, top, height float64) string {
	var merged []span // in pixels
	slices.SortFunc(list, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, s := range list {
		if !s.meets(window) {
			continue
		}
		from := window.at(s.from)
		to := max(window.at(s.to), from+minBar)
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
