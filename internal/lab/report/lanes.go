package report

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/stockd/stockd/internal/lab/history"
)

// The measures of lanes, in pixels, and how many are drawn at most.
const (
	laneHead   = 17
	rowHeight  = 12
	waitHeight = 4
	laneGap    = 6
	rowGap     = 2
	mostLanes  = 16
	mostRows   = 4
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
// classes that occur to the legend.
func (p *Picture) lanes(c clock, list []lane, marks []history.Mark, keys []Key) {
	top := p.marksAbove(marks, c)
	y := top
	tracks := map[string]track{}
	for _, l := range list {
		below := p.lane(c, l, y)
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
	if slices.ContainsFunc(list, func(l lane) bool { return l.merges(c) }) {
		p.notef("Bars shorter than %s, or less apart, are merged.", Duration(c.lasts(float64(leastGap)/Units)))
	}
}

// merges reports that fewer bars are drawn than there are spans.
func (l *lane) merges(c clock) bool {
	return slices.ContainsFunc(l.strips, func(s strip) bool {
		return slices.ContainsFunc(s.layers, func(one layer) bool { return one.class != "wait" && len(bars(c, one.spans)) < len(one.spans) })
	})
}

func (p *Picture) lane(c clock, l lane, y float64) float64 {
	p.text(l.class, 0, y+12, "", l.name)
	p.shapes[len(p.shapes)-1].After = l.words
	y += laneHead
	top := y
	for _, s := range l.strips {
		for _, one := range s.layers {
			p.path(one.class, y, float64(s.height), boxes(bars(c, one.spans), s.height))
		}
		y += float64(s.height) + rowGap
	}
	y = p.signed(c, l.signs, y)
	for _, at := range l.ticks[:min(len(l.ticks), mostTicks)] {
		p.line("lost", c.percent(at), top-3, 0, y-top+1)
	}
	return y + laneGap
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

// leastBar is the least width of a bar, in units: narrower ones would be invisible. Those that are closer
// together than leastGap could not be told apart.
const (
	leastBar = 12
	leastGap = 30
)

// bars are spans in units of a path; those that are too close are merged.
func bars(c clock, list []span) [][2]int {
	var result [][2]int
	for _, s := range list {
		from := c.unit(s.from)
		to := max(c.unit(s.to), from+leastBar)
		if n := len(result); n > 0 && from-result[n-1][1] < leastGap {
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
