package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// Timelines draw who held the lock on which replica: the whole run and, where an
// overlap would be too narrow in that, a closer look at the first one. A history
// without leases gets a timeline of its requests.
func Timelines(h *history.History) []*Picture {
	whole := extent(h)
	if len(h.Leases) == 0 {
		return requestTimeline(h, whole)
	}
	all, c := overlaps(h), newClock(whole.from, whole.from, whole.to)
	list := []*Picture{leaseTimeline(h, "Who held the lock", c, whole, all)}
	if len(all) > 0 {
		first := all[0]
		if lasted := first.to.Sub(first.from); lasted < c.lasts(0.04) {
			around := max(2*lasted, 10*time.Microsecond)
			near := span{later(whole.from, first.from.Add(-around)), earlier(whole.to, first.to.Add(around))}
			list = append(list, leaseTimeline(h, "The first overlap, closer", newClock(whole.from, near.from, near.to), near, all))
		}
	}
	return list
}

func leaseTimeline(h *history.History, title string, c clock, window span, all []overlap) *Picture {
	all = slices.DeleteFunc(slices.Clone(all), func(o overlap) bool { return !o.meets(window) })
	lanes := holderLanes(h, window, all)
	p := &Picture{Title: title, Desc: describe(c, len(lanes), all)}
	shown := p.fewest(lanes, all)
	if len(all) > 0 {
		shown = slices.Insert(shown, 0, overlapLane(all))
	}
	leases, drawn, gap := p.lanes(c, shown, h.Marks, []Key{
		{"hold", "held"},
		{"wait", "waited for"},
		{"over", "held by two or more at once"},
		{"lost", "notified of its loss"},
		{"open", "held, no end is known: its holder died, or had it at the end"},
	})
	if drawn < leases {
		p.notef("%s are drawn as %s: what is shorter than %s, or less apart, is merged.", Plural(leases, "lease", "leases"),
			Plural(drawn, "bar", "bars"), Duration(c.lasts(float64(max(gap, leastBar))/Units)))
	}
	return p
}

func holderLanes(h *history.History, window span, all []overlap) []lane {
	asked, held := map[string][]history.Lease{}, map[string][]hold{}
	for _, l := range h.Leases {
		asked[l.Holder] = append(asked[l.Holder], l)
	}
	for _, one := range holds(h, extent(h).to) {
		if one.meets(window) {
			held[one.lease.Holder] = append(held[one.lease.Holder], one)
		}
	}
	list := make([]lane, 0, len(asked))
	for _, name := range slices.SortedFunc(maps.Keys(asked), natural) {
		l := lane{class: "lane", name: name}
		for _, row := range rows(held[name], func(one hold) span { return one.span }, mostRows) {
			l.strips = append(l.strips, heldStrip(name, row, all))
		}
		l.ask(asked[name], window)
		l.signs = signsOf(asked[name], window)
		list = append(list, l)
	}
	return list
}

// ask adds when the leases were waited for and lost, and counts all of them.
func (l *lane) ask(leases []history.Lease, window span) {
	var waits []span
	granted := 0
	for _, one := range leases {
		if !one.Granted.IsZero() {
			granted++
		}
		wait := span{one.Asked, cmp.Or(one.Granted, one.GaveUp, window.to)}
		if wait.to.After(wait.from) && wait.meets(window) {
			waits = append(waits, wait)
		}
		if !one.Lost.IsZero() && window.meets(span{one.Lost, one.Lost}) {
			l.ticks = append(l.ticks, one.Lost)
		}
	}
	l.strips = append(l.strips, strip{waitHeight, []layer{{"wait", waits}}})
	l.words = Count(granted) + " held"
	if n := len(leases) - granted; n > 0 {
		l.words += ", " + Count(n) + " not granted"
	}
}

// heldStrip is a row of leases, and in red where another holder had one as well.
func heldStrip(holder string, row []hold, all []overlap) strip {
	var closed, open, over []span
	for _, one := range row {
		if one.open {
			open = append(open, one.span)
		} else {
			closed = append(closed, one.span)
		}
		for _, o := range all {
			common := span{later(one.from, o.from), earlier(one.to, o.to)}
			if lockedBy(one.lease) == o.of && common.to.After(common.from) && slices.Contains(o.holders, holder) {
				over = append(over, common)
			}
		}
	}
	return strip{rowHeight, []layer{{"hold", closed}, {"open", open}, {"over", over}}}
}

func overlapLane(all []overlap) lane {
	list := make([]span, len(all))
	for i, o := range all {
		list[i] = o.span
	}
	return lane{class: "alarm", name: atOnce(all), strips: []strip{{rowHeight, []layer{{"over", list}}}}}
}

func describe(c clock, holders int, all []overlap) string {
	said := fmt.Sprintf("%s, from %s to %s.", Plural(holders, "holder", "holders"), Seconds(c.from), Seconds(c.to))
	if len(all) == 0 {
		return said + " No two held it at once."
	}
	var total time.Duration
	for _, o := range all {
		total += o.to.Sub(o.from)
	}
	first := all[0]
	return fmt.Sprintf("%s %s, for %s in all: first at %s for %s, by %s.", said,
		atOnce(all), Duration(total), c.since(first.from), Duration(first.to.Sub(first.from)), strings.Join(unique(first.holders), " and "))
}

func atOnce(list []overlap) string {
	return strings.TrimSuffix(Sentence(Times(len(list))), ".") + ", two or more held it together"
}

// unique are the holders; a single one held two leases.
func unique(holders []string) []string {
	list := slices.Compact(slices.Sorted(slices.Values(holders)))
	if len(list) == 1 {
		return []string{list[0] + " twice"}
	}
	return list
}

// fewest are the lanes that are drawn: those in an overlap before the others, and
// then those that held the lock before those that only waited.
func (p *Picture) fewest(lanes []lane, all []overlap) []lane {
	if len(lanes) <= mostLanes {
		return lanes
	}
	rank := func(l lane) int {
		switch {
		case slices.ContainsFunc(all, func(o overlap) bool { return slices.Contains(o.holders, l.name) }):
			return 0
		case l.has("hold") || l.has("open"):
			return 1
		default:
			return 2
		}
	}
	shown := slices.Clone(lanes)
	slices.SortStableFunc(shown, func(a, b lane) int { return rank(a) - rank(b) })
	shown = shown[:mostLanes]
	slices.SortFunc(shown, func(a, b lane) int { return natural(a.name, b.name) })
	p.notef("%s of %d are drawn: those that held the lock with another first, then those that held it at all.", Plural(mostLanes, "holder", "holders"), len(lanes))
	return shown
}

// natural sorts replica-2 before replica-10.
func natural(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) }

// outcomes are what a request comes to, in the order of the legend. Each is a CSS
// class.
func outcomes() []Key {
	return []Key{
		{string(history.Sold), "sold"},
		{string(history.Rejected), "rejected: sold out"},
		{string(history.Failed), "failed: nothing happened"},
		{string(history.Unknown), "unknown: no answer says"},
	}
}

func requestTimeline(h *history.History, whole span) []*Picture {
	if len(h.Requests) == 0 {
		return nil
	}
	buyers := map[int][]history.Request{}
	for _, r := range h.Requests {
		buyers[r.Client] = append(buyers[r.Client], r)
	}
	c := newClock(whole.from, whole.from, whole.to)
	p := &Picture{Title: "What each buyer asked", Desc: fmt.Sprintf("%s by %s: %s.", Plural(len(h.Requests), "request", "requests"),
		Plural(len(buyers), "buyer", "buyers"), tally(h.Requests))}
	clients := slices.Sorted(maps.Keys(buyers))
	if len(clients) > mostLanes {
		p.notef("%d of %d buyers are drawn.", mostLanes, len(clients))
		clients = clients[:mostLanes]
	}
	lanes := make([]lane, 0, len(clients))
	for _, client := range clients {
		lanes = append(lanes, buyerLane(client, buyers[client]))
	}
	if _, _, gap := p.lanes(c, lanes, h.Marks, outcomes()); gap > 1 {
		p.notef("Requests less than %s apart are one bar.", Duration(c.lasts(float64(gap)/Units)))
	}
	return []*Picture{p}
}

func buyerLane(client int, list []history.Request) lane {
	l := lane{class: "lane", name: fmt.Sprintf("buyer %d", client+1), words: tally(list)}
	for _, row := range rows(list, func(r history.Request) span { return span{r.Start, r.End} }, mostRows) {
		s := strip{height: rowHeight}
		for _, o := range outcomes() {
			var spans []span
			for _, r := range row {
				if string(r.Outcome) == o.Class {
					spans = append(spans, span{r.Start, r.End})
				}
			}
			s.layers = append(s.layers, layer{o.Class, spans})
		}
		l.strips = append(l.strips, s)
	}
	return l
}

func tally(list []history.Request) string {
	count := map[string]int{}
	for _, r := range list {
		count[string(r.Outcome)]++
	}
	var parts []string
	for _, o := range outcomes() {
		if n := count[o.Class]; n > 0 {
			word, _, _ := strings.Cut(o.Words, ":")
			parts = append(parts, Count(n)+" "+word)
		}
	}
	return strings.Join(parts, ", ")
}

// The measures of lanes, in pixels, and how many are drawn at most.
const (
	laneHead   = 17
	rowHeight  = 12
	waitHeight = 4
	laneGap    = 6
	rowGap     = 2
	mostLanes  = 16
	mostRows   = 4
	mostBars   = 1000
	mostTicks  = 150
)

type lane struct {
	class, name, words string
	strips             []strip
	signs              []sign
	ticks              []time.Time
}

// strip has bars on layers, the first at the back.
type strip struct {
	height int
	layers []layer
}

type layer struct {
	class string
	spans []span
}

func (l *lane) has(class string) bool {
	return slices.ContainsFunc(l.strips, func(s strip) bool {
		return slices.ContainsFunc(s.layers, func(one layer) bool { return one.class == class && len(one.spans) > 0 })
	})
}

// lanes draws lanes below the marks, over an axis of time, and adds the keys of the
// classes that occur to the legend. It returns how many spans are drawn as how many
// bars, waits and overlaps excepted, and the gap below which two bars are merged.
func (p *Picture) lanes(c clock, list []lane, marks []history.Mark, keys []Key) (spans, drawn, gap int) {
	top := p.marksAbove(marks, c)
	gap, spans, drawn = leastGap(c, list)
	y := top
	tracks := map[string]track{}
	for _, l := range list {
		below := p.lane(c, l, y, gap)
		tracks[l.name] = track{y, below - laneGap}
		y = below
	}
	p.behind(func() {
		p.markLines(marks, c, top, y, tracks)
		p.timeAxis(c, top, y)
	})
	p.height = y + footHeight
	for _, key := range keys {
		if slices.ContainsFunc(list, func(l lane) bool { return l.has(key.Class) || key.Class == "lost" && len(l.ticks) > 0 }) {
			p.Legend = append(p.Legend, key)
		}
	}
	for _, key := range signs() {
		if slices.ContainsFunc(list, func(l lane) bool { return slices.ContainsFunc(l.signs, func(s sign) bool { return s.Key == key }) }) {
			p.Legend = append(p.Legend, key)
		}
	}
	return spans, drawn, gap
}

func (p *Picture) lane(c clock, l lane, y float64, gap int) float64 {
	p.text(l.class, 0, y+12, "", l.name)
	p.shapes[len(p.shapes)-1].After = l.words
	y += laneHead
	top := y
	for _, s := range l.strips {
		for _, one := range s.layers {
			p.path(one.class, y, float64(s.height), boxes(bars(c, one.spans, gap), s.height))
		}
		y += float64(s.height) + rowGap
	}
	y = p.signed(c, l.signs, y)
	for _, at := range l.ticks[:min(len(l.ticks), mostTicks)] {
		p.line("lost", c.percent(at), top-3, 0, y-top+1)
	}
	return y + laneGap
}

// leastGap is the least distance between two bars that keeps their number in
// bounds, with the number of spans and of bars. Waits and overlaps are not counted.
func leastGap(c clock, list []lane) (gap, spans, counted int) {
	for gap = 1; ; gap *= 2 {
		drawn := 0
		spans, counted = 0, 0
		for _, l := range list {
			for _, s := range l.strips {
				for _, one := range s.layers {
					n := len(bars(c, one.spans, gap))
					drawn += n
					if one.class != "wait" && one.class != "over" {
						spans, counted = spans+len(one.spans), counted+n
					}
				}
			}
		}
		if drawn <= mostBars {
			return gap, spans, counted
		}
	}
}

// rows distributes spans that overlap over at most so many rows.
func rows[T any](list []T, of func(T) span, most int) [][]T {
	var result [][]T
	var ends []time.Time
next:
	for _, one := range list {
		s := of(one)
		for i, end := range ends {
			if !end.After(s.from) || i == most-1 {
				result[i], ends[i] = append(result[i], one), later(end, s.to)
				continue next
			}
		}
		result, ends = append(result, []T{one}), append(ends, s.to)
	}
	return result
}

// leastBar is the least width of a bar, in units: narrower ones would be invisible.
const leastBar = 12

// bars are spans in units of a path; those that are closer together than gap are
// merged.
func bars(c clock, list []span, gap int) [][2]int {
	var result [][2]int
	for _, s := range list {
		from := c.unit(s.from)
		to := max(c.unit(s.to), from+leastBar)
		if n := len(result); n > 0 && from-result[n-1][1] < gap {
			result[n-1][1] = max(result[n-1][1], to)
			continue
		}
		result = append(result, [2]int{from, to})
	}
	return result
}

func boxes(list [][2]int, height int) string {
	var b strings.Builder
	h := strconv.Itoa(height)
	for _, bar := range list {
		w := strconv.Itoa(bar[1] - bar[0])
		b.WriteString("M" + strconv.Itoa(bar[0]) + " 0h" + w + "v" + h + "h-" + w + "z")
	}
	return b.String()
}
